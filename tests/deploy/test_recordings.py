"""The examples of docs/reference/recordings.md and mem-record.md read what pmuscope writes, and
find in it what pmuscope shows of it."""

import collections
import csv
import gzip
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import chart
import test_regions
from expositions import PMUSCOPE, RECORDINGS, reports

PAGE = chart.ROOT / "docs/reference/recordings.md"
SCRIPT = chart.ROOT / "docs/reference/lines.py"
SAMPLES_PAGE = chart.ROOT / "docs/reference/mem-record.md"
NO_DUCKDB = None if importlib.util.find_spec("duckdb") else "duckdb is not installed"


def why_not():
    """Why this test cannot run here."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        return f"{error}: pip install -r tests/deploy/requirements-pictures.txt"
    if os.geteuid() != 0:
        return "not root: recording loads eBPF programs"
    return None


WHY_NOT = why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Script(unittest.TestCase):
    def test_the_script_draws_a_recording(self):
        with tempfile.TemporaryDirectory() as directory:
            recording = pathlib.Path(directory, "run.jsonl.gz")
            picture = pathlib.Path(directory, "run.png")
            words = ["record", "-e", "task-clock", "-I", "100", "-o", recording]
            subprocess.run([PMUSCOPE, *words, "--", "sleep", "0.5"], check=True)
            words = [PMUSCOPE, "stat", "--format", "json", "--replay", recording]
            shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            words = [sys.executable, SCRIPT, picture, "cpus_used"]
            drawn = subprocess.run(words, input=shown, capture_output=True, text=True, check=True)
            self.assertEqual(picture.read_bytes()[:4], b"\x89PNG")
            windows = [json.loads(line) for line in shown.splitlines()]
            self.assertIn(f"sleep: {len(windows)} windows", drawn.stdout)

            # The same values over all windows.
            words = [PMUSCOPE, "report", recording, "--format", "csv", "-M", "cpus_used"]
            table = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            values = {
                (row["start_s"], row["name"]): row["value"]
                for row in csv.DictReader(io.StringIO(table))
                if row["part"] == "row" and row["value"]
            }
            starts = sorted({start for start, _ in values}, key=float)
            self.assertEqual(len(starts), len(windows))
            count = 0
            for start, window in zip(starts, windows):
                for row in window["rows"]:
                    value = row["metrics"]["cpus_used"].get("value")
                    if value is not None:
                        self.assertEqual(float(values[start, row["name"]]), value)
                        count += 1
            # The system's in each window, and the command's where it ran.
            self.assertGreater(count, len(windows))

            # And the file, as the page describes it.
            lines = gzip.decompress(recording.read_bytes()).decode().splitlines()
            head, end = json.loads(lines[0]), json.loads(lines[-1])
            self.assertEqual(
                list(head), ["pmuscope_recording", "version", "about", "view", "plan"]
            )
            self.assertEqual(end, {"windows": len(windows)})
            self.assertEqual(len(lines), len(windows) + 3)


@unittest.skipIf(NO_DUCKDB, NO_DUCKDB)
class Queries(unittest.TestCase):
    """The SQL of the pages, in DuckDB."""

    def ask(self, page, directory):
        """The rows that the only query of a page finds in a directory's files."""
        import duckdb

        (query,) = re.findall(r"```sql\n(.*?)```", page.read_text(), re.S)
        with duckdb.connect() as connection:
            connection.execute(f"SET file_search_path = '{directory}'")
            return connection.execute(query).fetchall()

    def test_containers_by_cpu_over_time(self):
        with tempfile.TemporaryDirectory() as directory:
            table = pathlib.Path(directory, "run.csv")
            words = ["report", RECORDINGS / "waits.jsonl", "--format", "csv", "-o", table]
            subprocess.run([PMUSCOPE, *words], check=True)
            found = {(label, second): cpus for label, second, cpus in self.ask(PAGE, directory)}
            rows = csv.DictReader(io.StringIO(table.read_text()))
            labels = {(row["kind"], row["name"]): row["label"] for row in rows}
        values = collections.defaultdict(list)
        for window in reports("waits"):
            second = (window["elapsed_ns"] - window["duration_ns"]) // 10**10 * 10
            for row in window["rows"]:
                if row["kind"] != "idle":
                    # A row that did not run used 0 CPUs.
                    value = row["metrics"]["cpus_used"]["value"] or 0
                    values[labels[row["kind"], row["name"]], second].append(value)
        self.assertGreater(len(values), 1)
        self.assertEqual(set(found), set(values))
        for key, known in values.items():
            self.assertAlmostEqual(found[key], sum(known) / len(known), msg=key)

    def test_samples_by_region_and_source(self):
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "samples.parquet").write_bytes(test_regions.recording())
            found = self.ask(SAMPLES_PAGE, directory)
        # The page shows the result.
        text = SAMPLES_PAGE.read_text()
        (shown,) = re.findall(r"```sql\n.*?```\n\n```\n(.*?)```", text, re.S)
        cells = [["NULL" if cell is None else str(cell) for cell in row] for row in found]
        self.assertEqual([line.split() for line in shown.splitlines()], cells)


if __name__ == "__main__":
    unittest.main()
