"""What pmuscope writes of the recordings of tests/fixtures, window by window, and the names of its
metrics."""

import functools
import json
import os
import re
import subprocess

import chart

# `cargo xtask deploy` names the binary that it built.
PMUSCOPE = os.environ.get("PMUSCOPE", str(chart.ROOT / "target/debug/pmuscope"))
RECORDINGS = chart.ROOT / "tests/fixtures/recordings"
SELF_COUNTERS = chart.ROOT / "docs/reference/self-counters.md"

# Units of self-counters and what they become (probe-user/src/emit/openmetrics/family.rs).
UNITS = {"ns": "seconds", "B": "bytes", "ppm": "ratio", "": ""}


@functools.cache
def replayed(recording, kind):
    """All windows of a recording in one format."""
    file = RECORDINGS / f"{recording}.jsonl"
    words = [PMUSCOPE, "stat", "--self", "--replay", file, "--format", kind]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def windows():
    """Expositions in their order, by recording."""
    found = {}
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        # This one is a file of samples.
        if path.stem != "stream":
            parts = replayed(path.stem, "openmetrics").split("# EOF\n")
            found[path.stem] = [part + "# EOF\n" for part in parts if part.strip()]
    return found


def reports(recording):
    """The windows of a recording as JSON."""
    return [json.loads(line) for line in replayed(recording, "json").splitlines() if line]


def names():
    """Names of all samples that pmuscope can write, as far as recordings and the page of
    self-counters tell."""
    texts = [text for texts in windows().values() for text in texts]
    found = {name for text in texts for name in re.findall(r"^(pmuscope_\w+)", text, re.M)}
    # A native histogram has the name of the family.
    native = r"^# TYPE (pmuscope_\w+) histogram$"
    found |= {name for text in texts for name in re.findall(native, text, re.M)}
    return found | self_counters() | verdicts()


def verdicts():
    """Names of the verdicts on neighbours: no recording lasts long enough for one."""
    folder = chart.ROOT / "probe-user/src/derive"
    texts = [(folder / "neighbours.rs").read_text(), (folder / "neighbours/memory.rs").read_text()]
    found = re.findall(r'"(noisy_neighbour_\w+)",\n', "".join(texts))
    # The bandwidth of suspects is in GB/s.
    unit = {True: "_bytes_per_second", False: ""}
    return {f"pmuscope_{name}{unit[name.endswith('bandwidth')]}" for name in found}


def self_counters():
    """Names of the counters in docs/reference/self-counters.md, as gauges and as totals."""
    rows = re.findall(r"^\| `(\w+)` \| (\w*) \|", SELF_COUNTERS.read_text(), re.M)
    found = set()
    for name, unit in rows:
        words = [word for word in name.split("_") if word not in (unit, UNITS[unit])]
        name = "_".join(["pmuscope_self", *words, *([UNITS[unit]] if UNITS[unit] else [])])
        found |= {name, name + "_total"}
    return found
