"""The script of docs/regions.md draws a recording of the test PMU (tests/vm/regions.rs)."""

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
SCRIPT = ROOT / "docs/regions.py"
RECORDING = ROOT / "tests/fixtures/recordings/stream.jsonl"
# matplotlib's first three colours.
COLOURS = {"a": (31, 119, 180), "b": (255, 127, 14), "c": (44, 160, 44)}
MISSING = [name for name in ("pyarrow", "matplotlib") if not importlib.util.find_spec(name)]


def recording():
    lines = RECORDING.read_text().splitlines()
    return b"".join(base64.b64decode(json.loads(line)["base64"]) for line in lines)


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Picture(unittest.TestCase):
    def test_the_script_draws_each_region(self):
        import matplotlib.image

        with tempfile.TemporaryDirectory() as directory:
            source = os.path.join(directory, "samples.parquet")
            picture = os.environ.get("PMUSCOPE_PICTURE") or os.path.join(directory, "picture.png")
            pathlib.Path(source).write_bytes(recording())
            environment = {**os.environ, "MPLBACKEND": "agg", "MPLCONFIGDIR": directory}
            subprocess.run([sys.executable, SCRIPT, source, picture], check=True, env=environment)
            pixels = (matplotlib.image.imread(picture)[:, :, :3] * 255).round().astype(int)
        for region, colour in COLOURS.items():
            places = (pixels == colour).all(axis=2).nonzero()
            self.assertGreater(len(places[0]), 500, f"hardly anything of {region}")
            # It goes on for the whole time, in rows of its own.
            self.assertGreater(len(set(places[1])), 300, region)

    def test_samples_lie_in_their_tags_and_phases(self):
        import io

        import pyarrow.parquet

        table = pyarrow.parquet.read_table(io.BytesIO(recording()))
        about = {key.decode(): text for key, text in table.schema.metadata.items()}
        tags = json.loads(about["pmuscope.tags"])
        tags = {tag["name"]: (int(tag["start"], 16), int(tag["end"], 16)) for tag in tags}
        self.assertEqual(sorted(tags), ["a", "b", "c"])
        phases = json.loads(about["pmuscope.phases"])
        phases = [(int(phase["since_ns"]), int(phase["until_ns"])) for phase in phases]
        self.assertEqual(len(phases), 5)
        inside = 0
        for row in table.select(["time_ns", "va", "region", "phase"]).to_pylist():
            start, end = tags[row["region"]]
            self.assertTrue(start <= row["va"] < end, row)
            during = any(since <= row["time_ns"] < until for since, until in phases)
            self.assertEqual(row["phase"], "triad" if during else None, row)
            inside += during
        self.assertGreater(inside, 500)

    def test_it_has_at_most_30_lines(self):
        self.assertLessEqual(len(SCRIPT.read_text().splitlines()), 30)
