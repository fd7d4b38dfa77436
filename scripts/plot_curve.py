#!/usr/bin/env python3
"""Draws the loss of runs as an SVG file: scripts/plot_curve.py OUT.svg RUN...

A RUN is a run directory. Thin lines are the training loss of each step, dots the held-out loss; both are in nats per
token, by step. The high loss of the first steps is cut off. Needs only the standard library.
"""
import json
import pathlib
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 400, 56, 40, 16, 150
COLOURS = ["#1f5fa8", "#b5472a", "#2f7d4f", "#7a4b94", "#8a6d1d"]


def read(run):
    train, held_out = [], []
    for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "train" and record["loss"] is not None:
            train.append((record["step"] + 1, record["loss"]))
        if record["kind"] == "eval" and record["val_loss"] is not None:
            held_out.append((record["step"], record["val_loss"]))
    if not train:
        sys.exit(f"plot_curve.py: {run}: no step in metrics.jsonl: give a run that has trained")
    return train, held_out


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.splitlines()[0])
    out, *names = sys.argv[1:]
    runs = [read(name) for name in names]
    steps = max(train[-1][0] for train, _ in runs)
    losses = [loss for train, held_out in runs for step, loss in train + held_out if step > steps / 40]
    low, high = min(losses), max(losses)
    low, high = low - 0.02 * (high - low), high + 0.02 * (high - low)

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps

    def y(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    parts = []
    unit = next(u for u in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0) if (high - low) / u <= 9)
    for i in range(int(low / unit) + 1, int(high / unit) + 1):
        parts.append(f'<path d="M{LEFT} {y(i * unit):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 8}" y="{y(i * unit) + 4:.1f}" text-anchor="end">{i * unit:g}</text>')
    for i in range(5):
        step = round(steps * i / 4)
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{x(steps / 2):.1f}" y="{HEIGHT - 6}" text-anchor="middle">step</text>'
                 f'<text x="{LEFT}" y="{TOP - 4}" text-anchor="start">loss, nats per token</text>')
    for index, (name, (train, held_out)) in enumerate(zip(names, runs)):
        colour = COLOURS[index % len(COLOURS)]
        held_out = [(step, loss) for step, loss in held_out if loss <= high]
        path = "L".join(f"{x(s):.1f} {y(loss):.1f}" for s, loss in train if loss <= high)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-opacity="0.5"/>')
        parts += [f'<circle cx="{x(s):.1f}" cy="{y(loss):.1f}" r="3" fill="{colour}"/>' for s, loss in held_out]
        last = f"{held_out[-1][1]:.3f} held out" if held_out else f"{train[-1][1]:.3f}"
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{TOP + 16 + 34 * index}" fill="{colour}">'
                     f'{pathlib.Path(name).name}<tspan x="{WIDTH - RIGHT + 8}" dy="15">{last}</tspan></text>')
    body = "\n".join(parts)
    pathlib.Path(out).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


if __name__ == "__main__":
    main()
