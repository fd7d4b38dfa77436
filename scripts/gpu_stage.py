"""A stage of scripts/gpu_check.py, and how its end is judged: a function of the folder with its output
(stdout.txt, stderr.txt) and its exit code (negative: a signal; None: ended by its time limit) that gives
a verdict and why. Verdicts: passed, failed, killed, timeout, hung (of a trial), tool unavailable, and of
stages that were not started: no time, skipped."""
import dataclasses
import json
import signal
import typing


BAD = ("failed", "timeout", "killed")
RAN = (*BAD, "passed", "hung")
SANITIZER_FOUND = 9  # its --error-exitcode
CASES_FAILED = 4  # exit code of cuda_kernels_bench, which has gone on behind them


def text_of(path):
    return path.read_text(errors="replace") if path.is_file() else ""


def last_line(folder):
    """Of what the command said about its failure."""
    for name in ("stderr.txt", "stdout.txt"):
        lines = [line.strip() for line in text_of(folder / name).splitlines() if line.strip()]
        if lines:
            return lines[-1][:300]
    return "it said nothing"


def by_exit(folder, code):
    if code == 0:
        return "passed", ""
    if code is not None and code < 0:
        return "killed", f"{signal.Signals(-code).name}; {last_line(folder)}"
    return "failed", f"exit {code}; {last_line(folder)}"


def tests_of(path):
    """Names of the tests of a GoogleTest report: passed, failed, skipped; None without one."""
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    out = {"passed": [], "failed": [], "skipped": []}
    for suite in report["testsuites"]:
        for case in suite["testsuite"]:
            kind = ("failed" if case.get("failures") else
                    "skipped" if case.get("result") == "SKIPPED" else "passed")
            out[kind].append(f"{suite['name']}.{case['name']}")
    return out


def by_trial(judge):
    """Of what may hang by a driver's choice: a peer that did not come within the deadline is an answer."""
    def judged(folder, code):
        verdict, why = judge(folder, code)
        said = text_of(folder / "stdout.txt") + text_of(folder / "stderr.txt")
        waited = [line.strip() for line in said.splitlines() if "which did not come" in line]
        return ("hung", waited[0][:300]) if verdict == "failed" and waited else (verdict, why)
    return judged


def by_tests(folder, code):
    tests = tests_of(folder / "tests.json")
    if tests is None:
        return by_exit(folder, code) if code else ("failed", "it left no report")
    if tests["failed"]:
        return "failed", ", ".join(tests["failed"])
    if code != 0:
        return by_exit(folder, code)
    if not tests["passed"]:
        return "failed", f"no test ran; skipped: {', '.join(tests['skipped']) or 'none'}"
    skipped = f", skipped: {', '.join(tests['skipped'])}" if tests["skipped"] else ""
    return "passed", f"{len(tests['passed'])} tests{skipped}"


def by_cases(folder, code):
    if code != CASES_FAILED:
        return by_exit(folder, code)
    rows = [json.loads(line) for line in text_of(folder / "kernels.jsonl").splitlines()]
    return "failed", "; ".join(f"{row.get('kernel', row['case'])} {row['dtype']}: {row['error']}"
                               for row in rows if "error" in row)


def by_python(folder, code):
    """Of a script that needs a package which this machine may lack."""
    verdict, why = by_exit(folder, code)
    if verdict == "failed" and "ModuleNotFoundError" in why:
        return "tool unavailable", why
    return verdict, why


def by_sanitizer(folder, code):
    """Sanitizers need a debugger's interface, which some virtual machines do not give."""
    text = text_of(folder / "stdout.txt") + text_of(folder / "stderr.txt")
    summaries = [line.strip("= \n") for line in text.splitlines() if "SUMMARY:" in line]
    if code == SANITIZER_FOUND or any(" 0 errors" not in f" {line}" and "(0 errors" not in line
                                      for line in summaries):
        return "failed", summaries[-1] if summaries else "errors, but no summary"
    if not summaries:
        why = next((line.strip("= \n") for line in text.splitlines()
                    if "error" in line.lower() or "not supported" in line.lower()), last_line(folder))
        return ("timeout", "no summary") if code is None else ("tool unavailable", why[:300])
    return by_exit(folder, code) if code else ("passed", summaries[-1])


def by_profiler(folder, code):
    text = text_of(folder / "stdout.txt") + text_of(folder / "stderr.txt")
    errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    rows = sum(line.startswith('"') for line in text.splitlines()) - 1
    if errors or (code != 0 and rows < 1):
        return "tool unavailable", (errors or [last_line(folder)])[0][:300]
    return by_exit(folder, code) if code else ("passed", f"{rows} rows")


@dataclasses.dataclass
class Stage:
    name: str
    seconds: int  # its limit
    command: typing.Any  # words, or a function of the Check that gives them
    judge: typing.Callable = by_exit
    environment: dict = dataclasses.field(default_factory=dict)
    expected: int = 6  # seconds on one H100, if steps reach a quarter of its peak
    least: int = 0  # seconds that must be left to start it; 0: a few
    after: str = ""  # a stage that must have passed
    parallel: bool = False  # with its neighbours
    numbered: bool = False  # cases: `[N] ...`, --from N
    python: bool = False  # with the machine's own packages and libraries
    tool: str = ""  # of the machine, whose absence ends the stage only; replaces the first word
    keep: tuple = ()  # patterns of large files to bring home
