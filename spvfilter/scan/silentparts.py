"""The search of parts for silent payments.

It comes before the passes that match scripts, and finds their scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from spvfilter.errors import FormatError, UndoError
from spvfilter.kernel import NO_VALUE, Hit, WatchTable, pack_hits, unpack_hits
from spvfilter.network import Network
from spvfilter.scan.partfile import BlockHits, PartFile, PartSummary
from spvfilter.scan.parts import PartScanner, PartTask
from spvfilter.scan.plan import Part
from spvfilter.silent.scanner import MAX_LABELS, SilentScanner
from spvfilter.silent.search import Judged, search_block
from spvfilter.watch.silentkeychain import Found, SilentKeychain
from spvfilter.watch.silentsearch import Payment, scripts_of_record

SUFFIX = ".silent"
"""Suffix of the name of a part's file of silent payments."""
_NOTHING = b""  # a part's file contains no tweaks, because the directory of a scan may be shared


class ScanKey(NamedTuple):
    """The keys of an sp() descriptor, in the form that a worker needs."""

    private: bytes
    """Private scan key, 32 bytes."""
    spend_pubkey: bytes
    """Compressed public spend key, 33 bytes."""
    network: str
    """Name of the network."""
    labels: tuple[int, ...]
    """Numbers of the labels to search for, ascending."""

    def __repr__(self) -> str:
        return f"ScanKey({len(self.labels)} labels)"


@dataclass(frozen=True, slots=True)
class SilentTask(PartTask):
    """A task that searches a part for silent payments. Its file contains a hit for each output that pays an address.

    The `entry` of such a hit is the index of the scan key, and its `fee` is the number of the label. In the summary,
    `matches` is the number of candidates, and `unseen` is the number of candidates that may hide a payment.
    """

    keys: tuple[ScanKey, ...] = field(repr=False)
    """The scan keys."""

    @property
    def has_scan_key(self) -> bool:
        return True

    def scan(
        self, table: WatchTable, summary: PartSummary, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[BlockHits]:
        """Yield the blocks that contain silent payments, and fill in `summary`.

        Raises the same errors as `PartTask.scan`.
        """
        scanner = _Scanner(self, table, summary)
        yield from scanner.run(is_stopped)
        summary.matches, summary.unseen = scanner.candidates, scanner.unjudged


class _Scanner(PartScanner):
    """The search of a part. It reads each block separately, with its undo record."""

    def __init__(self, task: SilentTask, table: WatchTable, summary: PartSummary) -> None:
        super().__init__(task, table, summary)
        self._scanners = _scanners(task.keys)
        self.candidates = self.unjudged = 0

    def together(self, batch: Sequence[object]) -> None:
        return None

    def scan_alone(self, raw: bytes, undo: bytes | None) -> bytes:
        if undo is None:
            judged = search_block(raw, None, self._scanners)
        else:
            try:
                judged = search_block(raw, scripts_of_record(raw, undo), self._scanners)
            except UndoError:
                raise
            except FormatError as error:
                search_block(raw, None, self._scanners)  # raises FormatError if the block itself is malformed
                raise UndoError(error.message, offset=error.offset, field=error.field) from None
        self.candidates += judged.candidates
        self.unjudged += judged.unjudged
        return pack_hits(_hits(judged))


def _hits(judged: Judged) -> Iterator[Hit]:
    for number, output in judged.payments:
        label = NO_VALUE if output.label is None else output.label
        outpoint = bytes(32) + output.index.to_bytes(4, "little")  # the passes that follow find the transaction
        yield Hit(False, 0, bytes(32), output.index, outpoint, 0, output.script_pubkey, number, label)


@lru_cache(maxsize=2)
def _scanners(keys: tuple[ScanKey, ...]) -> tuple[SilentScanner, ...]:
    """Return the scanners for these keys. A process makes them only once, since each label takes 25 µs."""
    return tuple(
        SilentScanner(
            each.private,
            each.spend_pubkey,
            labels=each.labels,
            network=Network.named(each.network),
            most=MAX_LABELS + 1,
        )
        for each in keys
    )


def scan_keys(keychains: Iterable[SilentKeychain]) -> tuple[ScanKey, ...]:
    """Return the scan keys of keychains."""
    return tuple(
        ScanKey(each.silent.scan_key, each.silent.spend_pubkey, each.silent.network.name, tuple(sorted(each.numbers())))
        for each in keychains
    )


def keys_digest(keychains: Iterable[SilentKeychain]) -> bytes:
    """Return the SHA-256 of the descriptors' hashes and their labels. It reveals neither a key nor an address."""
    digest = sha256(b"spvfilter silent 1\0")
    for each in keychains:
        digest.update(sha256(each.silent.secret.encode()).digest())
        digest.update(b"".join(number.to_bytes(4, "little") for number in sorted(each.numbers())) + bytes(32))
    return digest.digest()


def silent_key(part: Part, keys: bytes, undo: str, check: bool) -> bytes:
    """Return the key of a task: SHA-256 of the part, the digest of the keys, and the options."""
    return sha256(b"spvfilter silent part 1\0" + part.fingerprint + keys + bytes((check,)) + undo.encode()).digest()


def payments_in(file: PartFile, names: Sequence[str]) -> Iterator[Payment]:
    """Yield the payments in a part's file. Their tweaks are not known. `names` are the names of the keychains.

    Raises SourceError if the file is damaged, and OSError if it cannot be read.
    """
    for block in file.blocks():
        for hit in unpack_hits(block.packed):
            label = None if hit.fee == NO_VALUE else hit.fee
            yield names[hit.entry], hit.script or b"", Found(label, _NOTHING)
