"""The script of docs/reference/regions.md draws what `mem record --regions` writes: a made-up
file of its columns and metadata, and a recording of the test PMU (tests/vm/regions.rs)."""

import base64
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs/reference/regions.py"
RECORDING = ROOT / "tests/fixtures/recordings/stream.jsonl"
# matplotlib's first three colours.
COLOURS = {"a": (31, 119, 180), "b": (255, 127, 14), "c": (44, 160, 44)}
MISSING = [name for name in ("pyarrow", "matplotlib") if not importlib.util.find_spec(name)]


def recording():
    lines = RECORDING.read_text().splitlines()
    return b"".join(base64.b64decode(json.loads(line)["base64"]) for line in lines)


def made_up(path):
    """STREAM's triad by eight threads, five times, with "a" alone between them."""
    import pyarrow
    import pyarrow.parquet

    start, size, slices, walk = 10**15, 1 << 24, 8, 40_000_000
    bases = {"a": 0x1_0000_0000, "b": 0x1_0200_0000, "c": 0x1_0400_0000}
    rows, phases = [], []
    for turn in range(5):
        since = start + turn * 45_000_000 + 10_000_000
        until = since + 35_000_000
        phases.append({"pid": 7, "tid": 7, "name": "triad"})
        phases[-1].update(since_ns=str(since), until_ns=None if turn == 4 else str(until))
        for number in range(600):
            time = since + number * (until - since) // 600
            name = "abc"[number % 3]
            place = (number // 3 % slices) * (size // slices)
            address = bases[name] + place + size // slices * (time % walk) // walk
            rows.append((time, address, name))
        rows += [(since - 1_000_000 * early, bases["a"], "a") for early in range(1, 9)]
    # Others have no tag, no address or no time.
    rows += [(start, 0x7FFF_0000_0000, "[stack]"), (None, 8, "a"), (start, None, None)]
    times, addresses, regions = zip(*rows)
    table = pyarrow.table(
        {
            "time_ns": pyarrow.array(times, pyarrow.uint64()),
            "va": pyarrow.array(addresses, pyarrow.uint64()),
            "region": regions,
        },
        metadata={"pmuscope.phases": json.dumps(phases)},
    )
    pyarrow.parquet.write_table(table, path)


def draw(source, directory):
    """The colours of the picture's points, where each of them is."""
    import matplotlib.image

    picture = os.environ.get("PMUSCOPE_PICTURE") or os.path.join(directory, "picture.png")
    environment = {**os.environ, "MPLBACKEND": "agg", "MPLCONFIGDIR": directory}
    subprocess.run([sys.executable, SCRIPT, source, picture], check=True, env=environment)
    pixels = (matplotlib.image.imread(picture)[:, :, :3] * 255).round().astype(int)
    return {name: (pixels == colour).all(axis=2).nonzero() for name, colour in COLOURS.items()}


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Picture(unittest.TestCase):
    def assert_drawn(self, places):
        for region, (rows, columns) in places.items():
            self.assertGreater(len(rows), 500, f"hardly anything of {region}")
            # It goes on for the whole time.
            self.assertGreater(len(set(columns)), 300, region)
        # Each has rows of its own, "a" the lowest addresses: but for the legend's points.
        middle = {region: sorted(rows)[len(rows) // 2] for region, (rows, _) in places.items()}
        self.assertGreater(middle["a"], middle["b"])
        self.assertGreater(middle["b"], middle["c"])

    def test_the_script_draws_each_region(self):
        with tempfile.TemporaryDirectory() as directory:
            source = os.path.join(directory, "samples.parquet")
            made_up(source)
            self.assert_drawn(draw(source, directory))

    def test_the_script_draws_a_recording(self):
        with tempfile.TemporaryDirectory() as directory:
            source = os.path.join(directory, "samples.parquet")
            pathlib.Path(source).write_bytes(recording())
            self.assert_drawn(draw(source, directory))

    def test_it_has_at_most_30_lines(self):
        self.assertLessEqual(len(SCRIPT.read_text().splitlines()), 30)
