"""Derivers: processes that derive the scripts of descriptors in parallel.

Deriving a script takes 10 to 20 microseconds, and the Python part of it holds the GIL, so 400,000 scripts occupy one
core for up to eight seconds.

A deriver is a new Python process that imports only this package. `multiprocessing` would import the program's main
module again, and so run a program without `if __name__ == "__main__"` a second time. A deriver reads descriptors, which
contain only public keys, from standard input, and writes scripts to standard output.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from spvfilter.errors import ParameterError
from spvfilter.network import Network
from spvfilter.watch.descriptor.descriptor import Descriptor, LazyDescriptor, parse_descriptor
from spvfilter.watch.keychain import Keychain

MIN_KEYS = 50_000
"""Smallest number of keys for which derivers are started (our choice). One core derives that many in about a second."""
MAX_DERIVERS = 8
"""Largest number of derivers that run at the same time (our choice)."""
PROGRAM = "from spvfilter.watch.derivers import serve; serve()"

Window = list[tuple[bytes, ...]]
"""The scripts of consecutive indexes."""


class _Span(NamedTuple):
    """Consecutive indexes of a descriptor."""

    name: str
    """Name of the keychain."""
    descriptor: str
    """The descriptor with its checksum."""
    network: str
    """Name of the network."""
    first: int
    """First index."""
    end: int
    """First index after the span."""


def derive(wanted: Iterable[tuple[Keychain, range]]) -> dict[str, Window]:
    """Derive the scripts of keychains' indexes in several processes, and return them keyed by the name of the keychain.

    The result is empty if there are fewer than MIN_KEYS keys to derive or only one core, or if a process fails.
    Keychains without a descriptor are left out.

    Args:
        wanted: Keychains, each with the indexes to derive.
    """
    spans, keys = list[_Span](), 0
    for keychain, indexes in wanted:
        source = getattr(keychain.scripts_at, "__self__", None)
        if indexes and isinstance(source, (Descriptor, LazyDescriptor)):
            spans.append(_Span(keychain.name, source.text, source.network.name, indexes.start, indexes.stop))
            keys += keychain.keys * len(indexes)
    if keys < MIN_KEYS or (number := usable_cores()) < 2 or not _is_python():
        return {}
    try:
        return _joined(_run(list(_shares(spans, min(number, MAX_DERIVERS)))))
    except (OSError, ValueError, LookupError, TypeError, ParameterError) as error:
        cause = f"{type(error).__name__}: {error}"[:200]
        logging.getLogger(__name__).info("a process that derives scripts failed, so this process takes over: %s", cause)
        return {}


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # Linux
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def _is_python() -> bool:
    """Return True if `sys.executable` is a Python interpreter, not a program that embeds one."""
    name = os.path.basename(sys.executable or "").lower()  # noqa: PTH119  pathlib takes long to import
    return name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


def _shares(spans: Sequence[_Span], number: int) -> Iterator[list[_Span]]:
    """Divide the spans into shares with about the same number of indexes. A span may be split."""
    total = sum(each.end - each.first for each in spans)
    size, share, left = -(-total // number), list[_Span](), -(-total // number)
    for span in spans:
        first = span.first
        while first < span.end:
            end = min(span.end, first + left)
            share.append(span._replace(first=first, end=end))
            left, first = left - (end - first), end
            if not left:
                yield share
                share, left = [], size
    if share:
        yield share


def _run(shares: Sequence[Sequence[_Span]]) -> Iterator[tuple[_Span, Window]]:
    """Yield the scripts of each span, derived in one process for each share.

    Raises OSError, ValueError, LookupError or TypeError if a process fails.
    """
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)  # noqa: PTH109
    command = [sys.executable, "-P", "-c", PROGRAM]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for share in shares:
            process = subprocess.Popen(  # noqa: S603  a constant program
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # a Ctrl-C reaches only this process, which then ends the derivers
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
            processes.append(process)
            assert process.stdin is not None
            process.stdin.write(json.dumps([each[1:] for each in share]).encode("ascii"))
            process.stdin.close()  # the process writes nothing before it has read everything
        for share, process in zip(shares, processes, strict=True):
            assert process.stdout is not None
            windows = json.loads(process.stdout.read())
            for span, window in zip(share, windows, strict=True):
                yield span, [tuple(map(bytes.fromhex, scripts)) for scripts in window]
    finally:
        for process in processes:
            process.kill()  # no effect on a process that has ended
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # bytes for a process that has ended
                        pipe.close()


def _joined(found: Iterable[tuple[_Span, Window]]) -> dict[str, Window]:
    """Return the scripts, keyed by the name of the keychain. Raises ValueError if a span is incomplete."""
    windows: dict[str, Window] = {}
    for span, window in found:
        if len(window) != span.end - span.first or not all(window):
            raise ValueError(f"expected {span.end - span.first} indexes, got {len(window)}")
        windows.setdefault(span.name, []).extend(window)
    return windows


def serve() -> None:
    """Read spans from standard input, and write their scripts to standard output. A deriver runs this function."""
    windows = []
    for text, network, first, end in json.loads(sys.stdin.buffer.read()):
        (descriptor,) = parse_descriptor(text, Network.named(network), is_stored=True)
        windows.append([[script.hex() for script in scripts] for scripts in descriptor.window(range(first, end))])
    sys.stdout.write(json.dumps(windows))
