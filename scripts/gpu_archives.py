"""Writes the files that scripts/gpu_check.py returns from a call: at most 7 files of at most 15 MiB each. Every one of
them is complete whenever the call ends. scripts/gpu_results.py reads them."""
import io
import os
import tarfile

# Maximum size of a file; number of files besides callN.txt and callN.tar.gz.
ARCHIVE_BYTES, ARCHIVES = 15 << 20, 5
# Kept from either end of a log; maximum size of another file.
TEXT_BYTES, FILE_BYTES = 256 << 10, 4 << 20


def write_archive(target, members):
    """Archives (path or bytes, name) pairs and returns the size of the archive. Replaces an existing archive only if
    the new one is small enough."""
    part = target.with_name(target.name + ".part")
    with tarfile.open(part, "w:gz", compresslevel=5) as tar:
        for content, name in members:
            if isinstance(content, bytes):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                tar.add(content, name)
    size = part.stat().st_size
    if size <= ARCHIVE_BYTES:
        os.replace(part, target)
    else:
        part.unlink()
    return size


def size_of(content):
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def excerpt(path):
    with open(path, "rb") as file:
        begin = file.read(TEXT_BYTES)
        file.seek(-TEXT_BYTES, os.SEEK_END)
        return begin + b"\n[...]\n" + file.read()


class ResultFolder:
    """The folder `out`, which receives the files below `stages` of call number `call`."""

    def __init__(self, out, call, stages):
        self.out, self.call, self.stages = out, call, stages
        out.mkdir(parents=True, exist_ok=True)
        self.kept = set()  # archives with a single file

    def line(self, text):
        with open(self.out / f"call{self.call}.txt", "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def keep(self, path, stage):
        """Writes a large file to a separate archive. Returns the archive's name, or why the file was left behind."""
        name = f"call{self.call}_{stage}.tar.gz"
        if len(self.kept) == ARCHIVES or name in self.kept:
            return f"{path.name}: left behind, too many files"
        if write_archive(self.out / name, [(path, str(path.relative_to(self.stages)))]) > ARCHIVE_BYTES:
            return f"{path.name}: left behind, {path.stat().st_size / 2**20:.1f} MiB"
        self.kept.add(name)
        return f"{path.name}: in {name}"

    def save(self):
        """Writes everything so far to one archive: both ends of long logs, and of large files only their names."""
        members, dropped = [], []
        for path in sorted(self.stages.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            name, size = str(path.relative_to(self.stages)), path.stat().st_size
            if path.suffix == ".txt" and size > 2 * TEXT_BYTES:
                members.append((excerpt(path), name))
            elif size > FILE_BYTES:
                dropped.append(f"{name}: {size} bytes")
            else:  # read the whole file first: a running process may write to it
                members.append((path.read_bytes(), name))
        target = self.out / f"call{self.call}.tar.gz"
        while True:
            note = "".join(line + "\n" for line in dropped).encode()
            if write_archive(target, [*members, (note, "dropped.txt")]) <= ARCHIVE_BYTES:
                return
            largest = max(members, key=lambda member: size_of(member[0]))
            members.remove(largest)
            dropped.append(f"{largest[1]}: {size_of(largest[0])} bytes")
