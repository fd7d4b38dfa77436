#!/usr/bin/env python3
"""Tests that power_loss_test.py finds every fault and nothing else.      self_test.py PROGRAM RECORDER FOLDER"""
import itertools
import pathlib
import re
import sys
import tempfile
import unittest

import power_loss_test

# Saves twice, removes the first save and reports it; skips the actions that its arguments name.
SAVES = """
import os, shutil, sys
def sync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)
def does(what):
    return what not in sys.argv[1:]
goes_on = os.path.exists("saves")
os.makedirs("saves", exist_ok=True)
if does("sync the parent"): sync(".")
for i in range(max(map(int, filter(str.isdigit, os.listdir("saves"))), default=-1) + 1, 2):
    shutil.rmtree("saves/.new", ignore_errors=True)
    about = "saves/about.tmp" if does("replace") else "saves/about"
    with open(about, "w") as file: file.write("about")
    sync(about)
    if does("replace"): os.rename(about, "saves/about")
    os.mkdir("saves/.new")
    with open("saves/.new/text", "w") as file: file.write((str(i) if does("end alike") or not goes_on else "x") * 2000)
    if does("sync the file"): sync("saves/.new/text")
    if does("sync its folder"): sync("saves/.new")
    os.rename("saves/.new", f"saves/{i}")
    if does("sync the name"): sync("saves")
    os.write(1, b"saved %d." % i)
    if i == 1 and os.path.exists("saves/0"):
        os.rename("saves/0", "saves/.old")
        if does("sync before it removes"): sync("saves")
        shutil.rmtree("saves/.old")
if does("go on"): sys.exit()
sys.exit("was done" if os.path.exists("done") else open("done", "w").close())
"""
# Makes every call that recorder.cpp intercepts, by both names if libc has two.
CALLS = """
import ctypes, os, shutil
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    done = getattr(libc, name)(*(a.encode() if isinstance(a, str) else a for a in arguments))
    assert done not in (-1, 0) if name.startswith("fopen") else done >= 0, (name, os.strerror(ctypes.get_errno()))
    return done
libc.fopen.restype = libc.fopen64.restype = ctypes.c_void_p
libc.fclose.argtypes = [ctypes.c_void_p]
size = ctypes.c_int64
here, new = os.open(".", os.O_RDONLY), os.O_WRONLY | os.O_CREAT
for wide in ("", "64"):
    name = "file" + wide
    file = call("open" + wide, name, new, 0o644)
    call("write", file, "abcdef", 6)
    call("pwrite" + wide, file, "XY", 2, size(10))
    os.writev(file, [b"12", b"345"])
    os.pwritev(file, [b"6", b"78"], 30)
    call("pwritev" + wide, file, (ctypes.c_char_p * 2)(b"9", 1), 1, size(33))
    call("ftruncate" + wide, file, size(40))
    call("fallocate" + wide, file, 0, size(0), size(60))
    call("posix_fallocate" + wide, file, size(0), size(70))
    os.lseek(file, 3, os.SEEK_SET)
    call("write", file, "!", 1)
    for sync in ("fsync", "fdatasync", "syncfs"): call(sync, file)
    call("truncate" + wide, name, size(66))
    call("openat" + wide, here, name + "at", new, 0o644)
    call("creat" + wide, name + "c", 0o644)
    call("__open" + wide + "_2", name, os.O_WRONLY)
    call("__openat" + wide + "_2", here, name, os.O_WRONLY)
    libc.fclose(call("fopen" + wide, name + "f", "w"))
    libc.fclose(call("fopen" + wide, name + "a", "ae"))
with open("append", "a") as file: file.write("one")
with open("append", "a") as file: file.write("two")
libc.sync()
call("mkdir", "a", 0o755), call("mkdirat", here, "a/b", 0o755), call("mkdir", "c/", 0o755)
call("rename", "file", "a/b/file"), call("renameat", here, "filec", here, "a/c")
call("renameat2", here, "a/b", here, "c", 2), call("renameat2", here, "append", here, "c/append", 1)
call("link", "a/c", "hard"), call("linkat", here, "a/c", here, "hard2", 0)
os.symlink("a", "soft"), os.symlink("b", "soft2", dir_fd=here)
call("unlink", "hard"), call("unlinkat", here, "file64", 0), call("remove", "filea")
os.mkdir("d"), os.mkdir("e"), call("rmdir", "d"), call("remove", "e")
os.makedirs("f/g/h"), os.mkdir("f/g/i"), shutil.rmtree("f")
os.chdir("a"), os.mkdir("../c/k"), os.rename("../soft2", "j")
"""
UNSEEN = """
import ctypes
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b"file", b"w"))
libc.fputs(b"by a call inside libc", file)
libc.fclose(file)
"""


class Saves(power_loss_test.Case):
    name = "saves"

    def __init__(self, *left_out):
        self.left_out = left_out

    def command(self, _):
        return [sys.executable, "-IS", "-c", SAVES, *self.left_out]

    def reports(self, now):
        return max(map(int, re.findall(rb"saved (\d)", now.said[""])), default=-1) + 1

    def missing(self, now, tree):
        if (saves := self.reports(now)) and not power_loss_test.item_of(tree, f"saves/{saves - 1}"):
            yield f"saves/{saves - 1}: was reported"

    def result(self, folder):
        return {name: (folder / "saves" / name).read_text() for name in ("1/text", "about")}


class SelfTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def search(self, *left_out):
        return power_loss_test.Search(recorder, Saves(*left_out), self.folder / "saves", 1)

    def test_nothing_is_wrong_with_a_program_that_syncs(self):
        self.assertEqual(self.search().states(40), [])

    def test_what_a_program_leaves_out_is_found(self):
        for left_out, fault in (("sync the parent", "was reported"),
                                ("sync the file", "was complete when renamed"),
                                ("sync its folder", "was complete when renamed"),
                                ("sync before it removes", "was complete when renamed"),
                                ("sync the name", "was reported"), ("replace", "are truncated in place"),
                                ("go on", "refused"), ("end alike", "not as in the undisturbed run")):
            with self.subTest(left_out):
                search = self.search(left_out)
                states = (search.judge(*search.draw(number)[-1]) for number in range(300))
                faults = itertools.chain(search.shown.values(), itertools.chain.from_iterable(states))
                self.assertTrue(any(fault in found for found in faults))

    def record(self, program):
        return power_loss_test.record(recorder, [sys.executable, "-IS", "-c", program], self.folder / "calls")

    def test_every_call_is_recorded(self):
        records, faults = self.record(CALLS)  # also compares the folder with the log
        self.assertEqual(faults, [])
        self.assertEqual(sum(record[0] == "sync" for record in records), 4)
        self.assertEqual(sum(record[0] == "sync_all" for record in records), 3)

    def test_a_call_that_is_not_recorded_is_noticed(self):
        with self.assertRaisesRegex(RuntimeError, "lacks a call"):
            self.record(UNSEEN)


if __name__ == "__main__":
    recorder = pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1])
