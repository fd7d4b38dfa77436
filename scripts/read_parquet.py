#!/usr/bin/env python3
"""Prints a column of Parquet files as JSON Lines, one row group at a time: nanochat's data for muograph tokenize.
  scripts/read_parquet.py [--column text] FILE... | muograph tokenize - --tokenizer FILE --out DIR
The footers of all files are read before the first document is printed. If a file cannot be read, the output ends with a
line that is not JSON, so that a reader does not take it for complete. Needs: pip install pyarrow."""
import argparse
import json
import os
import sys

import pyarrow
import pyarrow.parquet


def fail(path, what):
    print(line := f"read_parquet.py: {path}: {what}", flush=True)
    sys.exit(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--column", default="text", help="a column of strings, printed as the field 'text'")
    arguments = parser.parse_args()
    for has_all_footers in (False, True):
        for path in arguments.files:
            try:
                with pyarrow.parquet.ParquetFile(path) as file:
                    if arguments.column not in file.schema_arrow.names:
                        fail(path, f"no column '{arguments.column}'; there are "
                                   f"{', '.join(file.schema_arrow.names)}: give --column")
                    for group in range(file.num_row_groups if has_all_footers else 0):
                        for text in file.read_row_group(group, [arguments.column])[arguments.column].to_pylist():
                            if text is not None:
                                print(json.dumps({"text": text}, ensure_ascii=False))
            except (OSError, pyarrow.ArrowException) as error:
                fail(path, error)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        main()
    except BrokenPipeError:  # the reader has exited and reports why
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
