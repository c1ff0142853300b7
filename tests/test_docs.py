"""The documentation: every program in it runs and prints what it says, every command line is understood, and every link
leads somewhere.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from spvfilter import cli, errors
from spvfilter.cli.arguments import Parser
from support.publicnames import public
from support.redisserver import running_redis

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
PROGRAM = re.compile(r"```python\n((?:(?!```).)*)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
PROGRAMS = [
    (str(page.relative_to(DOCS)), number, code, shown)
    for page in PAGES
    for number, (code, shown) in enumerate(PROGRAM.findall(page.read_text(encoding="utf-8")))
]
COMMANDS = [
    (str(page.relative_to(DOCS)), line.partition(" #")[0].strip())
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines()
]
MARKS = {"add_descriptor": pytest.mark.descriptors, "pyarrow": pytest.mark.columns, "polars": pytest.mark.columns}
REDIS_URL = "redis://localhost:6379/0"
FOUND = "'found/matches.parquet'"  # of tests/scan/test_recipes.py, which makes it
FOREIGN = {"python3", "pip", "dask"}  # commands that are not ours


def run(code: str, folder: Path) -> str:
    script = folder / "example.py"
    script.write_text(code, encoding="utf-8")
    printed = set()
    for _ in range(2 if "store=" in code else 1):  # the file that a run leaves must not stop the next one
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
        if REDIS_URL not in code and FOUND not in code
    ],
)
def test_a_program_prints_what_its_page_shows(code: str, shown: str, tmp_path: Path) -> None:
    if "pytest_plugins" in code:
        (tmp_path / "test_example.py").write_text(code, encoding="utf-8")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_example.py"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, shown) == (0, ""), done.stdout
    else:
        assert run(code, tmp_path) == shown != ""


@pytest.mark.redis
@pytest.mark.parametrize(("code", "shown"), [(code, shown) for _, _, code, shown in PROGRAMS if REDIS_URL in code])
def test_a_program_with_redis_prints_what_its_page_shows(code: str, shown: str, tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        assert run(code.replace(REDIS_URL, server.url), tmp_path) == shown


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_line_is_understood(page: str, line: str) -> None:
    words = shlex.split(line.rpartition(" | ")[2].partition(" < ")[0].partition(" > ")[0])
    if words[0] in FOREIGN:
        return
    assert words[0] == "spvfilter", page
    parser = Parser(prog=f"spvfilter {words[1]}")
    import_module(f"spvfilter.cli.{cli.COMMANDS[words[1]]}").configure(parser)
    assert parser.parse(words[2:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_block_of_code_is_of_a_kind_that_is_tested(page: Path) -> None:
    kinds = re.findall(r"^```(\S*)\n", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(kinds) <= {"python", "sh", "text", "{toctree}", "{raw}", ""}


def test_the_tutorial_and_the_recipes_have_programs() -> None:
    pages = {program[0] for program in PROGRAMS}
    assert len(PROGRAMS) >= 10
    assert {
        "tutorial/wallet.md",
        "howto/shop.md",
        "howto/compact.md",
        "howto/scan.md",
        "howto/redis.md",
        "howto/parquet.md",
    } <= pages


def test_the_reference_names_every_public_name(tmp_path: Path) -> None:
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
