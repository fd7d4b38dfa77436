"""The Python package of muograph: `muograph` on PATH is main(), which becomes the program in bin/."""
import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).resolve().parent / "bin" / "muograph"
    os.execv(program, [str(program), *sys.argv[1:]])
