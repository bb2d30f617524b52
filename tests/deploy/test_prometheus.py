"""A real Prometheus scrapes what pmuscope wrote of its recordings, evaluates the rules, and answers
every query of the dashboards."""

import http.server
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import yaml

import expositions
import queries

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Recordings(http.server.ThreadingHTTPServer):
    """Serves each recording below its name, a window for each scrape, then the last one."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.windows = expositions.windows()
        self.served = dict.fromkeys(self.windows, 0)
        self.changed = threading.Condition()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A Prometheus that ends leaves a scrape behind; anything else is said."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def wait(self, times):
        """Until each was served that often."""
        with self.changed:
            reached = lambda: min(self.served.values()) >= times
            if not self.changed.wait_for(reached, timeout=120):
                raise AssertionError(f"Prometheus does not scrape: {self.served}")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.strip("/")
        with self.server.changed:
            windows = self.server.windows[name]
            text = windows[min(self.server.served[name], len(windows) - 1)].encode()
            self.server.served[name] += 1
            self.server.changed.notify_all()
        self.send_response(200)
        self.send_header("Content-Type", OPENMETRICS)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Prometheus:
    """A Prometheus of its own on a free port, with an empty store."""

    def __init__(self, targets, *options):
        self.directory = tempfile.mkdtemp(prefix="pmuscope-prometheus-")
        for path in queries.RULES:
            shutil.copy(path, self.directory)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [path.name for path in queries.RULES],
            "scrape_configs": [
                {"job_name": "pmuscope", "honor_labels": True, "static_configs": targets}
            ],
        }
        config_file = pathlib.Path(self.directory, "prometheus.yml")
        config_file.write_text(yaml.dump(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % free.getsockname()[1]
        self.log = pathlib.Path(self.directory, "log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config_file}",
                    f"--storage.tsdb.path={self.directory}/data",
                    f"--web.listen-address={self.address}",
                    *options,
                ],
                stderr=log,
                stdout=log,
            )

        self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.address}/-/ready"):
                    return
            except urllib.error.URLError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise AssertionError(self.log.read_text()) from None
                time.sleep(0.1)

    def get(self, path, **parameters):
        """The data of an answer of its API; what it says against it is an error."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, query):
        """(labels, number) of each series."""
        result = self.get("query", query=query)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def rules(self):
        """Each rule with its health."""
        groups = self.get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def wait_for_rules(self, rounds):
        """Until each rule was evaluated that often from now on."""
        seen = {}
        deadline = time.monotonic() + 120
        while not seen or min(len(times) for times in seen.values()) <= rounds:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(self.log.read_text())
            for rule in self.rules():
                seen.setdefault(rule["name"], set()).add(rule["lastEvaluation"])
            # Its evaluations are a second apart, and it tells nobody of them.
            time.sleep(0.2)

    def scrapes(self):
        """How often the least scraped target was scraped."""
        ((_, scrapes),) = self.query("min(count_over_time(up[10m]))")
        return int(scrapes)

    def wait_for_scrapes(self, scrapes):
        """Until each target was scraped that often."""
        deadline = time.monotonic() + 120
        query = f"count(count_over_time(up[10m]) >= {scrapes}) == count(up)"
        while not self.query(query):
            if time.monotonic() > deadline:
                raise AssertionError(f"Prometheus does not scrape: {self.log.read_text()}")
            time.sleep(0.2)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.directory)


class Scraped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Recordings()
        cls.addClassCleanup(cls.server.shutdown)
        address = "127.0.0.1:%d" % cls.server.server_port
        targets = [
            {"targets": [address], "labels": {"__metrics_path__": f"/{name}", "instance": name}}
            for name in cls.server.windows
        ]
        cls.prometheus = Prometheus(targets)
        cls.addClassCleanup(cls.prometheus.stop)
        # All windows of the longest recording, and the last one again.
        longest = max(len(windows) for windows in cls.server.windows.values())
        cls.server.wait(longest + 2)
        # Rules that rest on rules come a round later.
        cls.prometheus.wait_for_rules(4)

    def test_every_target_is_taken(self):
        up = self.prometheus.query('up{job="pmuscope"} == 1')
        targets = self.prometheus.get("targets")["activeTargets"]
        errors = [target["lastError"] for target in targets if target["lastError"]]
        self.assertEqual((len(up), errors), (len(self.server.windows), []))

    def test_every_rule_is_evaluated(self):
        rules = self.prometheus.rules()
        self.assertEqual(len(rules), len(queries.rules()))
        for rule in rules:
            self.assertEqual(rule["health"], "ok", f"{rule['name']}: {rule.get('lastError')}")

    def test_every_recording_rule_finds_something(self):
        for rule in queries.rules():
            if "record" in rule:
                # The recordings have pods where others have containers.
                query = rule["expr"].replace('kind="container"', 'kind!=""')
                self.assertTrue(self.prometheus.query(query), rule["record"])

    def test_every_panel_shows_something(self):
        for dashboard, title, query in queries.panels():
            with self.subTest(f"{dashboard}, {title}"):
                query = query.replace('kind="container"', 'kind!=""')
                found = self.prometheus.query(query)
                # Recordings have no agent, which test_agent.py has, and are too short to judge.
                if not any(name in query for name in ("pmuscope_self_agent_", "noisy_neighbour")):
                    self.assertTrue(found, query)

    def test_prometheus_has_what_the_json_says(self):
        compared = 0
        for recording in self.server.windows:
            last = expositions.reports(recording)[-1]
            for query, expected in expected_of(last):
                query = query.replace("{", f'{{instance="{recording}",', 1)
                found = self.prometheus.query(query)
                self.assertEqual(len(found), 1, query)
                self.assertAlmostEqual(found[0][1] / expected, 1, 9, query)
                compared += 1
        self.assertGreater(compared, 50)


# Metrics of JSON by what they are in Prometheus: the name, and the factor of its unit.
METRICS = {
    "ipc": ("pmuscope_ipc_per_cycle", 1),
    "cpus_used": ("pmuscope_cpus_used_cpus", 1),
    "branch_miss_ratio": ("pmuscope_branch_miss_ratio", 1),
    "cmem_read_bandwidth": ("pmuscope_cmem_read_bandwidth_bytes_per_second", 1e9),
    "cmem_read_bandwidth_apportioned": (
        "pmuscope_cmem_read_bandwidth_apportioned_bytes_per_second",
        1e9,
    ),
    "io_percent_of_inbound_reads_that_miss_l3": (
        "pmuscope_io_of_inbound_reads_that_miss_l3_ratio",
        0.01,
    ),
}


def expected_of(report):
    """(query, number) of values of a window that are not zero."""
    for row in report["rows"]:
        for name, value in row.get("metrics", {}).items():
            if name in METRICS and value["value"]:
                metric, factor = METRICS[name]
                labels = f'kind="{row["kind"]}",name="{row["name"]}"'
                yield f"{metric}{{{labels}}}", value["value"] * factor
    for share in report.get("shares", []):
        if share["metric"] in METRICS and share["value"]:
            metric, factor = METRICS[share["metric"]]
            labels = f'kind="{share["kind"]}",name="{share["name"]}",socket="{share["socket"]}"'
            yield f"{metric}{{{labels}}}", share["value"] * factor
    for place in report.get("places", []):
        if place["metric"] in METRICS and place["value"] and place["kind"] == "socket":
            metric, factor = METRICS[place["metric"]]
            yield f'{metric}{{socket="{place["socket"]}"}}', place["value"] * factor
    yield "pmuscope_self_runs_total{}", report["self"]["runs"]
