"""The package and a part of the suite run in a process without POSIX, as support.commands.windows makes it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

import spvfilter
from support.commands import windows
from support.project.installed import ROOT
from support.project.rules import assert_none

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux pretends to be Windows")

PACKAGE = Path(spvfilter.__file__).parent
TESTS = ROOT / "tests"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
IMPORT_ALL = """
from importlib import import_module
from support.commands.windows import pretend
pretend()
for name in {names}:
    import_module(name)
"""
RUN_COMMANDS = """
import os
import re
from support.commands.windows import pretend
pretend()
from spvfilter.cli import main
reading, writing = os.pipe()
os.write(writing, b"mine 2\\nstatus\\nquit\\n")
os.close(writing)
os.dup2(reading, 0)
assert main(["node", "--port", "0"]) == 0
assert main(["demo"]) == 0
"""
# Tests of rooms that use files, memory maps, locks and other processes.
SELECTION = """
bloom/test_filter.py bloom/test_fileformat.py store/test_store.py
wallet/test_reader.py watch/test_textfile.py watch/test_watchlist.py
"""
COMPUTING = ("chain", "filters", "wire")
SYSTEM = {*map(attrgetter("__name__"), windows.MISSING), *windows.MODULES, "msvcrt"}
SYSTEM |= {"asyncio", "ctypes", "multiprocessing", "platform", "shutil", "socket", "subprocess", "sys", "tempfile"}
SYSTEM |= {"spvfilter.files", "spvfilter._system"}


def environment() -> dict[str, str]:
    paths = [str(TESTS), str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "SPVFILTER_BACKEND": "pure",
        "SPVFILTER_EFFORT": "quick",
        "SPVFILTER_REQUIRE": "",
    }


def python(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=300)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def imported(path: Path) -> set[str]:
    """Names of the modules that a module imports anywhere."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.slow
def test_every_module_is_imported_without_posix() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "_pyinstaller"]  # it needs PyInstaller
    paths = [path.relative_to(PACKAGE.parent).with_suffix("") for path in files]
    names = sorted(".".join(path.parts).removesuffix(".__init__") for path in paths if path.stem != "__main__")
    assert len(names) > 300
    python("-c", IMPORT_ALL.format(names=names))


@pytest.mark.long
def test_commands_run_without_posix() -> None:
    printed = python("-c", RUN_COMMANDS)
    assert "height 112, transactions in the mempool: 0" in printed
    assert "--help." in printed.splitlines()[-1]


@pytest.mark.long
def test_tests_pass_without_posix() -> None:
    files = [str(TESTS / name) for name in SELECTION.split()]
    plugins = ["-p", "support.commands.windows", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
    printed = python("-m", "pytest", *plugins, "--capture=sys", *files)
    assert " passed" in printed
    assert "they need posix: run on Linux or macOS" in printed


@pytest.mark.parametrize("room", COMPUTING)
def test_a_computing_room_imports_nothing_of_the_system(room: str) -> None:
    """Its tests need not run without POSIX."""
    assert_none(
        f"{path.relative_to(PACKAGE)} imports {', '.join(sorted(found))}"
        for path in (PACKAGE / room).rglob("*.py")
        if (found := imported(path) & SYSTEM)
    )


@pytest.mark.long
def test_modules_of_posix_are_imported_in_one_place() -> None:
    """The type checker finds names that Windows lacks, but not modules: it sees them as empty."""
    for path in PACKAGE.rglob("*.py"):
        assert not imported(path) & {*windows.MODULES, "msvcrt"} or path.name == "_system.py", path


@pytest.mark.slow
def test_text_files_have_an_encoding() -> None:
    """The default encoding of Windows is not UTF-8."""
    python(
        "-X",
        "warn_default_encoding",
        "-c",
        RUN_COMMANDS.replace("from support.commands.windows import pretend\npretend()", ""),
    )


def test_list_of_portable_tests_names_existing_files() -> None:
    lines = (TESTS / "portable.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not (ROOT / line.removeprefix("--ignore=")).exists()] == []


@pytest.mark.skipif(not WORKFLOW.exists(), reason="an sdist has no configuration of the runners")
def test_actions_of_hosted_runners_have_whole_versions() -> None:
    workflow = WORKFLOW.read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", workflow)
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+\.\d+\.\d+", name) for name in used), used
    assert "secrets." not in workflow
