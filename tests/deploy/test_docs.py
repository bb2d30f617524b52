"""The pages: links resolve, how-to pages are short, and the commands in them work. Blocks marked
`console run` are run; of all others the options of pmuscope are checked."""

import html
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

import chart
from expositions import PMUSCOPE

FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
# Words of shells around a command of a page.
SHELL = re.compile(r"\s(?:[|>&;]|2>|#\s)|\s#$")


def pages():
    """All tracked pages, and their texts."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(words, cwd=chart.ROOT, capture_output=True, text=True, check=True)
    files = [chart.ROOT / name for name in listed.stdout.splitlines()]
    return {file: file.read_text() for file in files if file.exists()}


def anchors(text):
    """The anchors of a page's headings, as GitHub names them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        same = sum(1 for it in found if re.fullmatch(re.escape(name) + r"(-\d+)?", it))
        found.add(f"{name}-{same}" if same else name)
    return found


def commands(block):
    """The commands of a block, without prompts; a backslash joins lines."""
    for line in re.split(r"\n| && ", block.replace("\\\n", " ")):
        line = re.sub(r"^\s*[#$] ", "", line).strip()
        yield re.sub(r"^(sudo |\w+=\S* )+", "", line)


def parsed(line):
    """The words with which pmuscope says its help, once it has parsed what is before a COMMAND."""
    words = shlex.split(SHELL.split(line, maxsplit=1)[0])[1:]
    end = words.index("--") if "--" in words else len(words)
    return [PMUSCOPE, *words[:end], "--help"]


class Links(unittest.TestCase):
    def test_every_link_resolves(self):
        texts = pages()
        headings = {file: anchors(text) for file, text in texts.items()}
        wrong = []
        for file, text in texts.items():
            for path, anchor in LINK.findall(FENCE.sub("", text)):
                if ":" in path:
                    continue
                target = pathlib.Path(os.path.normpath(file.parent / path)) if path else file
                known = target.suffix != ".md" or not anchor or anchor in headings.get(target, ())
                if not target.exists() or not known:
                    wrong.append(f"{file.relative_to(chart.ROOT)}: {path}#{anchor}")
        self.assertEqual(wrong, [])


class Picture(unittest.TestCase):
    def test_it_shows_what_stat_prints(self):
        """`cargo xtask picture` draws it: docs/picture.svg is of this program."""
        picture = (chart.ROOT / "docs/picture.svg").read_text()
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
        _, program, *words = texts[0].split()
        self.assertEqual(program, "pmuscope")
        recording = chart.ROOT / "tests/fixtures/recordings/demo.jsonl"
        # The window that xtask/src/picture.rs shows.
        words += ["--from", "3.6s", "--to", "4.5s", "--quiet", "--replay", str(recording)]
        environment = {**os.environ, "COLUMNS": "80"}
        printed = subprocess.run(
            [PMUSCOPE, *words], env=environment, capture_output=True, text=True, check=True
        )
        table = printed.stdout.split("\n\n")[0].split()
        self.assertEqual([html.unescape(text) for text in texts[1 : 1 + len(table)]], table)


class HowTo(unittest.TestCase):
    def test_each_page_has_at_most_80_lines(self):
        files = sorted((chart.ROOT / "docs/how-to").glob("*.md"))
        lengths = {file.name: len(file.read_text().splitlines()) for file in files}
        self.assertGreater(len(lengths), 5)
        self.assertEqual({name: count for name, count in lengths.items() if count > 80}, {})


class Commands(unittest.TestCase):
    def test_options_exist(self):
        checked = 0
        for file, text in pages().items():
            for _, block in FENCE.findall(text):
                for line in commands(block):
                    if re.match(r"pmuscope [a-z-]", line):
                        with self.subTest(page=file.name, line=line):
                            done = subprocess.run(parsed(line), capture_output=True, text=True)
                            self.assertEqual((done.returncode, done.stderr), (0, ""))
                        checked += 1
        self.assertGreater(checked, 30)

    @unittest.skipIf(os.geteuid() != 0, "not root: counting loads eBPF programs")
    def test_marked_blocks_run(self):
        ran = 0
        for file, text in pages().items():
            for mark, block in FENCE.findall(text):
                if mark != "console run":
                    continue
                test = self.subTest(page=file.name, block=block)
                with test, tempfile.TemporaryDirectory() as here:
                    programs = pathlib.Path(here, "bin")
                    programs.mkdir()
                    os.symlink(pathlib.Path(PMUSCOPE).resolve(), programs / "pmuscope")
                    path = f"{programs}:{os.environ['PATH']}"
                    done = subprocess.run(
                        ["bash", "-e", "-c", re.sub(r"^\$ ", "", block, flags=re.M)],
                        cwd=here,
                        env=os.environ | {"PATH": path},
                        capture_output=True,
                        text=True,
                        timeout=120,
                    )
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                ran += 1
        self.assertGreater(ran, 3)
