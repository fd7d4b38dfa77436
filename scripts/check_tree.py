#!/usr/bin/env python3
"""Fails if the tree breaks a house rule that compilers do not check: lengths, READMEs, stray tests, missing golden
files, words of unfinished work, options in documents that no command has, citations of missing headings."""
import pathlib
import re
import subprocess
import sys

import full_phases
import mutants

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ("src/base", "src/runtime", "src/kernels", "src/trainer", "src/kit", "src/cli", "model", "optim", "graphs", "data",
         "tests", "scripts", "configs")
CODE = {".h", ".cuh", ".cpp", ".cu", ".py", ".sh", ".cmake", ".html", ".css", ".js"}
MAX_LINES, MAX_README_LINES, MAX_COLUMNS, MAX_GOLDEN_BYTES = 500, 20, 120, 3_700_000
GOLDEN = {"make_golden": ("gpt_plain", "gpt_gqa", "gpt_window", "gpt_softcap"),
          "make_nanochat_golden": ("nanochat_odd", "nanochat_window", "nanochat_single",
                                   "nanochat_training")}
TESTS = re.compile(r"tests/(unit/\w+|contract|emulator|fuzz|golden|stand_ins|system)/\w+_test\.cpp|tests/bench/\w+_bench\.cpp")
SOURCES = re.compile(  # sources of tests that CMake and scripts/fuzz.sh name
    r"tests/(support|emulator|stand_ins|one_definition)/|tests/fuzz/(targets|fuzzer)\.cpp|"
    r"tests/system/(nvtx_recorder|profiling_timer)\.cpp|tests/power_loss/recorder\.cpp|"
    r"tests/unit/(base/contracted_box_muller|cuda/fake_driver|kernels/simd_results)\.cpp")
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
# A citation of a document and its headings, by its path from the root or as a link in another document.
CITATION = re.compile(r'(?:(docs/[\w/.-]+\.md)|\]\(([\w/.-]+\.md)\)), '
                      r'("[^"]{1,80}"(?:(?:,| and|, and) "[^"]{1,80}")*)')
NUMBERED = re.compile(r"\bspec/[a-z]+,? \d")  # in texts outside the repository
DECISION = re.compile(r"\b[Dd]ecision ([0-9]+|[a-z0-9]+(?:-[a-z0-9]+)+)")
# Options of our scripts, and of other programs that appear in documents.
OTHER_OPTIONS = {"--gate", "--last", "--minutes", "--slow", "--tidy", "--user", "--dev", "--check", "--preset",
                 "--build", "--target", "--help",
                 "--project", "--follow", "--shards", "--dir", "--from", "--serve", "--logdir", "--load",
                 "--benchmark", "--gtest", "--steps", "--nanochat",
                 "--embeddings", "--registers", "--write-table", "--only", "--draw",
                 "--trace", "--cuda-graph-trace", "--output", "--report", "--capture-range",
                 "--capture-range-end", "--nvtx-capture", "--phases", "--install", "--prefix", "--version",
                 "--nnodes", "--no-python", "--mpi", "--nodes", "--ntasks-per-node", "--gpus-per-node",
                 "--cpus-per-task", "--mca", "--cpus", "--mem", "--pids-limit", "--yes", "--find-links", "--cuda", "--packages"}


def tracked():
    """Every file that is in the repository or would be added to it."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"],
                           check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(ROOT / name for name in set(names) if name and (ROOT / name).is_file())


def lengths(files):
    for path in files:
        lines = path.read_bytes().count(b"\n")
        if (path.suffix in CODE or path.name == "CMakeLists.txt") and lines > MAX_LINES:
            yield f"{path.relative_to(ROOT)}: {lines} lines, at most {MAX_LINES}"


def widths(files):
    """Checks the width of prose and code in documents; table rows may be longer."""
    for path in files:
        if path.suffix == ".md":
            for number, line in enumerate(path.read_text().split("\n"), 1):
                if len(line) > MAX_COLUMNS and not line.lstrip().startswith("|"):
                    yield f"{path.relative_to(ROOT)}:{number}: {len(line)} columns, at most {MAX_COLUMNS}"


def readmes():
    for room in ROOMS:
        readme = ROOT / room / "README.md"
        if not readme.is_file():
            yield f"{room}: has no README.md"
        elif (lines := readme.read_bytes().count(b"\n")) > MAX_README_LINES:
            yield f"{room}/README.md: {lines} lines, at most {MAX_README_LINES}"


def tests(files):
    """Finds tests that do not run: CMake builds only TESTS, SOURCES, the emulator and support."""
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if TESTS.fullmatch(name):
            if name.endswith("_test.cpp") and not re.search(r"^(TYPED_)?TEST(_[FP])?\(", path.read_text(), re.M):
                yield f"{name}: holds no test"
        elif name.startswith("tests/") and path.suffix == ".cpp" and not SOURCES.match(name):
            yield f"{name}: is not tests/FOLDER/*_test.cpp of a folder in tests/README.md, so CMake does not build it"


def golden():
    for script, names in GOLDEN.items():
        for name in names:
            if not (ROOT / f"tests/golden/{name}.safetensors").is_file():
                yield f"tests/golden/{name}.safetensors: missing; run scripts/golden/{script}.py"
    size = sum(path.stat().st_size for path in (ROOT / "tests/golden").rglob("*"))
    if size > MAX_GOLDEN_BYTES:
        yield f"tests/golden: {size} bytes, at most {MAX_GOLDEN_BYTES}"


def words(files):
    for path in files:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # binary
        for number, line in enumerate(text.split("\n"), 1):
            if UNFINISHED.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def citations(files):
    """Checks that cited headings of documents, and decisions cited by name, exist."""
    decisions = set(re.findall(r"^- `([a-z0-9-]+)`: ", (ROOT / "docs/decisions.md").read_text(), re.M))
    headings = {path: set(re.findall(r"^#+ (.+)$", path.read_text(), re.M))
                for path in files if path.suffix == ".md"}
    for path in files:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # binary
        text = re.sub(r"\n\s*(?://|#|\*)?\s*", " ", text)  # joins comments of several lines
        for from_root, link, names in CITATION.findall(text):
            cited = ROOT / from_root if from_root else (path.parent / link).resolve()
            for name in re.findall('"(.+?)"', names):
                if name not in headings.get(cited, ()):
                    yield f'{path.relative_to(ROOT)}: cites {from_root or link}, "{name}": no such heading'
        for match in NUMBERED.findall(text):
            yield f"{path.relative_to(ROOT)}: cites '{match}', which is not in the repository"
        for name in DECISION.findall(text):
            if name not in decisions:
                yield f"{path.relative_to(ROOT)}: docs/decisions.md has no decision {name}"


def end_of(text, begin, stops):
    """The position of the first of `stops` from `begin` on that is outside of brackets opened after `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        if depth == 0 and text[at] in stops:
            return at
        depth += (text[at] in "({") - (text[at] in ")}")
    return len(text)


def branch_at(text, begin):
    """Returns whether this branch of an `if constexpr` has no braces and is not a plain statement, and the position of
    its last character."""
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    if text[begin] == "{":
        return False, end_of(text, begin + 1, "}")
    end = end_of(text, begin, ";{")
    has_block = text[end:end + 1] == "{" and not re.search(r"(return|=)\s*$", text[begin:end])
    return has_block or bool(re.search(r"#|\b(for|while|do|switch)\b", text[begin:end])), end_of(text, begin, ";")


def discarded_blocks(files):
    """Finds code that nvcc 13.0 and 13.5 miscompile: within a template's lambda they drop the statement after a
    discarded branch of `if constexpr` without braces that contains a loop or a switch, such as a commit of asynchronous
    copies."""
    for path in files:
        if path.suffix not in (".cu", ".cuh", ".h", ".cpp"):
            continue
        text = re.sub("//.*", "", path.read_text())
        if path.suffix != ".cu" and "__device__" not in text and "MUO_PEER_FUNCTION" not in text and "cuda" not in path.parts:
            continue
        for match in re.finditer(r"\bif constexpr \(", text):
            is_bare, end = branch_at(text, end_of(text, match.end(), ")") + 1)
            otherwise = re.compile(r"[;}]\s*else\b(?! if constexpr)").match(text, end)
            if is_bare or (otherwise and branch_at(text, otherwise.end())[0]):
                yield (f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: a branch of if constexpr "
                       "holds a loop, a switch or a block: put braces around it")


def planted_faults():
    try:
        mutants.read_mutants()
    except SystemExit as error:
        yield f"tests/mutants: {error}"


def run_bits(files):
    for path in files:
        if path.read_bytes()[:2] == b"#!" and not path.stat().st_mode & 0o100:
            yield f"{path.relative_to(ROOT)}: has no run bit (chmod +x)"


def foreign_options():
    """The options that docs/coming_from.md translates, in the first column of its tables, and torchrun's."""
    rows = [line for line in (ROOT / "docs/coming_from.md").read_text().splitlines() if line.startswith("| `-")]
    return {option for row in rows for option in OPTION.findall(row.split(" | ")[0])} | {"--nproc"}


def commands(program):
    """Every command, as listed by the program's shell completion."""
    def completed(*words):
        return subprocess.run([program, "complete", *words, ""], capture_output=True, text=True).stdout.split()
    for command in completed():
        yield command
        yield from (f"{command} {member}" for member in completed(command) if not member.startswith("-"))


def options(files):
    program = next((p for build in ("dev", "release")
                    if (p := ROOT / "build" / build / "muograph").is_file()), None)
    if program is None:
        print("tree: skipped options in documents, because nothing is built")
        return
    known = OTHER_OPTIONS | foreign_options()
    for command in commands(program):
        shown = subprocess.run([program, *command.split(), "--help"], capture_output=True, text=True)
        if "--help-all" in shown.stdout:
            shown = subprocess.run([program, *command.split(), "--help-all"], capture_output=True, text=True)
        if shown.returncode != 0:
            yield f"muograph {command} --help: exit {shown.returncode}"
        known |= set(OPTION.findall(shown.stdout))
    for path in files:
        if path.suffix not in {".md", ".toml"}:
            continue
        for option in sorted(set(OPTION.findall(path.read_text())) - known):
            yield f"{path.relative_to(ROOT)}: {option} is in no command's --help"


def main():
    files = tracked()
    errors = [*lengths(files), *widths(files), *readmes(), *tests(files), *golden(), *words(files),
              *citations(files), *discarded_blocks(files), *run_bits(files), *options(files),
              *planted_faults(), *full_phases.older_than(full_phases.TOO_OLD)]
    print("\n".join(errors) or f"tree: {len(files)} files keep the house rules")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
