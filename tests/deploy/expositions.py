"""What pmuscope writes: the windows of the golden OpenMetrics text (tests/replay), by recording, and
the names of its metrics."""

import json
import re

import chart

SNAPSHOTS = chart.ROOT / "tests/replay/snapshots"

# Units of self-counters and what they become (probe-user/src/emit/openmetrics/family.rs).
UNITS = {"ns": "seconds", "B": "bytes", "ppm": "ratio", "": ""}


def golden(recording, kind):
    """A golden text without its head."""
    text = (SNAPSHOTS / f"replay__{recording}.{kind}.snap").read_text()
    return text.split("\n---\n", 1)[1]


def windows():
    """Expositions in their order, by recording."""
    found = {}
    for path in sorted(SNAPSHOTS.glob("*.openmetrics.snap")):
        recording = path.name.removeprefix("replay__").removesuffix(".openmetrics.snap")
        parts = golden(recording, "openmetrics").split("# EOF\n")
        found[recording] = [part + "# EOF\n" for part in parts if part.strip()]
    return found


def reports(recording):
    """The windows of a recording as JSON."""
    return [json.loads(line) for line in golden(recording, "json").splitlines() if line]


def names():
    """Names of all samples that pmuscope can write, as far as goldens and docs/self.md tell."""
    texts = [text for texts in windows().values() for text in texts]
    found = {name for text in texts for name in re.findall(r"^(pmuscope_\w+)", text, re.M)}
    return found | self_counters() | verdicts()


def verdicts():
    """Names of the verdicts on neighbours: no recording lasts long enough for one."""
    text = (chart.ROOT / "probe-user/src/derive/neighbours.rs").read_text()
    rows = re.findall(r'"(noisy_neighbour\w*)",\n(?: +"(?:[^"\\]|\\.|\\\n)*",)\n +"(.*)",', text)
    units = {"": "", "GB/s": "_bytes_per_second"}
    return {f"pmuscope_{name}{units[unit]}" for name, unit in rows}


def self_counters():
    """Names of the counters in docs/self.md, as gauges and as totals."""
    rows = re.findall(r"^\| `(\w+)` \| (\w*) \|", (chart.ROOT / "docs/self.md").read_text(), re.M)
    found = set()
    for name, unit in rows:
        words = [word for word in name.split("_") if word not in (unit, UNITS[unit])]
        name = "_".join(["pmuscope_self", *words, *([UNITS[unit]] if UNITS[unit] else [])])
        found |= {name, name + "_total"}
    return found
