#!/usr/bin/env python3
"""Opens the page of `muograph report --follow` in Chromium, wide and on a phone, light and dark, adds steps to its
runs, and writes a screenshot of each. Fails if the page logs an error, does not update, loses the user's settings
(zoom, selection, filter, order, focus, scrolling), sends requests while hidden, or does not report a lost connection.
    scripts/look_at_live_report.py PROGRAM FOLDER"""
import json
import math
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from look_at_report import PROBLEMS, WINDOWS, Browser, install

# The page may load only its own data.
PROBLEMS = PROBLEMS.replace("/^(data|blob):/", "/^(data|blob):|^http:..127.0.0.1:\\d+.data.since=/")
STEPS = "return document.querySelector('#runs-table tbody tr[data-key=\"0\"] td:nth-child(2)').textContent"
POINTS = "return document.querySelector('#losses .plot').data[0].x.length"
RANGE = "return document.querySelector('#losses .plot').layout.xaxis.range.map(Number).map(Math.round).join()"
ASKED = "return performance.getEntriesByType('resource').length"
ENTER = "\ue007"


class Run:
    """A run directory with simulated training."""

    def __init__(self, folder, level):
        folder.mkdir()
        (folder / "config.toml").write_text(f"depth = 4\nmatrix-lr = {level}\n")
        self.metrics, self.level, self.step = folder / "metrics.jsonl", level, 0

    def grow(self, steps):
        with self.metrics.open("a") as file:
            for step in range(self.step, self.step + steps):
                ms = 20 + math.sin(step)
                loss = 2 + self.level + 4 / (1 + step / 50) + 0.1 * math.sin(37 * step)
                records = [{"kind": "train", "step": step, "tokens": (step + 1) * 768, "loss": loss,
                            "lr_multiplier": min(1, step / 100), "muon_momentum": 0.95, "muon_weight_decay": 0.1,
                            "grad_norm": 1 + 0.3 * math.sin(step), "step_ms": ms, "tokens_per_s": 768e3 / ms,
                            "mfu": 0.3}]
                if step % 50 == 0:
                    records += [{"kind": "eval", "step": step, "val_loss": loss + 0.1, "val_bpb": None},
                                {"kind": "sample", "step": step, "text": f"<b>once</b> upon step {step}"}]
                file.writelines(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
        self.step += steps


def drag(browser, chart):
    """Drags a box in the middle of the chart, which zooms in."""
    box = browser.run(f"const box = {chart}.querySelector('.nsewdrag').getBoundingClientRect();"
                      "return [box.left, box.top, box.width, box.height].map(Math.round)")
    def move(x, y):
        return {"type": "pointerMove", "duration": 100, "x": box[0] + int(x * box[2]), "y": box[1] + int(y * box[3])}
    browser.ask("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [
        move(0.3, 0.2), {"type": "pointerDown", "button": 0}, move(0.5, 0.5), move(0.6, 0.8),
        {"type": "pointerUp", "button": 0}]}]})


def follows(browser, runs):
    """Checks that numbers and curves follow the runs."""
    for run in runs:
        run.grow(40)
    browser.run("document.getElementById('losses').scrollIntoView()")
    try:
        browser.wait_for("the table", f"return ({STEPS.removeprefix('return ')}) === '{runs[0].step}'")
        browser.wait_for("the curve", f"return ({POINTS.removeprefix('return ')}) === {runs[0].step}")
    except RuntimeError as error:
        return [str(error)]
    return []


def keeps(browser, runs, wide):
    """Checks that the user's settings stay while the runs grow."""
    wrong = []
    chart = "document.querySelector('#losses .plot')"
    browser.run("document.querySelector('#losses').scrollIntoView()")
    if wide:
        before = browser.run(RANGE)
        drag(browser, chart)
        browser.wait_for("the zoom", f"return ({RANGE.removeprefix('return ')}) !== '{before}'")
    browser.run("document.querySelector('#runs-table th[data-key=loss] button').click();"
                "document.querySelector('#runs-table th[data-key=loss] button').click();"  # descending: the second run first
                "document.querySelector('#runs-table tr[data-key=\"2\"] input').click();"
                "const field = document.querySelector('#overview input[type=search]'); field.focus()")
    browser.press(*"run")
    browser.run("document.querySelector('#runs-table tr[data-key=\"1\"] input').focus()")
    browser.run("document.querySelector('#losses').scrollIntoView()")
    state = {
        "zoom": RANGE,
        "selection": f"return {chart}.data.map((trace) => trace.name).join()",
        "filter": "return document.querySelector('#overview input[type=search]').value",
        "order": "return [...document.querySelectorAll('#runs-table tbody tr')].map((row) => row.dataset.key).join()",
        "focus": "return document.activeElement.getAttribute('aria-label')",
        "scrolling": "return Math.round(scrollY)",
        "theme": "return document.documentElement.dataset.theme",
    }
    if not wide:
        del state["zoom"]
    time.sleep(0.5)
    before = {name: browser.run(script) for name, script in state.items()}
    wrong += follows(browser, runs)
    after = {name: browser.run(script) for name, script in state.items()}
    wrong += [f"{name} was {before[name]} and is {after[name]}" for name in state if before[name] != after[name]]
    if before["focus"] != "draw run1":
        wrong.append(f"the focus was on {before['focus']}")
    browser.run("document.querySelector('#runs-table tr[data-key=\"2\"] input').click()")
    return wrong


def stops_when_hidden(browser):
    asked = browser.run(ASKED)
    page = browser.ask("GET", "/window")
    other = browser.ask("POST", "/window/new", {"type": "tab"})["handle"]
    browser.ask("POST", "/window", {"handle": other})
    time.sleep(5)
    browser.ask("DELETE", "/window")
    browser.ask("POST", "/window", {"handle": page})
    count = browser.run(ASKED) - asked
    return [f"the page sent {count} requests in 5 s while hidden"] if count > 2 else []


class Server:
    """The program, following runs, and a browser with its page."""

    def __init__(self, program, directories, size, dark):
        self.browser = Browser(size, dark)
        self.process = subprocess.Popen([program, "report", "--follow", "--port", "0", *map(str, directories)],
                                        stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        self.browser.ask("POST", "/url", {"url": self.process.stdout.readline().split()[0]})
        return self.browser

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        self.browser.close()


def look_at_a_sweep(program, folder):
    """Checks a sweep whose trials begin while the page is open and end in different ways."""
    with tempfile.TemporaryDirectory() as place:
        sweep = pathlib.Path(place) / "sweep"
        sweep.mkdir()
        with Server(program, [sweep], WINDOWS["wide"], False) as browser:
            browser.wait_for("the empty page", "return document.getElementById('summary').textContent === 'No run has begun yet'")
            (sweep / "trials").mkdir()
            (sweep / "sweep.jsonl").touch()
            trials = []
            for i in range(6):
                trials.append(Run(sweep / "trials" / f"{i:04}", i / 4))
                trials[-1].grow(60)
                count = "return document.querySelectorAll('#runs-table tbody tr').length"
                browser.wait_for(f"trial {i}", f"return ({count.removeprefix('return ')}) === {i + 1}")
            sections = ("return [...document.querySelectorAll('nav a'), ...document.querySelectorAll('main section')]"
                        ".map((node) => node.id || node.hash.slice(1)).join()")
            order = browser.run(sections).split(",")
            half = len(order) // 2  # links, then sections
            wrong = [f"sections are {order}"] if order[:half] != order[half:] or order[1] != "options" else []
            shutil.rmtree(trials[0].metrics.parent)
            lines = trials[1].metrics.read_text().splitlines(keepends=True)
            trials[1].metrics.write_text("".join(lines[:20]))
            said = "return document.getElementById('notes').textContent"
            for text in ("0000: the directory is gone", "0001: metrics.jsonl was truncated or replaced"):
                browser.wait_for(text, f"return ({said.removeprefix('return ')}).includes('{text}')")
            browser.picture(folder / "live-sweep.png")
            print(f"sweep: {folder / 'live-sweep.png'}")
            return [f"sweep: {text}" for text in wrong + browser.errors()]


def look(program, folder, name, size, dark):
    wide = size[0] > 500
    with tempfile.TemporaryDirectory() as place:
        runs = [Run(pathlib.Path(place) / f"run{i}", i / 4) for i in range(3)]
        for run in runs:
            run.grow(120)
        server = Server(program, [run.metrics.parent for run in runs], size, dark)
        with server as browser:
            browser.wait_for("the first chart", "return document.querySelector('#losses .plot svg') !== null")
            wrong = follows(browser, runs) + keeps(browser, runs, wide)
            browser.picture(folder / f"live-{name}.png")
            wrong += browser.run(PROBLEMS.replace("WIDTH", str(size[0])))
            wrong += stops_when_hidden(browser) + browser.errors()
            if not browser.run("return document.getElementById('live').textContent").startswith("live, "):
                wrong.append("the page does not show that it is live")
            server.process.send_signal(signal.SIGTERM)
            server.process.wait()
            browser.wait_for("the end", "return document.getElementById('live').textContent === 'no connection'")
            print(f"{name}: {folder / f'live-{name}.png'}")
            return [f"{name}: {text}" for text in wrong]


def main():
    if len(sys.argv) != 3 or not pathlib.Path(sys.argv[1]).is_file():
        print(__doc__, file=sys.stderr)
        return 2
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    install()
    wrong = [problem for window, size in WINDOWS.items() for dark in (False, True)
             for problem in look(program, folder, f"{window}-{'dark' if dark else 'light'}", size, dark)]
    wrong += look_at_a_sweep(program, folder)
    print("\n".join(wrong) or "no problems found")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
