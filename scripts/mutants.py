#!/usr/bin/env python3
"""Plants the faults of tests/mutants/*.toml, one at a time, and reports which tests detect them.

    scripts/mutants.py [--only REGEX] [--part K/N] [--json FILE]
    scripts/mutants.py --draw N --seed S [--since COMMIT]

As many faults as possible are compiled into one build of a copy of the tree (build/mutants); MUO_MUTANT selects one of
them when a program starts. Tests whose cases the gate draws at random run only the cases that always run.
tests/mutants/README.md describes entries. The exit code is 1 if less than 95 % of the faults are killed, or if a fault
marked as a survivor is killed. --draw prints N lines of product code at which to plant faults, half of them changed
since COMMIT."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build/mutants"
TREE = WORK / "tree"
BUILD = TREE / "build/dev"
GOAL = 0.95
ROOMS = ("src", "model", "optim", "graphs", "data")
HEADER = """#pragma once
#include <cstdlib>
#include <type_traits>
inline const int muo_mutant_chosen = std::getenv("MUO_MUTANT") ? std::atoi(std::getenv("MUO_MUTANT")) : 0;
constexpr bool muo_mutant(int number) { return !std::is_constant_evaluated() && number == muo_mutant_chosen; }
"""


def run(*command, **options):
    return subprocess.run([*map(str, command)], text=True, errors="replace", capture_output=True, **options)


class Mutant:
    FIELDS = {"name", "file", "within", "from", "to", "tests", "backend", "patch", "equivalent", "survives", "cpu"}

    def __init__(self, source, entry):
        self.name, self.file = entry["name"], entry["file"]
        # Does not change when entries are added, for the compiler's cache.
        self.number = zlib.crc32(self.name.encode()) >> 1
        self.key = f"mutants/{source.stem}\n{self.name}\n{self.file}"
        where = f"{source.name}: {self.name}"
        if unknown := set(entry) - self.FIELDS:
            sys.exit(f"{where}: unknown field {', '.join(unknown)}")
        if not (ROOT / self.file).is_file():
            sys.exit(f"{where}: {self.file} does not exist")
        self.right, self.wrong = entry["from"], entry["to"]
        self.equivalent, self.survives = entry.get("equivalent"), entry.get("survives")
        self.tests, self.backend = entry.get("tests", []), entry.get("backend", "")
        self.patch, self.cpu = entry.get("patch", False), entry.get("cpu")
        if bool(self.tests) == bool(self.equivalent):
            sys.exit(f"{where}: needs either tests or equivalent")
        text, begin = (ROOT / self.file).read_text(), 0
        if within := entry.get("within"):
            if text.count(within) != 1:
                sys.exit(f"{where}: {self.file} has {text.count(within)} times: {within}")
            begin, text = text.index(within), within
        if text.count(self.right) != 1:
            sys.exit(f"{where}: {self.file} has {text.count(self.right)} times: {self.right}")
        self.begin = begin + text.index(self.right)
        self.end = self.begin + len(self.right)
        self.is_header = self.file.endswith(".h")

    def text(self):
        if self.patch:
            return self.wrong
        if self.right.rstrip().endswith((";", "}")):
            return f"if (muo_mutant({self.number})) {{ {self.wrong} }} else {{ {self.right} }}"
        return f"(muo_mutant({self.number}) ? ({self.wrong}) : ({self.right}))"

    def collides(self, other):
        return self.file == other.file and self.begin < other.end and other.begin < self.end


def check_tests(mutants):
    """Exits if an entry names a test, without wildcards, that no source defines."""
    defined = {f"{suite}.{name}" for path in (ROOT / "tests").rglob("*.cpp")
               for suite, name in re.findall(r"\bTEST\w*\(\s*(\w+),\s*(\w+)", path.read_text())}
    for mutant in mutants:
        for test in mutant.tests:
            program, pattern = test.split(" ", 1)
            if program != "ctest" and re.fullmatch(r"\w+[.]\w+", pattern) and pattern not in defined:
                sys.exit(f"tests/mutants: {mutant.name}: there is no test {pattern}")


def read_mutants():
    mutants = []
    for source in sorted((ROOT / "tests/mutants").glob("*.toml")):
        for entry in tomllib.loads(source.read_text())["mutant"]:
            mutants.append(Mutant(source, entry))
    names = [mutant.name for mutant in mutants]
    if twice := {name for name in names if names.count(name) > 1}:
        sys.exit(f"tests/mutants: two entries are named '{twice.pop()}'")
    check_tests(mutants)
    return mutants


def builds_of(mutants):
    """Groups mutants into builds: those of sources; those of headers, which rebuild nearly everything; and each patch
    alone. Mutants that overlap need different builds."""
    builds = []
    for mutant in mutants:
        if mutant.patch:
            builds.append([mutant])
            continue
        for build in builds:
            if mutant.is_header == build[0].is_header and not any(other.patch or mutant.collides(other) for other in build):
                build.append(mutant)
                break
        else:
            builds.append([mutant])
    return sorted(builds, key=lambda build: (build[0].patch, build[0].is_header))


def plant(mutants):
    """Makes TREE a copy of this tree with the mutants. Unchanged files keep their times, for ninja."""
    names = run("git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard").stdout.split("\0")
    wanted = {TREE / "muo_mutant.h": (HEADER.encode(), 0o644)}
    for source in (ROOT / name for name in names if name and (ROOT / name).is_file()):
        name, content = source.relative_to(ROOT).as_posix(), source.read_bytes()
        here = sorted((one for one in mutants if one.file == name), key=lambda one: -one.begin)
        if here:
            text = content.decode()
            for one in here:
                text = text[:one.begin] + one.text() + text[one.end:]
            content = f'#include "{TREE}/muo_mutant.h"\n#line 1\n{text}'.encode()
        wanted[TREE / name] = content, source.stat().st_mode
    for target, (content, mode) in wanted.items():
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(mode)
    for path in TREE.rglob("*"):
        if path.is_file() and TREE / "build" not in path.parents and path not in wanted:
            path.unlink()


def build(mutants):
    plant(mutants)
    if not (BUILD / "build.ninja").is_file():
        configured = run("cmake", "--preset", "dev", "-DMUO_CUDA=OFF", "-DMUO_BENCH=OFF", "--log-level=WARNING", cwd=TREE)
        if configured.returncode != 0:
            sys.exit(configured.stdout + configured.stderr)
    programs = {test.split(" ")[0] for one in mutants for test in one.tests}
    targets = ["muograph", *(f"{program}_test" for program in programs)]
    if any(one.backend for one in mutants):
        targets.append("muograph_simt")
    if programs & {"ctest", "system"}:  # these start other programs
        targets = []
    built = run("ninja", "-C", BUILD, *targets)
    if built.returncode != 0:
        sys.exit("\n".join(built.stdout.splitlines()[-40:]))


def outcome(test, backend, number, limit):
    """Runs the test with this mutant (0: none). Returns the failure, empty if the test passes, and the seconds."""
    program, pattern = test.split(" ", 1)
    if program == "ctest":
        command = ["ctest", "--test-dir", BUILD, "--no-tests=error", "--output-on-failure", "-R", f"^{re.escape(pattern)}$"]
    else:
        command = [BUILD / f"{program}_test", f"--gtest_filter={pattern}", "--gtest_brief=1"]
    environment = {**os.environ, "MUO_MUTANT": str(number), "MUO_DRAW": "none",
                   "CUDA_STAND_IN_PATIENCE": "5"}
    if backend:
        environment["MUO_TEST_BACKEND"] = backend
    begin = time.monotonic()
    with subprocess.Popen([*map(str, command)], cwd=BUILD, env=environment, stdin=subprocess.DEVNULL, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            said = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"more than {limit:.0f} s", limit
    seconds = time.monotonic() - begin
    if process.returncode == 0:
        return ("no test ran" if number == 0 and "[  PASSED  ] 0 tests" in said else ""), seconds
    lines = [line for line in said.splitlines() if re.match(r"\[  FAILED  \] |CUDA stand-in|C\+\+ exc|.* waited", line)]
    return (lines or said.strip().splitlines() or ["no output"])[0][:160], seconds


def judge(mutants, report):
    """Runs the tests of the mutants of the current build: first without any mutant, then with each. Adds results to
    `report`. Returns the tests that fail without any mutant; their mutants are not judged."""
    clean, broken = {}, set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        pairs = sorted({(test, one.backend) for one in mutants for test in one.tests})
        patched = mutants[0].patch
        for pair, (failed, seconds) in zip(pairs, pool.map(lambda pair: ("", 60) if patched else outcome(*pair, 0, 900), pairs)):
            if failed:
                print(f"{pair[0]} fails without any mutant: {failed}", flush=True)
                broken.add(pair)
            clean[pair] = seconds

        def tried(one):
            return [outcome(test, one.backend, one.number, max(60, 10 * clean[test, one.backend])) for test in one.tests]

        judged = [one for one in mutants if not any((test, one.backend) in broken for test in one.tests)]
        for one, results in zip(judged, pool.map(tried, judged)):
            killed = all(failed for failed, _ in results)
            seconds = sum(taken for _, taken in results)
            said = "; ".join(f"{test}: {failed or 'PASSES'}" for test, (failed, _) in zip(one.tests, results))
            print(f"{'killed' if killed else 'ALIVE'} in {seconds:.0f} s: {one.name}: {said}", flush=True)
            report.append({"name": one.name, "file": one.file, "killed": killed, "seconds": round(seconds, 1),
                                     "by": one.tests, "survivor": bool(one.survives)})
    return broken


def draw(count, seed, since):
    """Draws lines of code at which to plant faults, half of them last changed after `since`."""
    files = run("git", "-C", ROOT, "ls-files", *ROOMS).stdout.split()
    lines = {True: [], False: []}
    for name in sorted(name for name in files if name.endswith((".cpp", ".h"))):
        blamed = run("git", "-C", ROOT, "blame", "-s", f"{since}..HEAD", "--", name).stdout.splitlines()
        for number, blame in enumerate(blamed, 1):
            text = re.sub(r"^\S+ +(\S+ +)?\d+\) ", "", blame).strip()
            # Statements that can be wrong: no declarations, directives, comments or single braces.
            if re.search(r"[-+*/<>=!&|?]|return|\d", text) and re.search(r"[;{]$", text) and not re.match(
                    r"//|#|using|namespace|template|class|struct|static_assert|virtual|friend|case|enum|\}|.*= (delete|default);", text):
                lines[not blame.startswith("^")].append(f"{name}:{number}: {text}")
    generator = random.Random(seed)
    for new, half in ((True, count - count // 2), (False, count // 2)):
        for line in generator.sample(lines[new], half):
            print(f"{'new' if new else 'old'} {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", help="mutants whose entry's file (mutants/NAME), name or source matches")
    parser.add_argument("--part", metavar="K/N", help="every Nth mutant, from the Kth on")
    parser.add_argument("--json", metavar="FILE", help="write results to FILE")
    parser.add_argument("--draw", metavar="N", type=int)
    parser.add_argument("--seed", metavar="S", type=int)
    parser.add_argument("--since", metavar="COMMIT", default="f36b209")
    given = parser.parse_args()
    if given.draw:
        if given.seed is None:
            parser.error("--draw needs --seed")
        return draw(given.draw, given.seed, given.since)
    begin = time.monotonic()
    mutants = read_mutants()
    if given.only:
        mutants = [one for one in mutants if re.search(given.only, one.key)]
    if given.part:
        part, parts = map(int, given.part.split("/"))
        mutants = mutants[part - 1::parts]
    equivalent = [one for one in mutants if one.equivalent]
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    left_out = [one for one in mutants if one.cpu and one.cpu not in flags]
    mutants = [one for one in mutants if not one.equivalent and one not in left_out]
    results, broken = [], set()

    def write():  # after every build, because a run takes an hour
        report = {"date": time.strftime("%Y-%m-%d"), "commit": run("git", "-C", ROOT, "rev-parse", "HEAD").stdout.strip()[:12],
                  "command": " ".join(["scripts/mutants.py", *sys.argv[1:]]), "cores": os.cpu_count(),
                  "seconds": round(time.monotonic() - begin), "killed": sum(one["killed"] for one in results),
                  "of": len(results), "not_yet": len(mutants) - len(results), "equivalent": len(equivalent),
                  "left_out": [one.name for one in left_out], "mutants": results}
        pathlib.Path(given.json).write_text(json.dumps(report, indent=1) + "\n")

    for batch in builds_of(mutants):
        build(batch)
        print(f"{len(batch)} mutants built, {time.monotonic() - begin:.0f} s so far", flush=True)
        broken |= judge(batch, results)
        if given.json:
            write()
    killed = [one for one in results if one["killed"]]
    revived = [one["name"] for one in killed if one["survivor"]]
    share = len(killed) / max(1, len(results))
    print(f"mutants: {len(killed)} of {len(results)} killed ({share:.0%}), {len(equivalent)} equivalent, "
          f"{time.monotonic() - begin:.0f} s")
    for one in left_out:
        print(f"left out, because this CPU has no {one.cpu}: {one.name}")
    for name in revived:
        print(f"killed, but marked as a survivor: {name}")
    return 1 if broken or revived or share < GOAL else 0


if __name__ == "__main__":
    sys.exit(main())
