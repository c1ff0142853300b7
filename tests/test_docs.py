"""The documentation: its programs print the output shown, its commands parse, its pages follow the rules of style."""

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
from support.publicnames import public
from support.redisserver import running_redis

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
PROGRAM = re.compile(r"```python\n((?:(?!```).)*)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
PROGRAMS = [
    (str(page.relative_to(DOCS)), number, code, shown)
    for page in PAGES
    for number, (code, shown) in enumerate(PROGRAM.findall(page.read_text(encoding="utf-8")))
]
MARKS = {
    "add_descriptor": pytest.mark.descriptors,
    "wpkh(": pytest.mark.descriptors,
    "read_wallet_file": pytest.mark.descriptors,
    "bdkpython": pytest.mark.kyoto,
    "ElectrumServer": pytest.mark.electrum,
    "pyarrow": pytest.mark.columns,
    "polars": pytest.mark.columns,
    'v2="require"': pytest.mark.v2,
}
REDIS_URL = "redis://localhost:6379/0"
RECIPES = ("'found/matches.parquet'", "tables/{table}")  # files of recipes, which tests/scan/test_recipes.py runs
FOREIGN = {"cd", "dask", "echo", "git", "mkdir", "openssl", "pip", "python3", "sqlite3"}  # commands of other programs
AGENT = re.compile(r"(?<=/spvfilter:)[^/]+")  # the version in a user agent
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


def run(code: str, folder: Path) -> str:
    """The standard output of a program, which must end without a message."""
    script = folder / "example.py"
    script.write_text(code, encoding="utf-8")
    printed = set()
    for _ in range(2 if "store=" in code else 1):  # the database that a run leaves must not stop the next run
        done = subprocess.run(
            [sys.executable, "-W", "error", script], capture_output=True, text=True, cwd=folder, timeout=300
        )
        assert (done.returncode, done.stderr) == (0, "")
        printed.add(done.stdout)
    (only,) = printed
    return only


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        pytest.param(code, shown, id=f"{page}:{number}", marks=[mark for word, mark in MARKS.items() if word in code])
        for page, number, code, shown in PROGRAMS
        if REDIS_URL not in code and not any(file in code for file in RECIPES)
    ],
)
def test_program_prints_the_output_shown(code: str, shown: str, tmp_path: Path) -> None:
    if "pytest_plugins" in code:
        (tmp_path / "test_example.py").write_text(code, encoding="utf-8")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_example.py"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, shown) == (0, ""), done.stdout
    else:
        assert AGENT.sub("", run(code, tmp_path)) == AGENT.sub("", shown) != ""


@pytest.mark.redis
@pytest.mark.parametrize(("code", "shown"), [(code, shown) for _, _, code, shown in PROGRAMS if REDIS_URL in code])
def test_program_with_redis_prints_the_output_shown(code: str, shown: str, tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        assert run(code.replace(REDIS_URL, server.url), tmp_path) == shown


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_command_parses(page: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line.rpartition(" | ")[2].partition(" < ")[0].partition(" > ")[0])
    if words[0] in FOREIGN or words[0].startswith("scripts/"):
        return
    assert words[0] == "spvfilter", page
    if words[1] in ("help", "--version"):
        assert cli.main(words[1:]) == 0
        return
    parser = Parser(prog=f"spvfilter {words[1]}")
    import_module(f"spvfilter.cli.{cli.COMMANDS[words[1]]}").configure(parser)
    if words[2:] == ["--help"]:
        with pytest.raises(SystemExit, match="0"):
            parser.parse(words[2:])
    else:
        assert parser.parse(words[2:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_kind_of_block_is_tested(page: Path) -> None:
    kinds = re.findall(r"^```(\S*)\n", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(kinds) <= {"python", "sh", "text", "{toctree}", "{raw}", ""}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_code_is_narrow(page: Path) -> None:
    lines = [line for kind in ("python", "sh", "text") for block in blocks(page, kind) for line in block.splitlines()]
    assert [line for line in lines if len(line) > CODE_COLUMNS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_to_pages(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    assert [link for link in missing if not link.startswith(GENERATED)] == []


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
    assert "`--dask`" in (reference / "cli/scan.md").read_text(encoding="utf-8")
    assert "CREATE TABLE unspent" in (reference / "database.md").read_text(encoding="utf-8")
    assert "SPVBLOOM" in (reference / "formats.md").read_text(encoding="utf-8")
