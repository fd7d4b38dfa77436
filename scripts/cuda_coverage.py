#!/usr/bin/env python3
"""Reports by file which lines of the CUDA plug-in the tests execute: builds the SIMT tier with coverage counters in
build/coverage, runs the tests on it and adds up the counts.
  scripts/cuda_coverage.py [-R TESTS]"""
import argparse
import collections
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/coverage"
ROOMS = ("src/runtime/cuda/", "src/kernels/cuda/")
# One order of kernels is enough, and tests that start the program many times add no coverage.
TESTS = r"^simt[.](kernels[.](seq|attention)|models|extras|every)|^(contract|runtime)[.].*[Ss]imt|DeviceStep|NcclStep" \
        r"|^system[.](DeviceTraining|Bench|Gpus)|^(trainer|kit|cli)[.].*(Simt|Backend|Gpu)"


def run(*command):
    subprocess.run([*map(str, command)], cwd=ROOT, check=True, stdout=sys.stderr)


def counted():
    """Returns {file: {line: count}} for the two rooms."""
    lines = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as folder:
        notes = [str(path) for path in BUILD.rglob("*.gcda")]
        subprocess.run(["gcov", "--json-format", "--preserve-paths", *notes], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        for report in pathlib.Path(folder).glob("*.gcov.json.gz"):
            for file in json.loads(gzip.decompress(report.read_bytes()))["files"]:
                path = (BUILD / file["file"]).resolve()
                name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
                for line in file["lines"] if name.startswith(ROOMS) else ():
                    lines[name][line["line_number"]] += line["count"]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-R", dest="tests", default=TESTS, help="regular expression for ctest that selects the tests")
    tests = parser.parse_args().tests
    run("cmake", "--preset", "dev", "-B", BUILD, "-DMUO_COVERAGE=ON", "--log-level=WARNING")
    run("cmake", "--build", BUILD)
    for old in BUILD.rglob("*.gcda"):
        old.unlink()
    run("ctest", "--test-dir", BUILD, "-R", tests, "-j2", "--output-on-failure", "--progress")
    lines = counted()
    total = collections.Counter()
    for name in sorted(lines):
        all_, hit = len(lines[name]), sum(count > 0 for count in lines[name].values())
        room = next(room for room in ROOMS if name.startswith(room))
        total[room, "all"] += all_
        total[room, "hit"] += hit
        missed = " ".join(str(n) for n in sorted(lines[name]) if lines[name][n] == 0)
        print(f"{100 * hit / all_:6.1f}%  {hit:5d} of {all_:5d}  {name}" + (f"  not: {missed}" if missed else ""))
    for room in ROOMS:
        hit, all_ = total[room, "hit"], total[room, "all"]
        print(f"{100 * hit / max(all_, 1):6.1f}%  {hit:5d} of {all_:5d}  all of {room}")


if __name__ == "__main__":
    main()
