"""Blocks that `spvfilter scan` reads once, from beginning to end: standard input and compressed files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from spvfilter.cli.arguments import standard_input
from spvfilter.compression import is_compressed
from spvfilter.errors import FormatError, ParameterError, SourceError
from spvfilter.network import Network
from spvfilter.scan.streams import stream_blocks

STDIN = "-"


def is_stream(paths: Sequence[str], *, in_parts: bool = False) -> bool:
    """Return True if the PATHs are standard input, pipes such as <(…) or compressed files.

    Args:
        paths: The PATHs of the scan.
        in_parts: True for a scan with --out, which has to read blocks again.

    Raises:
        ParameterError: Some of the PATHs are compressed and others are not, or `in_parts` is True.
    """
    packed = [path for path in paths if is_compressed(path) or _is_pipe(path)]
    what = "a pipe" if packed and _is_pipe(packed[0]) else "compressed"
    if packed and in_parts:
        why = (
            "a pipe: give files" if _is_pipe(packed[0]) else "compressed files: decompress it first (gzip -d, zstd -d)"
        )
        raise ParameterError(f"{packed[0]} is {what}, but a scan with --out cannot read {why}")
    if packed and len(packed) < len(paths):
        raise ParameterError(
            f"{packed[0]} is {what} and {next(path for path in paths if path not in packed)} is not: scan them"
            " separately, or give only uncompressed files"
        )
    return bool(packed) or list(paths) == [STDIN]


def _is_pipe(path: str) -> bool:
    """Return True if a PATH is a pipe, such as the shell's <(…). A pipe cannot be read twice."""
    return path != STDIN and Path(path).is_fifo()


def named(paths: Sequence[str]) -> str:
    """Return the names of streams for a message."""
    return "standard input" if list(paths) == [STDIN] else ", ".join(paths)


def blocks_in(paths: Sequence[str], network: Network, bad: Callable[[str, str], None]) -> Iterator[bytes]:
    """Yield the raw blocks from standard input, or from compressed files in order.

    `bad` is called with the name of the stream and a sentence for each part that isn't a block. Raises SourceError and
    OSError in the same cases as `stream_blocks`.
    """
    for path in paths:
        name = named([path])
        with _opened(path) as stream:
            try:
                yield from stream_blocks(stream, network, partial(bad, name))
            except FormatError as error:
                raise SourceError(f"{name}: line {error.offset}: {error.message}") from None
            except SourceError as error:
                raise SourceError(f"{name}: {error}") from None


def _opened(path: str) -> BinaryIO:
    return standard_input() if path == STDIN else Path(path).open("rb")
