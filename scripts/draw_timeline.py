#!/usr/bin/env python3
"""Draws a step of a file of `muograph train --timeline` as SVG: the lanes of each rank over time.
  scripts/draw_timeline.py STEP.json OUT.svg [--step N]
Colours are kinds of operations; waits for other ranks are hatched, and the critical path is underlined."""
import argparse
import collections
import html
import json

WIDTH, LEFT, LANE, GAP, TOP = 1200, 110, 22, 8, 34
KINDS = {  # first words of names: colour
    "products": ("#4e79a7", ("gemm", "symmetric_product")),
    "attention": ("#f28e2b", ("attention", "decode_attention")),
    "norms, activations": ("#76b7b2", ("rms_norm", "mix_norm", "rotary_norm", "relu_squared", "smear", "gate")),
    "embedding, losses": ("#59a14f", ("embedding", "value_embedding", "cross_entropy", "group_tokens")),
    "update": ("#b07aa1", ("muon", "adamw", "sum", "note", "agree", "commit")),
    "collectives": ("#e15759", ("reduce", "all", "gather", "scatter", "broadcast")),
    "other": ("#9c9c9c", ("",)),
}


def kind_of(name):
    return next(kind for kind, (_, words) in KINDS.items() if name.startswith(words))


def read(path, number):
    """Lanes of one step by (rank, lane), with its operations and waits."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
             if e["ph"] == "M" and e["name"] == "thread_name"}
    slices = [e for e in events if e["ph"] == "X" and names[e["pid"], e["tid"]] != "host"]
    steps = sorted({e["name"] for e in slices if e["name"].startswith("step ")}, key=lambda name: int(name[5:]))
    step = f"step {number}" if number is not None else steps[0]
    spans = {(e["pid"], e["tid"]): (e["ts"], e["ts"] + e["dur"]) for e in slices if e["name"] == step}
    lanes = collections.defaultdict(list)
    for e in slices:
        begin, end = spans.get((e["pid"], e["tid"]), (0, -1))
        if begin <= e["ts"] <= end and ("dtype" in e.get("args", {}) or e["name"] == "wait"):
            lanes[e["pid"], e["tid"]].append(e)
    return step, names, spans, lanes


def rectangle(x, y, width, height, style, title=""):
    inner = f"<title>{html.escape(title)}</title>" if title else ""
    return f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.15):.2f}" height="{height}" {style}>{inner}</rect>'


def draw(path, number):
    step, names, spans, lanes = read(path, number)
    begin, end = min(b for b, _ in spans.values()), max(e for _, e in spans.values())
    scale = (WIDTH - LEFT - 10) / (end - begin)
    out, y = [], TOP
    for (rank, lane), operations in sorted(lanes.items()):
        out.append(f'<text x="4" y="{y + 15}">rank {rank}, {names[rank, lane]}</text>')
        out.append(rectangle(LEFT, y, (end - begin) * scale, LANE, 'fill="#f2f2f2"'))
        waits = {e["ts"]: e["dur"] * scale for e in operations if e["name"] == "wait"}
        for e in operations:
            x, width = LEFT + (e["ts"] - begin) * scale, e["dur"] * scale
            arguments = e.get("args", {})
            title = f'{e["name"]} {arguments.get("shape", "")}: {e["dur"] / 1e3:.3f} ms'
            style = 'fill="url(#wait)"' if e["name"] == "wait" else f'fill="{KINDS[kind_of(e["name"])][0]}"'
            out.append(rectangle(x, y, width, LANE, style, title))
            if arguments.get("critical"):
                waited = waits.get(e["ts"], 0)  # meanwhile the path is on another rank
                out.append(rectangle(x + waited, y + LANE + 1, width - waited, 3, 'fill="#222"'))
        y += LANE + GAP
    tick = next(tick for tick in (10.0 ** power * digit for power in range(0, 10) for digit in (1, 2, 5))
                if (end - begin) / tick <= 12)
    for i in range(int((end - begin) / tick) + 1):
        x = LEFT + i * tick * scale
        out.append(f'<text x="{x:.0f}" y="{y + 12}" text-anchor="middle">{i * tick / 1e3:g}</text>')
    x = LEFT
    for kind, (colour, _) in [*KINDS.items(), ("wait", ("url(#wait)", ())), ("critical path", ("#222", ()))]:
        out += [rectangle(x, 8, 12, 12, f'fill="{colour}"'), f'<text x="{x + 16}" y="18">{kind}</text>']
        x += 32 + 6.4 * len(kind)
    hatch = ('<pattern id="wait" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
             '<rect width="5" height="5" fill="#fff"/><rect width="2" height="5" fill="#e15759"/></pattern>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 34}" font-family="sans-serif" '
            f'font-size="11"><rect width="100%" height="100%" fill="#fff"/><defs>{hatch}</defs>'
            f'<text x="4" y="18">{step}</text>\n' + "\n".join(out) +
            f'\n<text x="{WIDTH / 2}" y="{y + 28}" text-anchor="middle">ms</text></svg>\n')


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timeline")
    parser.add_argument("out")
    parser.add_argument("--step", type=int, help="default: the first")
    arguments = parser.parse_args()
    text = draw(arguments.timeline, arguments.step)
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(text)
