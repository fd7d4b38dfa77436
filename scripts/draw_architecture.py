#!/usr/bin/env python3
"""Draws docs/architecture.svg: the rooms in the order of scripts/check_layers.py, and a captured step.

  scripts/draw_architecture.py            writes the file
  scripts/draw_architecture.py --check    exits with 1 if the file is not up to date
Standard library only.
"""
import html
import pathlib
import sys
import textwrap

from check_layers import ROOMS

OUT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "architecture.svg"
WIDTH, HEIGHT, MARGIN, GAP = 1120, 966, 20, 8

# The columns of each room, out of twelve. The rows follow from ROOMS; levels() compares the result with it.
COLUMNS = {"cli": (0, 12), "kit": (0, 12), "trainer": (0, 12), "graphs": (0, 9), "model": (0, 4.5),
           "optim": (4.5, 9), "kernels": (0, 9),
           "data": (9, 12), "runtime": (0, 12), "base": (0, 12)}
HOLDS = {"cli": ["the program and its commands"], "kit": ["what reads, searches and explains runs"],
         "trainer": ["one training run"], "graphs": ["the captured training and evaluation steps, a rank's state"],
         "model": ["forward and backward, on streams"], "optim": ["sharding plan, sharded step, Muon, AdamW"],
         "kernels": ["an operation per header; host/ and cuda/ implement it"],
         "data": ["token files, sampler,", "a loader's thread"], "base": ["errors, dtypes, random numbers"],
         "runtime": ["devices, streams, graphs, ranks; host/ and cuda/ implement them"]}
WING_HOLDS = {"trainer/options": "option tables", "trainer/checkpoint": "run directory", "trainer/run": "decisions",
              "trainer/infer": "samples", "trainer/train": "the loop", "kit/sweep": "many runs", "kit/bench": "measured",
              "kit/plan": "predicted", "kit/report": "the page", "kit/export": "other formats",
              "runtime/memory": "arenas, memory plan", "runtime/comm": "communicators"}
FILL = {"cli": "#f7e3e3", "kit": "#f9ead9", "trainer": "#f3dcea", "graphs": "#ece3f5", "model": "#cfe3f7",
        "optim": "#f8dcb4", "kernels": "#d5ecd0",
        "data": "#e3eef0", "runtime": "#eceadb", "base": "#e8e8e8"}
ROW, ROOMS_TOP, LANE, BETWEEN, LANES_TOP = 56, 66, 40, 42, 668
LEFT, END = 104, 1027  # x of the beginning and end of the step
LANE_OF = {"compute": 0, "comm": 1, "update": 2}
SCHEDULE, FORWARD, BACKWARD, GATHER, REDUCE, UPDATE, COMMIT = (
    "#e8e8e8", "#cfe3f7", "#9fc5ec", "#d5ecd0", "#a6d49a", "#f8dcb4", "#f2b36b")
STEP = [  # stream, from, to, text, colour; ShardedStep and StepGraph::enqueue in the order of time
    ("compute", 104, 148, "begin", SCHEDULE), ("compute", 150, 196, "embed", FORWARD),
    ("compute", 196, 268, "0, 1", FORWARD), ("compute", 268, 340, "2, 3", FORWARD),
    ("compute", 340, 412, "head, loss", SCHEDULE), ("compute", 412, 512, "3', 2'", BACKWARD),
    ("compute", 512, 612, "1', 0'", BACKWARD), ("compute", 612, 664, "embed'", BACKWARD),
    ("compute", 858, 904, "agree", REDUCE), ("compute", 906, 966, "metrics", SCHEDULE),
    ("compute", 974, 1018, "count", SCHEDULE),
    ("comm", 110, 148, "emb", GATHER), ("comm", 150, 194, "0, 1", GATHER),
    ("comm", 196, 240, "2, 3", GATHER), ("comm", 242, 284, "head", GATHER),
    ("comm", 414, 458, "head", REDUCE), ("comm", 514, 566, "3, 2", REDUCE),
    ("comm", 614, 666, "1, 0", REDUCE), ("comm", 668, 708, "emb", REDUCE),
    ("comm", 796, 856, "totals", REDUCE),
    ("update", 460, 480, "‖g‖", UPDATE), ("update", 568, 664, "Muon 3, 2", UPDATE),
    ("update", 668, 764, "Muon 1, 0", UPDATE), ("update", 764, 784, "‖g‖", UPDATE),
    ("update", 906, 970, "commit", COMMIT),
]
NEXT = [("compute", 1030, 1072, "begin", SCHEDULE), ("compute", 1074, 1094, "…", FORWARD),
        ("comm", 1036, 1072, "emb", GATHER), ("comm", 1074, 1094, "…", GATHER)]
EVENTS = [  # (stream, x) for which another (stream, x) waits
    ("compute", 106, "comm", 114), ("comm", 148, "compute", 154), ("comm", 194, "compute", 202),
    ("comm", 240, "compute", 272), ("comm", 284, "compute", 344), ("compute", 412, "comm", 420),
    ("compute", 512, "comm", 520), ("compute", 612, "comm", 620), ("compute", 664, "comm", 674),
    ("comm", 458, "update", 464), ("comm", 566, "update", 574), ("comm", 666, "update", 674),
    ("comm", 708, "update", 770), ("compute", 664, "comm", 798), ("update", 784, "comm", 800),
    ("comm", 856, "compute", 862), ("compute", 904, "update", 912), ("update", 970, "compute", 980)]
CAPTIONS = [  # stream, x, anchor, y within the lane, lines
    ("compute", 268, "middle", -8, ["forward"]), ("compute", 538, "middle", -8, ["backward"]),
    ("comm", 197, "middle", LANE + 17, ["all-gather of weights"]),
    ("comm", 408, "end", 18, ["reduce-scatter", "of gradients"]), ("comm", 790, "end", 25, ["all-reduce"]),
    ("update", 454, "end", 18, ["each bucket: its norm; Muon's:", "Nesterov, Newton-Schulz"]),
    ("update", 900, "end", 18, ["weights, state;", "AdamW"])]
PER_STEP = "one CUDA graph per device, one launch per step (of up to 8 micro-steps)"
NOTES = """Boxes are buckets of parameters, here the embedding, blocks 0 to 3 in pairs, and the head. A prime marks
the backward pass; an arrow is an event that a stream waits for. The gathers fetch the weights that the previous step
committed (with --gather simple they follow the commit). Of several micro-steps the first waits for them and the last
reduces (with --shard gradients each does). Some strategies exchange Nesterov inputs and return updates on comm
between a reduction and the totals."""


def text(x, y, words, size=13, anchor="middle", weight="normal", colour="#222"):
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{colour}">{html.escape(words, quote=False)}</text>')


def box(x, y, width, height, fill, stroke="#777", dash=""):
    return (f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{fill}" '
            f'stroke="{stroke}"{dash}/>')


def arrow(x1, y1, x2, y2):
    return f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" stroke="#444" fill="none" marker-end="url(#head)"/>'


def law():
    """For each top-level room: the others that it, or one of its subfolders, may include; and its subfolders, in
    order."""
    names = [folder.removeprefix("src/") for folder in ROOMS]
    allowed = {name: set(rooms) for name, rooms in zip(names, ROOMS.values())}
    top = {name: name.split("/")[0] for name in names}
    may = {room: {top[b] for a in names if top[a] == room for b in allowed[a]} - {room} for room in COLUMNS}
    wings = {room: [n for n in names if n != room and top[n] == room] for room in COLUMNS}
    if set(top.values()) != set(COLUMNS):
        sys.exit("draw_architecture.py: its rooms are not those of check_layers.py")
    return may, wings, allowed


def levels(may):
    """The first and last row of each room, from the bottom: a room fills the free space below the rooms above it."""
    first = {}
    for _ in may:
        first = {room: 1 + max((first.get(r, 0) for r in may[room]), default=-1) for room in may}

    def above(room):
        return [r for r in may if first[r] > first[room] and COLUMNS[r][0] < COLUMNS[room][1]
                and COLUMNS[room][0] < COLUMNS[r][1]]

    below = {room: {r for r in may if room in above(r)} for room in may}
    for room in sorted(may, key=first.get):
        below[room] |= {deep for r in below[room] for deep in below[r]}
    if below != may:
        sys.exit("draw_architecture.py: the layout does not match the rules of check_layers.py: change COLUMNS")
    return {room: (first[room], min((first[r] for r in above(room)), default=first[room] + 1)) for room in may}


def draw_rooms():
    may, wings, allowed = law()
    rows = levels(may)
    count = max(last for _, last in rows.values())
    unit = (WIDTH - 2 * MARGIN + GAP) / 12
    for room, (begin, end) in COLUMNS.items():
        x, width = MARGIN + begin * unit, (end - begin) * unit - GAP
        y = ROOMS_TOP + (count - rows[room][1]) * (ROW + GAP)
        height = (rows[room][1] - rows[room][0]) * (ROW + GAP) - GAP
        yield box(x, y, width, height, FILL[room])
        folder = next(f for f in ROOMS if f.removeprefix("src/") == room)
        inner = wings[room]
        each = (width - 310) / max(len(inner), 4) - 12
        start = x + width - len(inner) * (each + 12) + 2
        middle = y + height / 2 + 3 - 8 * len(HOLDS[room])
        at = ((start if inner else x + width) + x) / 2
        yield text(at, middle, folder, 15, weight="bold")
        for i, line in enumerate(HOLDS[room]):
            yield text(at, middle + 20 + 16 * i, line)
        for i, wing in enumerate(inner):
            left = start + i * (each + 12)
            yield box(left, y + 7, each, height - 14, "white")
            yield text(left + each / 2, y + 25, wing.split("/")[-1] + "/", weight="bold")
            yield text(left + each / 2, y + 41, WING_HOLDS[wing], 12)
            if i > 0 and inner[i - 1] in allowed[wing]:
                yield arrow(left, y + height / 2, left - 11, y + height / 2)
            if i > 0 and wing in allowed[inner[i - 1]]:
                yield arrow(left - 12, y + height / 2, left - 1, y + height / 2)


def lane(stream):
    return LANES_TOP + LANE_OF[stream] * (LANE + BETWEEN)


def draw_step():
    for x, end, colour in ((LEFT - 8, END - 3, "#888"), (END + 3, WIDTH - MARGIN, "#bbb")):
        yield box(x, LANES_TOP - 26, end - x, 3 * LANE + 2 * BETWEEN + 40, "none", colour,
                  ' stroke-dasharray="5 4"')
    yield text(LEFT - 8, LANES_TOP - 34, PER_STEP, 12, "start", colour="#555")
    yield text(END + 3, LANES_TOP - 34, "next step", 12, "start", colour="#555")
    for stream in LANE_OF:
        y = lane(stream)
        yield text(LEFT - 16, y + 25, stream, 14, "end", "bold")
        yield f'<path d="M{LEFT - 4} {y + LANE + 1}H{WIDTH - MARGIN}" stroke="#ddd"/>'
    for boxes, opacity in ((STEP, 1), (NEXT, 0.5)):
        yield f'<g opacity="{opacity}">'
        for stream, begin, end, words, colour in boxes:
            yield box(begin, lane(stream), end - begin, LANE, colour, "white")
            yield text((begin + end) / 2, lane(stream) + 25, words, 10 if words == "‖g‖" else 12)
        yield "</g>"
    for source, x1, target, x2 in EVENTS:
        down = LANE_OF[source] < LANE_OF[target]
        yield arrow(x1, lane(source) + (LANE if down else 0), x2, lane(target) + (0 if down else LANE))
    for stream, x, anchor, y, lines in CAPTIONS:
        for i, line in enumerate(lines):
            yield text(x, lane(stream) + y + 15 * i, line, 12, anchor, colour="#555")


def drawing():
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="Helvetica, Arial, sans-serif">', 
             '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
             'orient="auto"><path d="M0 0L8 4L0 8z" fill="#444"/></marker></defs>',
             box(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "white", "#ddd"),
             text(MARGIN, 32, "Rooms", 17, "start", "bold"),
             text(MARGIN, 52, "A room may include the rooms beneath it, at any depth, and no others; inside a room, "
                  "those that its arrows lead to, directly or indirectly.", 13, "start", colour="#555"),
             *draw_rooms(),
             text(MARGIN, LANES_TOP - 60, "One training step", 17, "start", "bold"),
             *draw_step(),
             *(text(MARGIN, HEIGHT - 54 + 18 * i, line, 12, "start", colour="#555")
               for i, line in enumerate(textwrap.wrap(NOTES, 170))),
             "</svg>"]
    return "\n".join(parts) + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    if not sys.argv[1:]:
        OUT.write_text(drawing())
    elif not OUT.is_file() or OUT.read_text() != drawing():
        sys.exit("docs/architecture.svg differs from the output of scripts/draw_architecture.py: run it")
    else:
        print("drawing: docs/architecture.svg is up to date")


if __name__ == "__main__":
    main()
