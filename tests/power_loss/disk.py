"""Computes possible states of a disk after a power failure, from the log of recorder.cpp.

The model guarantees what POSIX guarantees, which is less than ext4 does:
  - Durable are a file's bytes as of its last sync, and a folder's entries as of the folder's last sync. fsync of a
    new file does not make its name durable, and fsync of a folder does not sync the bytes of its files.
  - Every later change is kept or lost independently of all others: each write, each change of a file's size, each
    entry added or removed. A write may also be kept partially, or only as a size: zeros where the file grew. A rename
    is kept or lost as a whole.
"""
import collections
import os
import pathlib

EXCHANGE = 2  # RENAME_EXCHANGE


def is_temporary(path):
    """True for names that no program looks for, so that their contents do not matter."""
    return any(".tmp" in part or part.startswith(".") for part in path.split("/")) or path.endswith(".lock")


def read_log(path):
    """Records as (name, number, number, bytes, bytes)."""
    data, at, records = pathlib.Path(path).read_bytes(), 0, []
    while at < len(data):
        end = data.index(b"\n", at)
        name, *numbers = data[at:end].decode().split(" ")
        first, second, size, other = map(int, numbers)
        middle, at = end + 1 + size, end + 1 + size + other
        records.append((name, first, second, data[end + 1:middle], data[middle:at]))
    return records


class Node:
    def __init__(self, path):
        self.path = path
        self.published = []  # its contents at each rename to its final name


class Link(Node):
    def __init__(self, path, target):
        super().__init__(path)
        self.target = target

    def now(self):
        return self.target

    def after(self, _):
        return self.target


class File(Node):
    def __init__(self, path):
        super().__init__(path)
        self.durable, self.data, self.pending = b"", bytearray(), []

    def now(self):
        return bytes(self.data)

    @staticmethod
    def change(data, operation, offset, new):
        if operation == "size":
            del data[offset:]
        data.extend(bytes(max(0, offset - len(data))))
        data[offset:offset + len(new)] = new

    def after(self, fates):
        data = bytearray(self.durable)
        for number, operation, offset, new in self.pending:
            fate = fates.get(number, 1)
            if fate == 1:
                self.change(data, operation, offset, new)
            elif operation == "write" and fate > 0.5:  # a part of the write
                self.change(data, operation, offset, new[:int((fate - 0.5) * 2 * len(new))])
            elif operation == "write" and fate > 0:  # only the size
                self.change(data, "allocate", offset + len(new), b"")
        return bytes(data)


class Folder(Node):
    def __init__(self, path):
        super().__init__(path)
        self.entries, self.durable = {}, {}

    def now(self):
        return {name: node.now() for name, node in self.entries.items()}


class Disk:
    """The folder after the records so far: as programs see it and as it is on disk."""

    def __init__(self):
        self.root = None
        self.nodes = {}  # by inode, which a later file may reuse
        self.all = []  # nodes
        # Changes of entries that are not durable yet: (number, [(folder, name, node)]).
        self.changes = []
        # Output, by the path of an output.log; "": standard output.
        self.said = collections.defaultdict(bytes)
        self.count = 0
        self.faults = []  # actions that are faults whatever is lost

    @classmethod
    def after(cls, records):
        now = cls()
        for record in records:
            now.apply(record)
        return now

    def new(self, inode, node):
        self.nodes[inode] = node
        self.all.append(node)
        return node

    def find(self, path):
        node = self.root
        for part in filter(None, path.split("/")):
            node = node.entries.get(part) if isinstance(node, Folder) else None
        return node

    def place(self, path):
        folder, _, name = path.rpartition("/")
        return self.find(folder), name

    def set(self, *entries):
        """Changes these entries atomically."""
        for folder, name, node in entries:
            if node is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = node
        self.changes.append((self.count, entries))

    def emptied(self, file):
        if file.data and not is_temporary(file.path):
            self.faults.append(f"{file.path}: {len(file.data)} bytes are truncated in place: a crash loses them")

    def apply(self, record):
        name, first, second, text, other = record
        self.count += 1
        if name == "say":
            self.said[""] += text
        elif name == "write":
            if (file := self.nodes[first]).path.endswith("output.log"):
                self.said[file.path] += text
            self.change(file, "write", second, text)
        elif name in ("size", "allocate"):
            if name == "size":
                self.nodes[first].published.clear()  # shortened on purpose
                if second == 0:
                    self.emptied(self.nodes[first])
            self.change(self.nodes[first], name, second, b"")
        elif name == "sync":
            self.sync(self.nodes[first])
        elif name == "sync_all":
            for node in self.all:
                self.sync(node)
        elif name == "root":
            if self.root is None:
                self.root = self.new(first, Folder(""))
        else:
            getattr(self, name)(text.decode(), other.decode(), first, second)

    def change(self, file, *how):
        file.change(file.data, *how)
        file.pending.append((self.count, *how))

    def sync(self, node):
        if isinstance(node, File):
            node.durable, node.pending = bytes(node.data), []
            return
        stays = []
        for number, entries in self.changes:
            if not any(folder is node for folder, _, _ in entries):
                stays.append((number, entries))
                continue
            for folder, name, entry in entries:
                folder.durable[name] = entry
        self.changes = stays

    def open(self, path, _, inode, truncated):
        folder, name = self.place(path)
        if name not in folder.entries:
            self.set((folder, name, self.new(inode, File(path))))
        elif truncated:
            self.emptied(self.nodes[inode])
            self.change(self.nodes[inode], "size", 0, b"")

    def mkdir(self, path, _, inode, __):
        self.set((*self.place(path), self.new(inode, Folder(path))))

    def link(self, path, _, inode, __):
        self.set((*self.place(path), self.nodes[inode]))

    def symlink(self, path, target, *_):
        self.set((*self.place(path), Link(path, target)))

    def remove(self, path, *_):
        self.set((*self.place(path), None))

    def rename(self, old, new, flags, _):
        if not old or not new:
            raise ValueError(f"'{old}' renamed to '{new}': one of them is not below the recorded folder")
        node, replaced = self.find(old), self.find(new)
        self.set((*self.place(old), replaced if flags & EXCHANGE else None), (*self.place(new), node))
        for moved, path in ((node, new), *(((replaced, old),) if flags & EXCHANGE else ())):
            moved.path = path
            if not is_temporary(path):
                moved.published.append(moved.now())

    def pending(self):
        """The numbers of the records that a crash could lose now."""
        return {number for number, _ in self.changes} | {
            change[0] for node in self.all if isinstance(node, File) for change in node.pending}

    def crash(self, fates):
        """Returns the tree that a crash now leaves (bytes for files, dictionaries for folders), and faults: files that
        were renamed into place but are incomplete. `fates` maps pending records to their fate: 1 (default) kept;
        above 0.5 a part of it; above 0 only its size; 0 lost. Entries are kept or lost."""
        entries = {id(node): dict(node.durable) for node in self.all if isinstance(node, Folder)}
        for number, changes in self.changes:
            if fates.get(number, 1) == 1:
                for folder, name, node in changes:
                    entries[id(folder)][name] = node
        faults = []

        def contents(node, path):
            if not isinstance(node, Folder):
                found = node.after(fates)
            else:
                found = {name: contents(child, f"{path}/{name}".lstrip("/"))
                         for name, child in sorted(entries[id(node)].items()) if child is not None}
            whole = [found[:len(was)] == was if isinstance(found, bytes) else found == was  # a file may have grown since
                     for was in node.published]
            if whole and not any(whole) and not is_temporary(path):
                faults.append(f"{path}: was complete when renamed into place, and is not now")
            return found

        return contents(self.root, ""), faults


def write_tree(tree, path):
    path.mkdir(parents=True)
    for name, item in tree.items():
        if isinstance(item, dict):
            write_tree(item, path / name)
        elif isinstance(item, str):
            os.symlink(item, path / name)
        else:
            (path / name).write_bytes(item)


def read_tree(path):
    return {item.name: os.readlink(item) if item.is_symlink() else read_tree(item) if item.is_dir()
            else item.read_bytes() for item in path.iterdir()}


def describe(records):
    """Describes the last record."""
    name, first, second, text, other = records[-1]
    if name not in ("write", "size", "allocate"):
        return " ".join(filter(None, (name, text.decode(), other.decode())))
    return f"{name} {second}{f' + {len(text)}' if text else ''} of {Disk.after(records).nodes[first].path}"
