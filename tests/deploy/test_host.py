"""What is installed on plain hosts: unit, example configuration, man page."""

import configparser
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest

import chart
import yaml

DEPLOY = chart.ROOT / "deploy"
UNIT = DEPLOY / "pmuscope.service"


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class Unit(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_takes_the_unit(self):
        with tempfile.TemporaryDirectory() as root:
            # verify looks at the binary too, which is not installed here.
            text = UNIT.read_text().replace("/usr/bin/pmuscope", "/bin/true")
            unit = os.path.join(root, UNIT.name)
            with open(unit, "w", encoding="utf-8") as file:
                file.write(text)
            code, said = run("systemd-analyze", "verify", "--man=no", unit)
            ours = [line for line in said.splitlines() if "pmuscope" in line]
            self.assertEqual((code, ours), (0, []), said)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_the_sandbox_is_as_tight_as_it_was(self):
        help_text = run("systemd-analyze", "--help")[1]
        if "--offline" not in help_text:
            self.skipTest("this systemd-analyze rates no unit that is not loaded")
        # 2.4 is what is left by running as root with CAP_BPF, the system calls bpf and
        # perf_event_open, and the host's network and processes.
        code, said = run(
            "systemd-analyze", "security", "--offline=true", "--threshold=25", str(UNIT)
        )
        self.assertEqual(code, 0, said)

    def test_the_unit_has_the_rights_of_the_chart(self):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read(UNIT)
        rights = {f"CAP_{it}" for it in chart_values()["capabilities"]["base"]}
        self.assertEqual(set(unit["Service"]["CapabilityBoundingSet"].split()), rights)
        # In place of CAP_IPC_LOCK.
        self.assertEqual(unit["Service"]["LimitMEMLOCK"], "infinity")

    def test_paths_are_those_of_the_example(self):
        text = UNIT.read_text()
        toml = tomllib.loads((DEPLOY / "agent.toml").read_text())
        self.assertEqual(toml["run"]["directory"], "/run/pmuscope")
        self.assertIn("RuntimeDirectory=pmuscope\n", text)
        self.assertEqual(toml["state"]["path"], "/run/pmuscope/state")
        self.assertIn("RuntimeDirectoryPreserve=yes\n", text)
        self.assertTrue(toml["pins"]["path"].startswith("/sys/fs/bpf/"))
        self.assertIn("ReadWritePaths=/sys/fs/bpf\n", text)
        self.assertTrue(toml["http"]["listen"].startswith("127.0.0.1:"))
        self.assertEqual(toml["http"]["listen"].split(":")[1], str(chart_values()["http"]["port"]))


class Man(unittest.TestCase):
    def test_the_page_has_every_verb(self):
        verbs = set(re.findall(r"^\.B ([a-z]+)$", (DEPLOY / "pmuscope.1").read_text(), re.M))
        readme = set(re.findall(r"`pmuscope ([a-z]+)", (chart.ROOT / "README.md").read_text()))
        self.assertEqual(readme - verbs, set())

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_man_has_no_complaint(self):
        code, said = run("man", "--warnings", "--local-file", str(DEPLOY / "pmuscope.1"))
        self.assertEqual(code, 0)
        self.assertNotIn("warning", said)


def chart_values():
    return yaml.safe_load((chart.CHART / "values.yaml").read_text())
