"""A running agent, scraped by a real Prometheus: every rule and every query of the dashboards is
answered, and with what the agent's JSON says."""

import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

import chart
import queries
from expositions import PMUSCOPE
from test_chart import MATRIX
from test_prometheus import Prometheus

WAITS = "pmuscope_cpu_wait_duration_seconds"

# Keys of files that secrets bring.
FILES = ("web_config", "ca_file", "cert_file", "key_file")


def why_not():
    """Why these tests cannot run here."""
    if os.geteuid() != 0:
        return "not root: the agent loads eBPF programs"
    try:
        done = subprocess.run([PMUSCOPE, "agent", "--help"], capture_output=True, check=False)
    except OSError as error:
        return f"cannot start {PMUSCOPE}: {error}"
    return None if done.returncode == 0 else f"{PMUSCOPE} has no agent"


WHY_NOT = why_not()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Agent:
    """An agent that pulls twice a second; its windows as JSON come from its standard output."""

    def __init__(self, directory):
        self.address = f"127.0.0.1:{free_port()}"
        config = pathlib.Path(directory, "agent.toml")
        config.write_text(
            f'interval = "500ms"\n[http]\nlisten = "{self.address}"\n[json]\npath = "-"\n'
            f'[run]\ndirectory = "{directory}/run"\n[count]\nmetrics = ["cpus_used", '
            '"context_switches_per_second", "page_faults_per_second", "cpu_wait_ratio"]\n'
        )
        self.log = pathlib.Path(directory, "log")
        self.windows = []
        self.changed = threading.Condition()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [PMUSCOPE, "agent", "--config", str(config)], stdout=subprocess.PIPE, stderr=log
            )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.windows.append(json.loads(line))
                self.changed.notify_all()

    def wait(self, more):
        """Until so many more windows are there."""
        with self.changed:
            wanted = len(self.windows) + more
            if not self.changed.wait_for(lambda: len(self.windows) >= wanted, timeout=120):
                raise AssertionError(f"the agent counts nothing: {self.log.read_text()}")

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.address}{path}") as answer:
            return answer.read().decode()

    def stop(self):
        """Its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        return code


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Scraped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="pmuscope-agent-")
        cls.addClassCleanup(directory.cleanup)
        cls.agent = Agent(directory.name)
        cls.addClassCleanup(cls.agent.stop)
        cls.agent.wait(2)
        targets = [{"targets": [cls.agent.address], "labels": {"instance": "here"}}]
        cls.prometheus = Prometheus(targets)
        cls.addClassCleanup(cls.prometheus.stop)
        cls.prometheus.wait_for_scrapes(5)
        # It asks for protocol buffers.
        cls.native = Prometheus(targets, "--enable-feature=native-histograms")
        cls.addClassCleanup(cls.native.stop)
        cls.native.wait_for_scrapes(5)
        # Rules that rest on rules come a round later.
        cls.prometheus.wait_for_rules(4)
        cls.native.wait_for_rules(4)

    def test_it_is_taken(self):
        targets = self.prometheus.get("targets")["activeTargets"]
        targets += self.native.get("targets")["activeTargets"]
        self.assertEqual([target["lastError"] for target in targets], ["", ""])
        self.assertEqual(self.agent.get("/readyz"), "ok\n")
        self.assertEqual(self.agent.get("/healthz"), "ok\n")

    def test_native_histograms_are_the_classic_ones(self):
        if f"{WAITS}_bucket" not in self.agent.get("/metrics"):
            self.skipTest("this kernel has no waits: pmuscope doctor says why")
        # Each is of a later scrape than the one before.
        numbers = []
        # Of a row that does not end.
        row = '{kind="system"}'
        for prometheus, query in [
            (self.native, f"histogram_count({WAITS}{row})"),
            (self.prometheus, f"{WAITS}_count{row}"),
            (self.native, f"histogram_count({WAITS}{row})"),
        ]:
            prometheus.wait_for_scrapes(2 + prometheus.scrapes())
            ((_, number),) = prometheus.query(query)
            numbers.append(number)
        self.assertEqual(numbers, sorted(numbers))
        self.assertGreater(numbers[0], 0)
        ((_, p99),) = self.native.query(f"histogram_quantile(0.99, rate({WAITS}{row}[1m]))")
        self.assertTrue(0 < p99 < 1024, p99)

    def test_every_rule_is_evaluated(self):
        for rule in self.prometheus.rules() + self.native.rules():
            self.assertEqual(rule["health"], "ok", f"{rule['name']}: {rule.get('lastError')}")

    def test_every_query_is_answered(self):
        for dashboard, title, query in queries.panels():
            for prometheus in [self.prometheus, self.native]:
                with self.subTest(f"{dashboard}, {title}"):
                    found = prometheus.query(query)
                    if "pmuscope_self_agent_" in query:
                        self.assertTrue(found, query)

    def test_waits_are_shown_with_either_histogram(self):
        """There may be no container here: the row of all others in its place."""
        of_waits = [rule["expr"] for rule in queries.rules() if WAITS in rule["expr"]]
        of_waits += [query for _, _, query in queries.panels() if WAITS in query]
        self.assertEqual(len(of_waits), 3)
        if f"{WAITS}_bucket" not in self.agent.get("/metrics"):
            self.skipTest("this kernel has no waits: pmuscope doctor says why")
        for query in of_waits:
            query = re.sub(r"\{[^}]*\}", '{kind="system"}', query)
            for prometheus in [self.prometheus, self.native]:
                with self.subTest(query):
                    self.assertTrue(prometheus.query(query))

    def test_nothing_fires_but_what_this_machine_does(self):
        # This machine may be loaded, or its kernel hide switches: docs/limits.md.
        allowed = {"PmuscopeCostsTooMuch", "PmuscopeMissesSwitches"}
        found = self.prometheus.query('ALERTS{alertstate="firing"}')
        self.assertLessEqual({labels["alertname"] for labels, _ in found}, allowed)

    def test_prometheus_has_what_the_json_says(self):
        self.agent.wait(2)
        windows = list(self.agent.windows)
        compared = 0
        for metric, name in [
            ("pmuscope_cpus_used_cpus", "cpus_used"),
            ("pmuscope_context_switches_per_second", "context_switches_per_second"),
            ("pmuscope_page_faults_per_second", "page_faults_per_second"),
        ]:
            for labels, number in self.prometheus.query(metric):
                rows = [row for window in windows for row in window["rows"]]
                known = [
                    row["metrics"].get(name, {}).get("value")
                    for row in rows
                    if (row["kind"], row["name"]) == (labels["kind"], labels["name"])
                ]
                known = [value for value in known if value is not None]
                close = any(math.isclose(number, value, rel_tol=1e-9) for value in known)
                self.assertTrue(close, f"{labels}: {number} is in no window: {known}")
                compared += 1
        self.assertGreater(compared, 2)

    def test_totals_are_the_sums_of_all_windows(self):
        self.agent.wait(1)
        ((_, total),) = self.prometheus.query(
            'pmuscope_machine_events_estimated_seconds_total{event="task-clock"}'
        )
        sums, sum_so_far = [], 0
        for window in list(self.agent.windows):
            sum_so_far += window["total"]["events"]["task-clock"]["value"]
            sums.append(sum_so_far / 1e9)
        self.assertTrue(any(math.isclose(total, it, rel_tol=1e-9) for it in sums), (total, sums))

    def test_promtool_takes_its_text(self):
        text = self.agent.get("/metrics")
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Configuration(unittest.TestCase):
    """The agent takes what is handed out for it."""

    def check(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            done = subprocess.run(
                [PMUSCOPE, "agent", "--check-config", "--config", file.name],
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_chart_s(self):
        for name, values in MATRIX.items():
            maps = [item for item in chart.render(values) if item["kind"] == "ConfigMap"]
            (text,) = [it["data"]["agent.toml"] for it in maps if "agent.toml" in it["data"]]
            # The pod's files are not here.
            lines = [it for it in text.splitlines() if not it.startswith(FILES)]
            with self.subTest(name):
                self.check("\n".join(lines))

    def test_the_example(self):
        self.check((chart.ROOT / "deploy/agent.toml").read_text())


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Ending(unittest.TestCase):
    def test_it_ends_when_told_to(self):
        with tempfile.TemporaryDirectory(prefix="pmuscope-agent-") as directory:
            agent = Agent(directory)
            agent.wait(1)
            began = time.monotonic()
            self.assertEqual(agent.stop(), 0)
            # kubelet and systemd kill it after ten seconds.
            self.assertLess(time.monotonic() - began, 10)
