"""A stage of scripts/gpu_check.py, and the functions that judge its result: they take the folder with its output
(stdout.txt, stderr.txt) and its exit code (negative: a signal; None: ended by its time limit), and return a verdict and
a reason. Verdicts: passed, failed, killed, timeout, hung (for a trial), tool unavailable; for stages that were not
started: no time, skipped."""
import dataclasses
import json
import signal
import typing


BAD = ("failed", "timeout", "killed")
RAN = (*BAD, "passed", "hung")
SANITIZER_FOUND = 9  # its --error-exitcode
CASES_FAILED = 4  # exit code of cuda_kernels_bench, which continues after failed cases


def text_of(path):
    return path.read_text(errors="replace") if path.is_file() else ""


def last_line(folder):
    """The last line of output, which describes the failure."""
    for name in ("stderr.txt", "stdout.txt"):
        lines = [line.strip() for line in text_of(folder / name).splitlines() if line.strip()]
        if lines:
            return lines[-1][:300]
    return "no output"


def by_exit(folder, code):
    if code == 0:
        return "passed", ""
    if code is not None and code < 0:
        return "killed", f"{signal.Signals(-code).name}; {last_line(folder)}"
    return "failed", f"exit {code}; {last_line(folder)}"


def tests_of(path):
    """Names of passed, failed and skipped tests of a GoogleTest report; None without a report."""
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
    """For commands that the driver or NCCL may legitimately let hang: that they do is a result, whether their own
    deadline or the stage's ends them."""
    def judged(folder, code):
        verdict, why = judge(folder, code)
        said = text_of(folder / "stdout.txt") + text_of(folder / "stderr.txt")
        waited = [line.strip() for line in said.splitlines()
                  if "which did not arrive" in line or "no heartbeat for" in line]
        hung = code is None or verdict == "failed" and waited
        return ("hung", waited[0][:300] if waited else "") if hung else (verdict, why)
    return judged


def by_tests(folder, code):
    tests = tests_of(folder / "tests.json")
    if tests is None:
        return by_exit(folder, code) if code else ("failed", "no report was left")
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
    """For a script that needs a package that this machine may lack."""
    verdict, why = by_exit(folder, code)
    if verdict == "failed" and "ModuleNotFoundError" in why:
        return "tool unavailable", why
    return verdict, why


def by_sanitizer(folder, code):
    """For sanitizers: they need a debugger interface, which some virtual machines do not provide."""
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
    seconds: int  # time limit
    command: typing.Any  # words, or a function of the Check that returns them
    judge: typing.Callable = by_exit
    environment: dict = dataclasses.field(default_factory=dict)
    expected: int = 6  # expected seconds on one H100 if steps reach a quarter of its peak
    least: int = 0  # seconds that must be left to start the stage; 0: a few
    after: str = ""  # a stage that must have passed
    parallel: bool = False  # runs together with its neighbours
    numbered: bool = False  # prints cases as `[N] ...`, accepts --from N
    python: bool = False  # uses the machine's own packages and libraries
    # A tool of the machine, whose absence only fails the stage; replaces the first word.
    tool: str = ""
    libraries: str = ""  # a folder of the archive whose libraries precede the machine's
    keep: tuple = ()  # patterns of large files to return
