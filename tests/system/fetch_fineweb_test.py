#!/usr/bin/env python3
"""Tests `scripts/fetch_fineweb.sh` with a local server that has small shards and breaks connections.
    tests/system/fetch_fineweb_test.py"""
import hashlib
import http.server
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/fetch_fineweb.sh"
TOKENS = 100_000
VAL, TRAIN = "fineweb_val_000000.bin", "fineweb_train_000001.bin"
SENT_BEFORE_A_BREAK = 30_000


def shard(seed, magic=20240520, tokens=TOKENS):
    ids = bytes((i * seed) % 251 for i in range(TOKENS))
    return struct.pack("<256i", magic, 1, tokens, *[0] * 253) + ids * 2


class Mirror(http.server.ThreadingHTTPServer):
    """Serves `files` by name. Options: `tells`: sends SHA-256 like Hugging Face; `breaks`: number of connections to
    break; `ranges`: whether partial requests are supported; `fails`: a status to answer with; `redirects`: redirects
    like Hugging Face, to an address that rejects HEAD."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {VAL: shard(3), TRAIN: shard(5)}
        self.tells, self.breaks, self.ranges, self.asked = {}, 0, True, []
        self.fails, self.redirects = None, False
        self.sent_before_a_break = SENT_BEFORE_A_BREAK
        self.daemon_threads = True
        threading.Thread(target=self.serve_forever, args=[0.01], daemon=True).start()


class Answer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, with_body):
        name, mirror = self.path.rsplit("/", 1)[1], self.server
        wanted = self.headers.get("Range")
        mirror.asked.append((self.command, name, wanted))
        if mirror.fails or name not in mirror.files:
            self.send_error(mirror.fails or 404)
            return
        if mirror.redirects and not self.path.startswith("/elsewhere"):
            self.send_response(302)
            self.send_header("Location", f"/elsewhere/{name}")
            self.send_header("X-Linked-Size", str(len(mirror.files[name])))
            self.send_header("X-Linked-Etag", f'"{mirror.tells[name]}"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if mirror.redirects and not with_body:
            self.send_error(403)
            return
        body, start = mirror.files[name], 0
        if wanted and mirror.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        if name in mirror.tells:
            self.send_header("X-Linked-Etag", f'"{mirror.tells[name]}"')
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if not with_body:
            return
        body = body[start:]
        if name.endswith(".bin") and mirror.breaks > 0:
            mirror.breaks -= 1
            body = body[:mirror.sent_before_a_break]
        self.wfile.write(body)


class FetchFineweb(unittest.TestCase):
    without = "wget"  # the client to hide

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.shards = self.folder / "shards"
        self.mirror = Mirror()
        self.addCleanup(self.mirror.server_close)
        self.addCleanup(self.mirror.shutdown)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name in ("bash", "cat", "curl", "df", "env", "flock", "grep", "head", "mkdir", "mktemp", "mv", "numfmt",
                     "od", "rm", "sed", "sha256sum", "stat", "sync", "tail", "tr", "wget"):
            if name != self.without and (path := shutil.which(name)):
                (self.bin / name).symlink_to(path)

    def command(self, name, text):
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.bin / name).chmod(0o755)

    def fetch(self, *options, before="", code=0):
        """Runs the script and returns its output. `before`: commands of the shell that starts it."""
        words = [SCRIPT, "--shards", "1", "--dir", self.shards, "--from",
                 f"http://127.0.0.1:{self.mirror.server_port}/some/folder", *options]
        run = subprocess.run(["/bin/bash", "-c", before + 'exec "$@"', "-", *map(str, words)], cwd=self.folder,
                             env={"PATH": str(self.bin), "TMPDIR": str(self.folder), "no_proxy": "127.0.0.1"},
                             text=True, capture_output=True, stdin=subprocess.DEVNULL)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        if code:
            self.assertEqual(run.stderr.count("fetch_fineweb.sh: "), 1, run.stderr)
        return run.stdout + run.stderr

    def expect_whole(self, *names):
        for name in names or (VAL, TRAIN):
            self.assertEqual((self.shards / name).read_bytes(), self.mirror.files[name])
        self.assertEqual({file.name for file in self.shards.iterdir()}, {".lock", *(names or (VAL, TRAIN))})

    def expect_nothing(self, name=VAL):
        self.assertFalse((self.shards / name).exists())

    def asked_for_parts(self):
        return [wanted for what, _, wanted in self.mirror.asked if what == "GET" and wanted]

    def test_shards_are_fetched_once(self):
        said = self.fetch()
        self.expect_whole()
        self.assertIn(f"shards/{VAL}: 100000 tokens, size as in its header; SHA-256 unknown", said)
        self.mirror.asked.clear()
        self.assertEqual(self.fetch(), "")
        self.assertEqual(self.mirror.asked, [])

    def test_sums_are_compared_as_hugging_face_or_a_mirror_tells_them(self):
        self.mirror.tells[VAL] = hashlib.sha256(self.mirror.files[VAL]).hexdigest()
        self.mirror.files["SHA256SUMS"] = b"%s  %s\n" % (
            hashlib.sha256(self.mirror.files[TRAIN]).hexdigest().encode(), TRAIN.encode())
        said = self.fetch()
        self.assertIn(f"{VAL}: 100000 tokens, SHA-256 verified (server)", said)
        self.assertIn(f"{TRAIN}: 100000 tokens, SHA-256 verified (SHA256SUMS)", said)
        self.expect_whole()

    def test_another_sum_is_refused_and_the_file_removed(self):
        self.mirror.tells[VAL] = "0123456789abcdef" * 4
        is_ = hashlib.sha256(self.mirror.files[VAL]).hexdigest()
        self.assertIn(f"{VAL}: its SHA-256 is {is_}, expected {'0123456789abcdef' * 4} (server): removed; call again",
                      self.fetch(code=3))
        self.assertEqual([file.name for file in self.shards.iterdir()], [".lock"])
        del self.mirror.tells[VAL]
        self.mirror.files["SHA256SUMS"] = f"{'a' * 64}  {TRAIN}\n".encode()
        self.assertIn(f"expected {'a' * 64} (SHA256SUMS)", self.fetch(code=3))
        self.expect_whole(VAL)

    def test_a_broken_connection_is_resumed(self):
        self.mirror.breaks = 2
        self.fetch()
        self.expect_whole()
        self.assertEqual(self.asked_for_parts(), ["bytes=30000-", "bytes=60000-"])

    def test_repeatedly_broken_connections_are_named_and_the_next_call_continues(self):
        self.mirror.breaks = 100
        self.assertRegex(self.fetch(code=3), rf"{VAL}: the connection broke after 120000 bytes of 201024: call again")
        self.expect_nothing()
        self.mirror.breaks = 0
        self.mirror.asked.clear()
        self.fetch()
        self.assertEqual(self.asked_for_parts(), ["bytes=120000-"])
        self.expect_whole()

    def test_a_server_that_sends_whole_files_only(self):
        self.mirror.breaks, self.mirror.ranges = 1, False
        self.fetch()
        self.expect_whole()

    def test_a_disk_that_is_full_is_named_before_and_while_it_fills(self):
        self.command("df", "echo Avail; echo 100000")
        self.assertIn(f"shards: {VAL} needs 202KB, but 100KB are free: make room or give another --dir",
                      self.fetch(code=3).replace("kB", "KB"))  # coreutils before 9.5 prints KB
        self.assertNotIn("GET", [what for what, name, _ in self.mirror.asked if name == VAL])
        self.command("df", "echo Avail; echo 1000000000")
        said = self.fetch(before="trap '' XFSZ; ulimit -f 100; ", code=3)
        self.assertRegex(said, rf"\.{VAL}\.part: cannot write after \d+ bytes .*: is the disk full\? make room")
        self.expect_nothing()
        self.assertGreater((self.shards / f".{VAL}.part").stat().st_size, 50_000)
        self.fetch()
        self.assertRegex(self.asked_for_parts()[0], r"bytes=\d{5,6}-")
        self.expect_whole()

    def test_what_is_no_shard_is_refused(self):
        self.mirror.files[VAL] = b"<html>Please sign in</html>" * 100
        self.assertIn("not a token shard: it begins with ", self.fetch(code=3))
        self.mirror.files[VAL] = shard(3, tokens=TOKENS + 1)
        self.assertIn("201024 bytes, but its header says 201026: removed", self.fetch(code=3))
        self.assertEqual([file.name for file in self.shards.iterdir()], [".lock"])
        (self.shards / VAL).write_bytes(shard(3)[:-2])
        self.assertIn(f"shards/{VAL}: 201022 bytes, but its header says 201024: remove it", self.fetch(code=3))

    def test_a_shard_that_is_not_there_is_named(self):
        self.assertRegex(self.fetch("--shards", "2", code=3),
                         r"folder/fineweb_train_000002.bin: .*404.*whether it has 2 shards")
        self.expect_whole()

    def test_connections_that_break_at_once_are_tried_again(self):
        self.mirror.breaks, self.mirror.sent_before_a_break = 3, 0
        self.fetch()
        self.expect_whole()

    def test_a_server_that_is_overloaded_is_asked_again(self):
        self.mirror.fails = 503
        self.assertRegex(self.fetch(code=3), rf"folder/{VAL}: .*503.*: call again to continue from there")

    def test_redirections_keep_what_hugging_face_tells(self):
        self.mirror.redirects = True
        self.mirror.tells = {name: hashlib.sha256(file).hexdigest() for name, file in self.mirror.files.items()}
        self.assertEqual(self.fetch().count("SHA-256 verified (server)"), 2)
        self.expect_whole()
        (self.shards / TRAIN).unlink()
        self.mirror.tells[TRAIN] = "b" * 64
        self.assertIn(f"expected {'b' * 64} (server): removed", self.fetch(code=3))
        (self.shards / VAL).unlink()
        self.command("df", "echo Avail; echo 100000")
        self.assertIn(f"{VAL} needs 20", self.fetch(code=3))

    def test_no_server_answers(self):
        said = self.fetch("--from", "http://127.0.0.1:9", code=3)
        self.assertRegex(said, r"127.0.0.1:9/fineweb_val_000000.bin: .*: call again to continue from there")

    def test_two_calls_at_a_time_do_not_write_the_same_file(self):
        self.shards.mkdir()
        with subprocess.Popen(["flock", self.shards / ".lock", "sh", "-c", "echo; read line"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            self.assertIn("another call is writing to it", self.fetch(code=3))
            other.communicate(b"\n")

    def test_options(self):
        for options, why in [(["--shards", "1031"], "--shards 1031: give 0"), (["--shards", "x"], "--shards x: give 0"),
                             (["--dir"], "--dir needs a value"), (["--shard", "1"], "unknown option '--shard'")]:
            self.assertIn(why, self.fetch(*options, code=2))
        self.assertEqual(self.mirror.asked, [])
        self.fetch("--shards", "0")
        self.expect_whole(VAL)


@unittest.skipUnless(shutil.which("wget"), "no wget here")
class FetchFinewebByWget(FetchFineweb):
    without = "curl"
    # Not run again with this client.
    test_options = test_two_calls_at_a_time_do_not_write_the_same_file = None
    test_what_is_no_shard_is_refused = test_shards_are_fetched_once = None
    test_another_sum_is_refused_and_the_file_removed = test_a_broken_connection_is_resumed = None


if __name__ == "__main__":
    if not shutil.which("curl"):
        del FetchFineweb
    unittest.main()
