"""A program that PyInstaller has frozen contains the compiled kernel and every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spvfilter.cli.commands import COMMANDS

pytestmark = [pytest.mark.pyinstaller, pytest.mark.long]
ROOT = Path(__file__).parents[1]
OTHERS = """numpy pandas polars pyarrow duckdb matplotlib dask distributed bokeh IPython moto boto3 botocore aiobotocore
s3fs fsspec scipy PIL setuptools pytest hypothesis tkinter tornado cffi pycparser cryptography zmq redis sphinx docutils
jinja2 aiohttp rich pygments httpx anyio bdkpython"""
"""Large packages that commands import if they are there."""


def test_frozen_program_has_the_kernel_and_all_commands(tmp_path: Path) -> None:
    """It takes about a minute of one processor."""
    (tmp_path / "program.py").write_text("import sys\nfrom spvfilter.cli import main\nsys.exit(main())\n")
    options = [word for name in OTHERS.split() for word in ("--exclude-module", name)]
    words = [sys.executable, "-m", "PyInstaller", "--onedir", "--log-level", "ERROR", "--paths", str(ROOT), *options]
    subprocess.run([*words, "program.py"], cwd=tmp_path, check=True, timeout=1_500)

    def run(*arguments: str) -> str:
        program = tmp_path / "dist" / "program" / "program"
        ran = subprocess.run([program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert (ran.returncode, ran.stderr) == (0, ""), (arguments, ran.stderr)
        return ran.stdout

    assert "kernel: native" in run("--version")
    for name in COMMANDS:
        assert run(name, "--help").startswith("usage: " if name != "help" else "")
    assert '"bits":64' in run("bloom", "size", "--capacity", "10", "--fp-rate", ".1")
