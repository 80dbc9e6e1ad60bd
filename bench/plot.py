#!/usr/bin/env python3
"""Draws what `hipnorm-bench --format json --output FILE` has measured.

One panel for each dtype and direction, a group of bars for each shape. Needs matplotlib.
"""
import argparse
import json
import math
import sys
from pathlib import Path

# Metric: axis label, and which implementations have bars. The copy is 1 by definition in
# copy_fraction and is drawn as a line there.
METRICS = {
    "copy_fraction": ("fraction of the copy's speed", ("hipnorm", "aten")),
    "gbps": ("GB/s of the bytes that have to move", ("hipnorm", "aten", "copy")),
    "latency_us": ("microseconds per call", ("hipnorm", "aten", "copy")),
    "speedup": ("speed-up over aten", ("hipnorm",)),
}
COLORS = {"hipnorm": "#1f77b4", "aten": "#ff7f0e", "copy": "#999999"}
NEEDED = ("device", "arch", "torch", "dtype", "direction", "rows", "cols", "impl")


class BadInput(Exception):
    """What is wrong with the input, in one line."""


def read_rows(path, metric):
    """The rows of a file of JSON lines that have a value for the metric."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read '{path}': {error}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(
                f"{path}:{number}: expected one JSON object per line, as hipnorm-bench "
                f"--format json writes them: {error}"
            ) from error
        if not isinstance(row, dict):
            raise BadInput(f"{path}:{number}: expected a JSON object, got {line.strip()[:40]}")
        missing = [key for key in (*NEEDED, metric) if key not in row]
        if missing:
            raise BadInput(f"{path}:{number}: the field {missing[0]} is missing")
        value = row[metric]
        if value is None:  # a wrong result has no times
            continue
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise BadInput(f"{path}:{number}: expected a number in {metric}, got {value!r}")
        rows.append(row)
    if not rows:
        raise BadInput(f"'{path}' has no measured row")
    return rows


def unique(values):
    """Without repetition, in order of first appearance."""
    return list(dict.fromkeys(values))


def draw_panel(axes, rows, metric):
    """The bars of one dtype and direction."""
    shapes = unique((row["rows"], row["cols"]) for row in rows)
    impls = [impl for impl in METRICS[metric][1] if any(row["impl"] == impl for row in rows)]
    width = 0.8 / max(len(impls), 1)
    for index, impl in enumerate(impls):
        values = {(r["rows"], r["cols"]): r[metric] for r in rows if r["impl"] == impl}
        places = [i + (index - (len(impls) - 1) / 2) * width for i in range(len(shapes))]
        heights = [values.get(shape, math.nan) for shape in shapes]
        bars = axes.bar(places, heights, width, label=impl, color=COLORS[impl])
        axes.bar_label(bars, fmt="%.3g", fontsize=7, rotation=90, padding=2)
    axes.set_xticks(range(len(shapes)), [f"{m}x{n}" for m, n in shapes], rotation=30, ha="right")
    axes.margins(y=0.18)
    if metric == "latency_us":
        axes.set_yscale("log")
    if metric in ("copy_fraction", "speedup"):
        axes.axhline(1, color=COLORS["copy"], linewidth=1, linestyle="--")


def draw(rows, metric, output):
    """Writes the figure to `output`, in the format that its suffix names."""
    try:
        import matplotlib
    except ImportError as error:
        raise BadInput("matplotlib is missing: python3 -m pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    dtypes = unique(row["dtype"] for row in rows)
    directions = unique(row["direction"] for row in rows)
    figure, panels = pyplot.subplots(
        len(dtypes),
        len(directions),
        squeeze=False,
        figsize=(6.5 * len(directions), 3.8 * len(dtypes)),
        layout="constrained",
    )
    for i, dtype in enumerate(dtypes):
        for j, direction in enumerate(directions):
            part = [r for r in rows if r["dtype"] == dtype and r["direction"] == direction]
            panels[i][j].set_title(f"{direction}, {dtype}", fontsize=10)
            if part:
                draw_panel(panels[i][j], part, metric)
        panels[i][0].set_ylabel(METRICS[metric][0])
    panels[0][0].legend(fontsize=8)
    first = rows[0]
    arch = f" ({first['arch']})" if first["arch"] else ""
    figure.suptitle(f"LayerNorm on {first['device']}{arch}, torch {first['torch']}", fontsize=11)
    try:
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot write '{output}': {error}") from error


def main(argv):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="JSON lines of hipnorm-bench")
    parser.add_argument(
        "--metric",
        choices=METRICS,
        default="copy_fraction",
        help="what the bars show (default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="image to write, .png, .svg or .pdf (default: the input's name with .png)",
    )
    args = parser.parse_args(argv)
    output = args.output or args.file.with_suffix(".png")
    try:
        draw(read_rows(args.file, args.metric), args.metric, output)
    except BadInput as error:
        print(f"plot.py: {error}", file=sys.stderr)
        return 2
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
