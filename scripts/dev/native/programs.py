"""Compiles objects and programs of the kernel's C code, once for each source text and each set of flags."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CSRC = ROOT / "spvfilter/kernel/csrc"
TESTS = ROOT / "tests/native"
OBJECTS = ROOT / "build/native"
BASE = ("-std=c11", "-g", "-pthread", f"-I{CSRC}", f"-I{TESTS}")


def kernel_sources() -> list[Path]:
    """All C files of the kernel, except those of the Python binding."""
    return sorted(path for path in CSRC.rglob("*.c") if "binding" not in path.relative_to(CSRC).parts)


def shared_sources() -> list[Path]:
    """The sources that the self-test and the fuzz targets share: checks and oracles."""
    return [TESTS / "check.c", *sorted(TESTS.glob("oracle*.c"))]


# Functions that tests/native/selftest_memory.c and selftest_processors.c replace.
WRAPPED = ("malloc", "calloc", "realloc", "aligned_alloc", "mmap", "munmap", "spv_cpu")


def selftest_sources() -> list[Path]:
    """The sources of the self-test."""
    return sorted(TESTS.glob("selftest*.c"))


def targets() -> list[str]:
    """The names of the fuzz targets."""
    return sorted(path.stem for path in (TESTS / "fuzz").glob("*.c"))


@dataclass(frozen=True)
class Way:
    """How a program is compiled."""

    compiler: str
    """Name of the compiler."""
    common: tuple[str, ...]
    """Flags for every file and for the link."""
    kernel: tuple[str, ...] = ()
    """Further flags for the kernel and the targets."""
    link: tuple[str, ...] = ()
    """Further flags for the link."""

    def command(self, source: Path) -> list[str]:
        """Make the command line of the compiler up to the name of the file.

        Oracles get no coverage, as their loops teach the fuzzer nothing.
        """
        return [self.compiler, *BASE, *self.common, *(() if source in shared_sources() else self.kernel)]


SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FAST = Way(
    "clang", ("-O2", "-DGUARDED"), ("-fsanitize-coverage=inline-8bit-counters,pc-table",), ("-fsanitize=fuzzer",)
)
DEEP = Way("clang", ("-O2", *SANITIZERS), ("-fsanitize=fuzzer-no-link",), ("-fsanitize=fuzzer",))


def digest(*parts: str | bytes) -> str:
    """Hash several texts to 24 hex digits."""
    hash = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hash.update(len(data).to_bytes(8, "little") + data)
    return hash.hexdigest()[:24]


def headers_digest() -> str:
    """Hash all headers of the kernel and of the tests."""
    return digest(*(path.read_bytes() for folder in (CSRC, TESTS) for path in sorted(folder.rglob("*.h"))))


@cache
def version(compiler: str) -> str:
    """Ask a compiler for its version."""
    return subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout


def objects(way: Way, sources: Iterable[Path]) -> list[Path]:
    """Compile the sources. An object that an earlier call made from the same text is used again."""
    headers = headers_digest()

    def compile_one(source: Path) -> Path:
        command = way.command(source)
        made = OBJECTS / f"{source.stem}-{digest(headers, source.read_bytes(), version(way.compiler), *command)}.o"
        if not made.exists():
            fresh = made.with_suffix(".new")
            subprocess.run([*command, "-c", str(source), "-o", str(fresh)], check=True)
            fresh.rename(made)
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, sources))


def program(way: Way, name: str, sources: Iterable[Path]) -> Path:
    """Build a program of these files, the kernel and the shared sources of the tests."""
    OBJECTS.mkdir(parents=True, exist_ok=True)
    with (OBJECTS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits, and then uses the compiled objects
        parts = [str(made) for made in objects(way, [*sources, *shared_sources(), *kernel_sources()])]
        made = OBJECTS / f"{name}-{digest(*parts, *way.link)}"
        if not made.exists():
            fresh = made.with_suffix(".new")
            subprocess.run([way.compiler, *BASE, *way.common, *way.link, *parts, "-o", str(fresh)], check=True)
            fresh.rename(made)
        return made


def fuzzer(way: Way, target: str) -> Path:
    """Build the fuzzer of a target."""
    return program(way, f"fuzz-{target}", [TESTS / f"fuzz/{target}.c"])
