"""Rules and dashboards: their form, and that every metric that they name is one that is written."""

import json
import re
import subprocess
import tempfile
import unittest

import chart
import expositions
import queries

# Metrics that are not pmuscope's.
OTHERS = {"up"}


def selectors(query):
    """(name or None, pattern or None) of each selector of metrics in a query."""
    bare = re.sub(r'"[^"]*"', '""', query)
    for name in re.findall(r"(?<![\w:])(?:\w+:)?pmuscope_\w+(?::\w+)?", bare):
        yield name, None
    for pattern in re.findall(r'__name__=~"([^"]*)"', query):
        yield None, pattern


class Names(unittest.TestCase):
    """A metric that is renamed breaks these."""

    @classmethod
    def setUpClass(cls):
        cls.recorded = {rule["record"] for rule in queries.rules() if "record" in rule}
        # Without an agent there are no counters of it: this branch of the check goes with the page.
        cls.agent = "\n## The agent\n" in expositions.SELF_COUNTERS.read_text()
        cls.known = expositions.names() | cls.recorded

    def check(self, where, query):
        found = list(selectors(query))
        self.assertTrue(found or any(other in query for other in OTHERS), f"{where}: {query}")
        for name, pattern in found:
            if name and not self.agent and name.startswith("pmuscope_self_agent_"):
                continue
            if name:
                self.assertTrue(name in self.known, f"{where}: nothing writes {name}")
                continue
            fits = [known for known in self.known if re.fullmatch(pattern, known)]
            self.assertTrue(fits, f"{where}: nothing fits {pattern}")
            # A sum over both would count twice.
            wrong = [it for it in fits if re.search("_(live|counting_error|lower|upper)_", it)]
            if "live" not in pattern and "error" not in pattern:
                self.assertEqual(wrong, [], f"{where}: {pattern}")

    def test_rules_name_metrics_that_are_written(self):
        for rule in queries.rules():
            self.check(rule.get("record") or rule["alert"], rule["expr"])

    def test_panels_name_metrics_that_are_written(self):
        for dashboard, title, query in queries.panels():
            self.check(f"{dashboard}, {title}", query)

    def test_variables_name_metrics_that_are_written(self):
        for name, dashboard in queries.dashboards().items():
            for variable in dashboard["templating"]["list"][1:]:
                self.check(f"{name}, {variable['name']}", variable["definition"])

    def test_names_are_found_in_queries(self):
        found = list(selectors('sum(rate(pmuscope_a_total{x="pmuscope_b"}[5m])) / a:pmuscope_c:d'))
        self.assertEqual(found, [("pmuscope_a_total", None), ("a:pmuscope_c:d", None)])
        with self.assertRaises(AssertionError):
            self.check("a query", "pmuscope_there_is_none")

    def test_raw_counters_are_left_alone(self):
        # They are unscaled: only estimates may be added up.
        raw = re.compile(r"pmuscope_(machine_|socket_)?events(_seconds)?_total")
        texts = [rule["expr"] for rule in queries.rules()]
        texts += [query for _, _, query in queries.panels()]
        self.assertEqual([text for text in texts if raw.search(text)], [])


class Dashboards(unittest.TestCase):
    """The form of the dashboards."""

    def test_ids_are_unique(self):
        dashboards = queries.dashboards()
        self.assertEqual(len(dashboards), 4)
        for key in ("uid", "title"):
            values = [dashboard[key] for dashboard in dashboards.values()]
            self.assertEqual(len(values), len(set(values)))
        for name, dashboard in dashboards.items():
            ids = [panel["id"] for panel in dashboard["panels"]]
            self.assertEqual(len(ids), len(set(ids)), name)

    def test_data_comes_from_the_chosen_source(self):
        for name, dashboard in queries.dashboards().items():
            first = dashboard["templating"]["list"][0]
            self.assertEqual((first["name"], first["type"]), ("datasource", "datasource"))
            wanted = {"type": "prometheus", "uid": "${datasource}"}
            for panel in dashboard["panels"]:
                if panel["type"] == "row":
                    continue
                self.assertEqual(panel["datasource"], wanted, name)
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"], wanted, name)

    def test_variables_are_declared(self):
        for name, dashboard in queries.dashboards().items():
            declared = {variable["name"] for variable in dashboard["templating"]["list"]}
            used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(dashboard["panels"])))
            self.assertTrue(used <= declared, f"{name}: {used - declared}")
            self.assertEqual(declared - used, set(), f"{name}: not used")

    def test_panels_do_not_lie_over_each_other(self):
        for name, dashboard in queries.dashboards().items():
            taken = set()
            for panel in dashboard["panels"]:
                at = panel["gridPos"]
                cells = {
                    (x, y)
                    for x in range(at["x"], at["x"] + at["w"])
                    for y in range(at["y"], at["y"] + at["h"])
                }
                self.assertFalse(cells & taken, f"{name}: {panel['title']}")
                self.assertLessEqual(at["x"] + at["w"], 24)
                taken |= cells


class Promtool(unittest.TestCase):
    """Prometheus' own tool."""

    def promtool(self, *arguments):
        done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_rules_are_right(self):
        said = self.promtool("check", "rules", "--lint=all", "--lint-fatal", *queries.RULES)
        self.assertEqual(said.count("SUCCESS"), len(queries.RULES))

    def test_rules_do_what_they_should(self):
        self.promtool("test", "rules", chart.ROOT / "tests/deploy/rules_test.yaml")

    def test_every_alert_has_a_test(self):
        tested = (chart.ROOT / "tests/deploy/rules_test.yaml").read_text()
        for rule in queries.rules():
            name = rule.get("alert") or rule["record"]
            self.assertIn(name, tested)

    def test_queries_of_panels_parse(self):
        rules = [
            {"record": f"panel:{at}:parses", "expr": query}
            for at, (_, _, query) in enumerate(queries.panels())
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"groups": [{"name": "panels", "rules": rules}]}, file)
            file.flush()
            said = self.promtool("check", "rules", "--lint=none", file.name)
        self.assertIn(f"{len(rules)} rules found", said)
