"""The pages under docs/: their commands parse, their links lead to pages, and the reference names every public name."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from spvfilter import cli, errors
from spvfilter.cli.arguments import Parser
from spvfilter.cli.commands import HELP
from support.project.pages import DOCS, PAGES, PROGRAMS
from support.project.publicnames import public
from support.project.rules import assert_none

ROOT = DOCS.parent
FOREIGN = {"cd", "dask", "echo", "git", "mkdir", "openssl", "pip", "python3", "sqlite3"}  # commands of other programs
CODE_COLUMNS = 88
GENERATED = ("api/", "cli/", "../reference/api/", "../reference/cli/", "../reference/errors", "../reference/formats")


def blocks(page: Path, kind: str) -> list[str]:
    """The code blocks of one kind in a page."""
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> Iterator[str]:
    """The command lines of a page, with continued lines joined and without comments."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"(^|\s)# .*", "", line).strip()
            if command:
                yield command


COMMANDS = [(str(page.relative_to(ROOT)), line) for page in (ROOT / "README.md", *PAGES) for line in commands(page)]


def parses(line: str) -> bool:
    """True if our command accepts the line. Lines of other programs are not checked."""
    words = shlex.split(line.rpartition(" | ")[2].partition(" < ")[0].partition(" > ")[0])
    if words[0] in FOREIGN or words[0].startswith("scripts/"):
        return True
    if words[0] != "spvfilter" or words[1] not in {*cli.COMMANDS, "help", "--version"}:
        return False
    if words[1] in ("help", "--version"):
        return cli.main(words[1:]) == 0
    parser = Parser(prog=f"spvfilter {words[1]}")
    import_module(f"spvfilter.cli.{cli.COMMANDS[words[1]]}").configure(parser)
    try:
        return bool(parser.parse(words[2:]))
    except SystemExit as ended:  # of --help too
        return ended.code == 0
    except errors.SpvFilterError:
        return False


def test_commands_parse(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(COMMANDS) > 150
    assert_none(f"{page}: {line}" for page, line in COMMANDS if not parses(line))
    assert not parses("spvfilter nonsense")
    assert not parses("spvfilter scan --nonsense")
    assert not parses("nonsense")


def test_every_kind_of_block_is_tested() -> None:
    tested = {"python", "sh", "text", "{toctree}", "{raw}", ""}
    kinds = {page: re.findall(r"^```(\S*)\n", page.read_text(encoding="utf-8"), re.MULTILINE) for page in PAGES}
    assert_none(f"{page}: {kind}" for page in PAGES for kind in kinds[page] if kind not in tested)


def test_code_is_narrow() -> None:
    found = [(page, block) for page in PAGES for kind in ("python", "sh", "text") for block in blocks(page, kind)]
    assert len(found) > 200
    assert_none(f"{page}: {line}" for page, block in found for line in block.splitlines() if len(line) > CODE_COLUMNS)


def lost(page: Path) -> list[str]:
    """Links of a page to missing files."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    return [link for link in links if not (page.parent / link).exists() and not link.startswith(GENERATED)]


def test_links_lead_to_pages() -> None:
    assert_none(f"{page}: {link}" for page in PAGES for link in lost(page))


def test_every_page_is_in_the_navigation() -> None:
    shown = (DOCS / "index.md").read_text(encoding="utf-8")
    names = [str(page.relative_to(DOCS).with_suffix("")) for page in PAGES]
    assert [name for name in names if name != "index" and not re.search(rf"^{name}$", shown, re.MULTILINE)] == []


def test_tutorials_and_recipes_have_programs() -> None:
    pages = {program[0] for program in PROGRAMS}
    names = (
        "bitcoinlib",
        "books",
        "descriptor",
        "events",
        "export",
        "follow",
        "labels",
        "match",
        "psbt",
        "rescan",
        "scan",
        "send",
        "shop",
        "transactions",
    )
    assert {"tutorial/wallet.md", *(f"howto/{name}.md" for name in names)} <= pages


def listed(page: str) -> list[tuple[str, str]]:
    """Names and texts in the first table of a page of the reference."""
    return re.findall(r"^\| `([a-z][\w.]*)` \| (.+) \|$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)


def test_reference_lists_modules_and_commands_with_their_own_words() -> None:
    rooms = sorted({"testing", *(room for room, _, _ in public())})
    docs = {f"spvfilter.{room}": str(import_module(f"spvfilter.{room}").__doc__) for room in rooms}
    assert listed("reference/api.md") == [(name, " ".join(doc.split("\n\n")[0].split())) for name, doc in docs.items()]
    assert listed("reference/cli.md") == re.findall(r"^  ([a-z]+) +([a-z].*)$", HELP, re.MULTILINE)


def test_reference_names_every_public_name(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(DOCS / "generate.py"), str(tmp_path / "source")], check=True)
    reference = tmp_path / "source/reference"
    for room, name, _ in public():
        page = (reference / f"api/{room}.rst").read_text(encoding="utf-8")
        assert re.search(
            rf"^\.\. (autoclass|autofunction|py:data):: spvfilter\.{re.escape(room)}\.{name}$", page, re.MULTILINE
        ), name
    tree = (reference / "errors.md").read_text(encoding="utf-8")
    for name in errors.__all__:
        assert f"- `{name}`" in tree, name
    for command in cli.COMMANDS:
        page = (reference / f"cli/{command}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# spvfilter {command}\n")
    assert "\n| [`spvfilter.bloom.redis`](api/bloom.redis.rst) | " in (reference / "api.md").read_text(encoding="utf-8")
    assert "\n| [`scan`](cli/scan.md) | " in (reference / "cli.md").read_text(encoding="utf-8")
    assert "`--dask`" in (reference / "cli/scan.md").read_text(encoding="utf-8")
    assert "CREATE TABLE unspent" in (reference / "database.md").read_text(encoding="utf-8")
    assert "SPVBLOOM" in (reference / "formats.md").read_text(encoding="utf-8")
