"""Draws a metric of each container over time, from what `pmuscope stat --format json` writes. Needs
matplotlib.

    pmuscope stat --replay run.jsonl.gz --format json | python3 lines.py run.png ipc
"""
import json
import sys

import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot

picture, metric = sys.argv[1:]
lines, unit = {}, ""
for window in map(json.loads, sys.stdin):
    for row in window["rows"]:
        known = {**row.get("events", {}), **row.get("metrics", {})}.get(metric, {})
        unit = known.get("unit", unit)
        value = known.get("value")
        line = lines.setdefault(row.get("container") or row["name"], [])
        # matplotlib leaves a gap where a value is not known.
        line.append((window["elapsed_ns"] / 1e9, float("nan") if value is None else value))
figure, axes = pyplot.subplots(figsize=(9, 4))
for name, line in sorted(lines.items()):
    # It takes $ and a leading _ as its own.
    axes.plot(*zip(*line), label="\u200b" + name.replace("$", r"\$")[:40])
axes.set(xlabel="seconds", ylabel=f"{metric} ({unit})", ylim=(0, None))
axes.legend(fontsize="small")
figure.savefig(picture)
print(*(f"{name}: {len(line)} windows" for name, line in sorted(lines.items())), sep="\n")
