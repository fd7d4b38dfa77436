#!/usr/bin/env python3
"""Writes the tables of docs/performance.md and docs/strategies.md whose numbers are in tests/bench/results.
  scripts/performance_tables.py            writes the tables
  scripts/performance_tables.py --check    exits with 1 and one line if a page has different tables
A table is between the lines '<!-- table NAME -->' and '<!-- end -->'; NAME is a key of TABLES."""
import argparse
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = "tests/bench/results"
PAGES = ("docs/performance.md", "docs/strategies.md")
OPTIMIZER = ("2026-11-22-xeon-optimizer-2", "2026-11-22-xeon-optimizer-8")
PEERS = tuple(f"2026-11-22-zen4-peers-{commit}" for commit in ("195ebfc", "3a87322", "58b8d74"))  # newest first
MAX_COLUMNS, COMMIT_DIGITS = 120, 7
MARKED = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", re.S)


def load(name):
    return json.loads((ROOT / RESULTS / f"{name}.json").read_text())


def prose(text):
    """Wraps a paragraph at the width of the documents."""
    return textwrap.wrap(text, MAX_COLUMNS, break_long_words=False, break_on_hyphens=False)


def table(head, rows):
    first, *others = ("".join(f"| {cell} " if cell else "| " for cell in cells) + "|" for cells in (head, *rows))
    return [first, "|" + "---|" * len(head), *others]


def percent(share, digits):
    return f"{100 * share:.{digits}f}"


def optimizer():
    """The update alone, by strategy: times, rates, shares and exposed communication."""
    runs = [(run["ranks"], {s["strategy"]: s for s in run["strategies"]}) for run in map(load, OPTIMIZER)]

    def cells(one, balanced):
        processor = one["processor_ms"]
        shares = (percent(processor[part] / sum(processor.values()), 1)
                  for part in ("update", "gemm", "communication"))
        return (f"{one['update_ms']:.0f}", f"{one['update_ms'] / balanced['update_ms']:.2f}",
                f"{one['gflops_per_device']:.1f}", " / ".join(shares),
                percent(one["exposed_communication_ms"] / one["update_ms"], 0))

    head = [column for ranks, _ in runs
            for column in (f"{ranks} devices: ms", "time", "GFLOP/s", "shares, %", "exposed, %")]
    rows = [[f"`{name}`", *(cell for _, strategies in runs
                            for cell in cells(strategies[name], strategies["balanced"]))] for name in runs[0][1]]
    return table(["strategy", *head], rows)


def commit_of(run):
    return run["versions"]["muograph"][:COMMIT_DIGITS]


def peers():
    """Steps of all trainers in the newest run, and their rates in earlier runs."""
    runs = [load(name) for name in PEERS]
    newest, *before = runs
    machines = {", ".join([run["cpu"]["name"], f"{run['cpu']['cores']} cores"] + [
        f"{name} {version[:COMMIT_DIGITS] if len(version) == 40 else version}"
        for name, version in run["versions"].items() if name != "muograph"]) for run in runs}
    measured = ", ".join(
        f"`{commit_of(run)}` {run['date']} ({len(run['results'][0]['step_s'])} rounds, load average before "
        f"{run['load_before']:.1f}, `{RESULTS}/{name}.json`)" for name, run in zip(PEERS, runs))
    rates = [{(r["configuration"], r["name"]): f"{r['tokens_per_s']:.0f}" for r in run["results"]}
             for run in before]
    rows = [[r["configuration"], r["name"], str(r["tokens_per_step"]),
             f"{r['median_s']:.1f} ({r['min_s']:.1f} to {r['max_s']:.1f})", f"{r['tokens_per_s']:.0f}",
             f"{r['peak_mib']:.0f}", *(rate.get((r["configuration"], r["name"]), "") for rate in rates)]
            for r in newest["results"]]
    return [*prose(f"{'; '.join(sorted(machines))}; muograph {measured}:"), "",
            *table(["", "", "tokens a step", "s per step, median (range)", "tokens/s", "peak MiB",
                    *(f"tokens/s of `{commit_of(run)}`" for run in before)], rows)]


def ratios():
    """Ratios of muograph to the others, by run."""
    runs = [load(name) for name in PEERS]

    def cell(ratio):
        if ratio is None:
            return ""
        rounds = (f" ({ratio['lowest_round']:.2f} to {ratio['highest_round']:.2f})"
                  if "lowest_round" in ratio else "")
        return f"{ratio['ratio']:.2f}{rounds}"

    by_run = [{ratio["what"]: ratio for ratio in run["ratios"]} for run in runs]
    rows = [[what, str(ratio["goal"] or ""), *(cell(one.get(what)) for one in by_run)]
            for what, ratio in by_run[0].items()]
    return table(["", "goal", *(f"`{commit_of(run)}`" for run in runs)], rows)


TABLES = {"optimizer": optimizer, "peers": peers, "ratios": ratios}


def with_tables(page, text):
    """The page's text with every marked table regenerated."""
    if text.count("<!-- table ") != len(MARKED.findall(text)):
        sys.exit(f"performance_tables.py: {page}: a '<!-- table NAME -->' without its '<!-- end -->'")

    def written(match):
        if match[2] not in TABLES:
            sys.exit(f"performance_tables.py: {page}: unknown table '{match[2]}'")
        return "\n".join([match[1], *TABLES[match[2]](), "", match[3]])

    return MARKED.sub(written, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    pages = {page: (ROOT / page).read_text() for page in PAGES}
    made = {page: with_tables(page, text) for page, text in pages.items()}
    named = {match[1] for text in made.values() for match in MARKED.findall(text)}
    if missing := TABLES.keys() - named:
        sys.exit(f"performance_tables.py: tables on no page: {', '.join(sorted(missing))}")
    changed = [page for page in PAGES if made[page] != pages[page]]
    if check and changed:
        sys.exit(f"{', '.join(changed)}: tables differ from {RESULTS}: run scripts/performance_tables.py")
    for page in changed:
        (ROOT / page).write_text(made[page])
    print(f"tables: {len(named)} agree with {RESULTS}" + (f"; written: {', '.join(changed)}" if changed else ""))


if __name__ == "__main__":
    main()
