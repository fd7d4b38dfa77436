#!/usr/bin/env python3
"""Tests `scripts/convert_nanochat.py` with stand-ins for PyTorch and safetensors that only load and save.
    tests/system/convert_nanochat_test.py"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/convert_nanochat.py"
PACKAGES = {
    "torch.py": "float32 = bfloat16 = None\ndef load(path, **words): return {}\ndef save(state, path): open(path, 'w')\n",
    "safetensors/__init__.py": "",
    "safetensors/torch.py": "def save_file(state, path, **words): open(path, 'w')\ndef load_file(path): return {}\n",
}
META = '{"step": 7, "min_val_bpb": Infinity}'


class Convert(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        for name, text in PACKAGES.items():
            (self.path / "packages" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / "packages" / name).write_text(text)
        for name in ("from", "to"):
            (self.path / name).mkdir()
        (self.path / "from/model_000007.pt").touch()
        (self.path / "from/meta_000007.json").write_text(META)

    def convert(self, source, target):
        return subprocess.run([sys.executable, SCRIPT, source, target], cwd=self.path, text=True, capture_output=True,
                              env={**os.environ, "PYTHONPATH": str(self.path / "packages")})

    def test_copies_the_meta_in_both_directions(self):
        done = self.convert("from/model_000007.pt", "to/model_000007.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.path / "to/meta_000007.json").read_text(), META)
        self.assertIn("to/meta_000007.json: copied from from/meta_000007.json", done.stdout)
        done = self.convert("to/model_000007.safetensors", "to/model_000008.pt")
        self.assertEqual((self.path / "to/meta_000008.json").read_text(), META)

    def test_leaves_a_meta_that_is_there(self):
        done = self.convert("from/model_000007.pt", "from/model_000007.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("meta", done.stdout)
        (self.path / "to/meta_000007.json").write_text("{}")
        done = self.convert("from/model_000007.pt", "to/model_000007.safetensors")
        self.assertEqual(done.returncode, 2)
        self.assertIn("to/meta_000007.json exists and is not from/meta_000007.json", done.stderr)
        self.assertFalse((self.path / "to/model_000007.safetensors").exists())
        self.assertEqual((self.path / "to/meta_000007.json").read_text(), "{}")

    def test_says_where_there_is_none(self):
        done = self.convert("from/model_000007.pt", "to/weights.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no meta_*.json beside to/weights.safetensors", done.stdout)


if __name__ == "__main__":
    unittest.main()
