"""Tests an installed wheel under every supported Python that is found, two at a time.

The environments are kept in build/versions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[3]
ABOUT = """
import platform, sys, sysconfig
print(platform.python_version(), "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")
"""
QUICK = ["bloom", "chain", "filters", "node", "p2p", "scan", "store", "wallet", "watch", "wire"]
# Tests of the source tree, which an installed package does not have.
OF_THE_TREE = ["bench_report", "calculator", "changelog", "docs", "examples", "readme"]
OF_PYTHON = ["tests/repository/test_public.py"]  # rules whose outcome depends on Python's version


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter."""

    path: str
    """Path of the program."""
    version: str
    """Version, such as 3.13.0."""
    free_threaded: bool
    """True for a free-threaded build, which cannot load the wheel of the others."""

    @property
    def name(self) -> str:
        """Version without the patch number, such as 3.13, with a `t` behind it if it is free-threaded."""
        return self.version.rpartition(".")[0] + "t" * self.free_threaded


def python_at(path: str) -> Python:
    version, *free = subprocess.run([path, "-c", ABOUT], capture_output=True, text=True, check=True).stdout.split()
    return Python(path, version, bool(free))


def build(python: Python, folder: str) -> str:
    command = [ROOT / "scripts/dev/packaging/build", python.path, folder]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def quietly(*command: str | Path, env: dict[str, str] | None = None) -> tuple[int, str]:
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=env)
    return ran.returncode, ran.stdout


def install(python: Python, wheel: str, extras: str) -> Path:
    """Install the wheel with extras in an environment, and return the path of its interpreter."""
    home = ROOT / "build/versions" / (python.version + "t" * python.free_threaded)
    inside = home / "bin/python"
    for command in (
        [python.path, "-m", "venv", home],
        [inside, "-m", "pip", "uninstall", "--quiet", "--yes", "spvfilter"],
        [
            inside,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            f"spvfilter[{extras}] @ {Path(wheel).resolve().as_uri()}",
        ],
    ):
        code, output = quietly(*command)
        if code:
            raise RuntimeError(f"{' '.join(map(str, command))}: {output}")
    return inside


def test(tests: list[str], extras: str, python: Python, wheel: str) -> tuple[bool, str, str]:
    """Run tests. Returns True if they passed, a line for the table, and the output of pytest."""
    required = ",".join(filter(None, ["native", os.environ.get("SPVFILTER_REQUIRE")]))
    env = {"SPVFILTER_EFFORT": "quick", **os.environ, "SPVFILTER_REQUIRE": required}
    started = time.monotonic()
    inside = install(python, wheel, extras)
    code, output = quietly(inside, "-m", "pytest", "--installed", "-p", "no:cacheprovider", *tests, env=env)
    summary = output.rstrip().rpartition("\n")[2].strip("= ")
    return (
        code == 0,
        (
            f"{python.name:<6} {python.version:<8} {Path(wheel).name}: {summary} ({time.monotonic() - started:.0f} s"
            " with installing)"
        ),
        output,
    )


def main() -> int:
    parser = ArgumentParser(prog="scripts/dev/versions", description=__doc__, allow_abbrev=False)
    parser.add_argument("--wheel", help="wheel to test; by default one is built from the tree")
    parser.add_argument(
        "--extras",
        default="cli,electrum,redis,rpc,socks,test,zmq",
        help="extras to install with the wheel (%(default)s)",
    )
    parser.add_argument("--newest", action="store_true", help="test only under the newest Python")
    options, tests = parser.parse_known_args()
    alone = [
        path for path in sorted(ROOT.glob("tests/test_*.py")) if path.stem.removeprefix("test_") not in OF_THE_TREE
    ]
    tests = tests or [
        *(f"tests/{room}" for room in QUICK),
        *(str(path.relative_to(ROOT)) for path in alone),
        *OF_PYTHON,
    ]
    builder = python_at(os.environ.get("PYTHON") or str(ROOT / ".venv/bin/python"))
    command = [ROOT / "scripts/dev/pythons"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    others = [python for python in map(python_at, listed) if python.name != builder.name]
    if not others:
        sys.exit(f"versions: found no other supported Python than {builder.name}")
    if options.newest:
        others = others[-1:]
    with TemporaryDirectory() as work:
        shared = options.wheel or build(builder, f"{work}/shared")
        wheels = [build(python, f"{work}/{python.name}") if python.free_threaded else shared for python in others]
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(partial(test, tests, options.extras), others, wheels))
    for passed, _, output in results:
        if not passed:
            print(output)
    print(*(line for _, line, _ in results), sep="\n")
    return 0 if all(passed for passed, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
