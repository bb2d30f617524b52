"""What is installed on plain hosts: unit, example configuration, manual, completions."""

import configparser
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest

import chart
import expositions
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


class Package(unittest.TestCase):
    def prerm(self, why, *codes):
        """The calls of the script before a removal, to a program that ends with these codes."""
        with tempfile.TemporaryDirectory() as root:
            root = pathlib.Path(root)
            program = root / "pmuscope"
            program.write_text(
                f'#!/bin/sh\necho "$@" >>{root}/calls\n'
                f"exit $(sed -n $(wc -l <{root}/calls)p {root}/codes)\n"
            )
            program.chmod(0o755)
            (root / "codes").write_text("".join(f"{code}\n" for code in codes))
            (root / "calls").touch()
            text = (DEPLOY / "debian" / "prerm").read_text()
            text = text.replace("/usr/bin/pmuscope", str(program))
            # The unit of this machine is not ours to stop.
            text = text.replace("/run/systemd/system", str(root / "none"))
            (root / "prerm").write_text(text)
            code, said = run("sh", str(root / "prerm"), why)
            self.assertEqual(code, 0, said)
            return (root / "calls").read_text().splitlines()

    def test_a_removal_unpins(self):
        configured = "agent --config /etc/pmuscope/agent.toml --unpin"
        self.assertEqual(self.prerm("remove", 0), [configured])
        # A configuration that does not read leaves the place of the example's pins.
        self.assertEqual(self.prerm("remove", 1, 0), [configured, "agent --unpin"])
        self.assertEqual(self.prerm("remove", 1, 1), [configured, "agent --unpin"])
        self.assertEqual(self.prerm("upgrade"), [])


class Completions(unittest.TestCase):
    """The completions in deploy/ are those of the program: `cargo xtask docs` writes them."""

    def test_the_completions_are_those_of_the_program(self):
        for shell, name in (("bash", "pmuscope"), ("fish", "pmuscope.fish"), ("zsh", "_pmuscope")):
            code, said = run(expositions.PMUSCOPE, "completions", shell)
            self.assertEqual(code, 0, said)
            self.assertEqual((DEPLOY / "completions" / name).read_text(), said, shell)

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_events_and_metrics_are_completed(self):
        with tempfile.TemporaryDirectory() as directory:
            os.symlink(expositions.PMUSCOPE, os.path.join(directory, "pmuscope"))
            path = directory + os.pathsep + os.environ["PATH"]
            script = f"""
                source {DEPLOY / "completions/pmuscope"}
                COMP_LINE="$1" COMP_POINT=${{#1}} COMP_TYPE=9 COMP_CWORD=9
                COMP_WORDS=(not used)
                _pmuscope pmuscope "" ""
                printf '%s\n' "${{COMPREPLY[@]}}"
            """
            for line, expected in (
                ("pmuscope stat -e task-c", "task-clock"),
                ("pmuscope stat -e page-faults,task-c", "page-faults,task-clock"),
                ("pmuscope stat -M cpus_u", "cpus_used"),
                # Bash replaces what follows the colon.
                ("pmuscope top -M ipc,group:wa", "wait"),
                ("pmuscope st", "stat"),
                ("pmuscope ", "doctor"),
            ):
                command = ["bash", "-c", script, "bash", line]
                said = subprocess.run(
                    command, env=os.environ | {"PATH": path}, stdout=subprocess.PIPE, text=True, check=True
                )
                self.assertIn(expected, said.stdout.split("\n"), line)

    def test_the_manual_has_every_verb_of_the_readme(self):
        verbs = {path.stem.removeprefix("pmuscope-") for path in (DEPLOY / "man").iterdir()}
        readme = set(re.findall(r"`pmuscope ([a-z]+)", (chart.ROOT / "README.md").read_text()))
        self.assertEqual(readme - verbs, set())

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_man_has_no_complaint(self):
        for page in sorted((DEPLOY / "man").iterdir()):
            words = ["man", "--warnings", "--local-file", str(page)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "", page)


def chart_values():
    return yaml.safe_load((chart.CHART / "values.yaml").read_text())
