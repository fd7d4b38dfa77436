"""The Python package of muograph: the command `muograph` runs main(), which executes the program in bin/."""
import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).resolve().parent / "bin" / "muograph"
    os.execv(program, [str(program), *sys.argv[1:]])
