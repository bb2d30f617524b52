"""The script of docs/recordings.md reads a recording, and finds in it what pmuscope shows of it."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import chart

# `cargo xtask deploy` names the binary that it built.
PMUSCOPE = os.environ.get("PMUSCOPE", str(chart.ROOT / "target/debug/pmuscope"))
PAGE = chart.ROOT / "docs/recordings.md"


def why_not():
    """Why this test cannot run here."""
    try:
        import matplotlib  # noqa: F401
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        return f"{error}: pip install -r tests/deploy/requirements-pictures.txt"
    if os.geteuid() != 0:
        return "not root: recording loads eBPF programs"
    return None


WHY_NOT = why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Script(unittest.TestCase):
    def test_the_script_draws_a_recording(self):
        (script,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
        self.assertLessEqual(len(script.splitlines()), 30)
        with tempfile.TemporaryDirectory() as directory:
            recording = pathlib.Path(directory, "run.parquet")
            picture = pathlib.Path(directory, "run.png")
            words = ["record", "-e", "task-clock", "-I", "100", "-o", recording]
            subprocess.run([PMUSCOPE, *words, "--", "sleep", "0.5"], check=True)
            file = pathlib.Path(directory, "lines.py")
            file.write_text(script)
            words = [sys.executable, file, recording, picture, "cpus_used"]
            drawn = subprocess.run(words, capture_output=True, text=True, check=True)
            self.assertEqual(picture.read_bytes()[:4], b"\x89PNG")
            self.assertIn("sleep: ", drawn.stdout)

            # The same values as a replay shows.
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(recording).to_pylist()
            words = [PMUSCOPE, "stat", "--format", "json", "--replay", recording]
            shown = subprocess.run(words, capture_output=True, text=True, check=True)
            windows = [json.loads(line) for line in shown.stdout.splitlines()]
            rows = {
                (row["window"], row["name"]): row
                for row in table
                if row["part"] == "row" and row["metric"] == "cpus_used"
            }
            count = 0
            for number, window in enumerate(windows, 1):
                for row in window["rows"]:
                    told = rows[number, row["name"]]
                    value = row["metrics"]["cpus_used"]
                    self.assertEqual(told["value"], value["value"])
                    self.assertEqual(told["reason"], value.get("reason"))
                    count += 1
            self.assertEqual(count, len(rows))
            snapshots = [row for row in table if row["part"] == "snapshot"]
            self.assertEqual(len(snapshots), len(windows) + 1)


if __name__ == "__main__":
    unittest.main()
