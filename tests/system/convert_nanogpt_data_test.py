#!/usr/bin/env python3
"""Tests that shards of `scripts/convert_nanogpt_data.py` have the ids of nanoGPT's files.
    tests/system/convert_nanogpt_data_test.py"""
import array
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))
import convert_nanogpt_data  # noqa: E402


class Convert(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        convert_nanogpt_data.SHARD_TOKENS = 4

    def shards(self, ids):
        file = self.path / "val.bin"
        file.write_bytes(array.array("H", ids).tobytes())
        convert_nanogpt_data.convert(file, self.path, (50256).to_bytes(2, "little"))
        out = []
        for shard in range(len(list(self.path.glob("val_*.bin")))):
            data = (self.path / f"val_{shard:06}.bin").read_bytes()
            header = array.array("i", data[:1024])
            out.append(array.array("H", data[1024:]).tolist())
            self.assertEqual(header[:3].tolist(), [20240520, 1, len(out[-1])])
        return out

    def test_documents_begin_with_what_ended_them(self):
        self.assertEqual(self.shards([1, 2, 50256, 3, 4, 65535, 50256, 5, 50256]),
                         [[50256, 1, 2, 50256], [3, 4, 65535, 50256], [5]])

    def test_ids_without_documents_stay_as_they_are(self):
        for ids in ([1, 50256, 3, 4], [50256, 1, 50256]):
            self.assertEqual(self.shards(ids), [ids])
            (self.path / "val_000000.bin").unlink()

    def test_refuses_what_is_something_else(self):
        file = self.path / "x.bin"
        for data in (b"", b"123", (20240520).to_bytes(4, "little") + b"12"):
            file.write_bytes(data)
            with self.assertRaisesRegex(SystemExit, "x.bin"):
                convert_nanogpt_data.check(file)


if __name__ == "__main__":
    unittest.main()
