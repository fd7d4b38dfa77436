#!/usr/bin/env python3
"""Opens a page of `muograph report` in Chromium, wide and on a phone, light and dark, and writes a screenshot of each;
installs Debian's chromium and chromium-driver if they are missing (root, or by sudo). Fails if the page logs an error,
loads anything, is wider than its window, hides a chart or a control, or does not respond to its controls.
    scripts/look_at_report.py REPORT.html FOLDER"""
import base64
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

WINDOWS = {"wide": (1280, 900), "phone": (390, 844)}
PROBLEMS = """
const wrong = [], width = WIDTH;
if (document.documentElement.scrollWidth > width)
  wrong.push(`the page is ${document.documentElement.scrollWidth} pixels wide in ${width}`);
for (const node of document.querySelectorAll('main section, .plot, button, select, input')) {
  const box = node.getBoundingClientRect();
  const inside = node.closest('.scroll') || node.parentElement.closest('.plot');
  if (box.width > 0 && !inside && (box.left < -1 || box.right > width + 1))
    wrong.push(`${node.tagName} ${node.id || node.textContent.slice(0, 20)} leaves the window`);
}
for (const plot of document.querySelectorAll('.plot')) {
  const note = plot.parentElement.querySelector('.note').textContent;
  if (!plot.querySelector('svg') && !note) wrong.push(`no chart: ${plot.getAttribute('aria-label')}`);
}
for (const entry of performance.getEntriesByType('resource'))
  if (!/^(data|blob):/.test(entry.name)) wrong.push(`loads ${entry.name}`);
return wrong;
"""


class Browser:
    """A WebDriver session (HTTP with JSON)."""

    def __init__(self, size, dark):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.base = f"http://127.0.0.1:{line.split()[-1].rstrip('.')}"
                break
        else:
            raise RuntimeError("chromedriver did not start")
        arguments = ["--headless=new", "--no-sandbox", "--hide-scrollbars",
                     "--use-angle=swiftshader", "--enable-unsafe-swiftshader",  # WebGL without a GPU
                     f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        width, height = size
        options = {"args": [*arguments, f"--window-size={width},{height}"],
                   "mobileEmulation": {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 1,
                                                         "mobile": width < 500, "touch": width < 500}}}
        answer = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.base += f"/session/{answer['sessionId']}"

    def ask(self, method, path, body=None):
        request = urllib.request.Request(self.base + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def run(self, script):
        return self.ask("POST", "/execute/sync", {"script": script, "args": []})

    def wait_for(self, what, script):
        for _ in range(100):
            if self.run(script):
                return
            time.sleep(0.1)
        raise RuntimeError(f"timeout waiting for {what}")

    def picture(self, file):
        """Writes a screenshot of the whole page. First scrolls to each chart, because charts are drawn when they come
        into view."""
        for i in range(self.run("return document.querySelectorAll('.plot').length")):
            plot = f"document.querySelectorAll('.plot')[{i}]"
            self.run(f"{plot}.scrollIntoView()")
            self.wait_for(f"chart {i}", f"return {plot}.querySelector('svg') !== null"
                                        f" || {plot}.parentElement.querySelector('.note').textContent !== ''")
        self.run("window.scrollTo(0, 0)")
        size = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        shot = self.ask("POST", "/goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": {
            "captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}}})
        file.write_bytes(base64.b64decode(shot["data"]))

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def errors(self):
        entries = self.ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def close(self):
        self.ask("DELETE", "")
        self.driver.send_signal(signal.SIGTERM)
        self.driver.wait()


def install():
    if shutil.which("chromium") and shutil.which("chromedriver"):
        return
    root = [] if os.getuid() == 0 else ["sudo"]
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium", "chromium-driver",
                                 "fonts-dejavu-core"]):
        subprocess.run([*root, "apt-get", "-qq", *command], check=True, stdout=subprocess.DEVNULL)


def use_table(browser):
    """Uses the table of several runs: sorts, filters, and draws none and all of the runs."""
    wrong = []
    rows = "return document.querySelectorAll('#runs-table tbody tr').length"
    lines = "return document.querySelectorAll('#losses .plot')[0].querySelectorAll('.scatterlayer .trace').length"
    click = "[...document.querySelectorAll('#overview button')].find((node) => node.textContent === '{}').click()"
    count, drawn = browser.run(rows), browser.run(lines)
    if count < 2:
        return wrong
    browser.run("document.querySelector('#runs-table th button').focus()")
    browser.press("\ue007")
    if browser.run("return document.activeElement.closest('th')?.getAttribute('aria-sort')") != "ascending":
        wrong.append("the table is not sorted by Enter on a heading")
    browser.run("const field = document.querySelector('#overview input[type=search]'); field.focus()")
    browser.press(*"zzzz")
    if browser.run(rows) != 0:
        wrong.append("the filter leaves rows that do not match")
    browser.press(*["\ue003"] * 4)  # Backspace
    if browser.run(rows) != count:
        wrong.append("rows do not come back when the filter is empty")
    for button, wanted in (("draw none", 0), ("draw all", drawn)):
        browser.run(click.format(button))
        browser.run("document.getElementById('losses').scrollIntoView()")  # distant charts are not drawn
        try:
            browser.wait_for(button, f"return ({lines.removeprefix('return ')}) === {wanted}")
        except RuntimeError:
            wrong.append(f"'{button}' draws {browser.run(lines)} lines, not {wanted}")
    return wrong


def use_controls(browser):
    """Uses the controls by keyboard: the theme with Enter, the axis with first letters, smoothing with arrows."""
    wrong = []
    theme = "return document.documentElement.dataset.theme"
    before = browser.run(theme)
    browser.run("document.getElementById('theme').focus()")
    browser.press("\ue007")  # Enter
    if browser.run(theme) == before:
        wrong.append("Enter on the theme's button changes nothing")
    browser.press("\ue007")
    title = "return document.querySelector('#losses .plot .xtitle')?.textContent"
    before = browser.run(title)
    browser.run("document.getElementById('axis').focus(); window.scrollTo(0, 0)")
    browser.press("t")  # tokens, or time
    browser.run("document.querySelector('#losses').scrollIntoView()")
    time.sleep(0.5)
    if browser.run(title) == before:
        wrong.append("the axis does not follow the keyboard")
    browser.run("document.getElementById('smooth').focus()")
    browser.press("\ue014", "\ue014")  # right
    if browser.run("return document.getElementById('smooth-value').textContent") != "0.02":
        wrong.append("smoothing does not follow the arrows")
    return wrong


def look(page, folder, name, size, dark):
    browser = Browser(size, dark)
    try:
        browser.ask("POST", "/url", {"url": page.resolve().as_uri()})
        browser.wait_for("the first chart", "return document.querySelector('#losses .plot svg, #losses .note') !== null")
        loaded = browser.run("return performance.timing.loadEventEnd - performance.timing.navigationStart")
        theme = browser.run("return document.documentElement.dataset.theme")
        browser.picture(folder / f"{name}.png")
        # A phone's innerWidth grows with its page.
        wrong = browser.run(PROBLEMS.replace("WIDTH", str(size[0])))
        if theme != ("dark" if dark else "light"):
            wrong.append(f"the page is {theme}")
        wrong += use_table(browser) + use_controls(browser) + browser.errors()
        print(f"{name}: loaded in {loaded} ms, {folder / f'{name}.png'}")
        return [f"{name}: {text}" for text in wrong]
    finally:
        browser.close()


def main():
    if len(sys.argv) != 3 or not pathlib.Path(sys.argv[1]).is_file():
        print(__doc__, file=sys.stderr)
        return 2
    page, folder = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    install()
    wrong = [problem for window, size in WINDOWS.items() for dark in (False, True)
             for problem in look(page, folder, f"{window}-{'dark' if dark else 'light'}", size, dark)]
    print("\n".join(wrong) or "no problems found")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
