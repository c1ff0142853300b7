"""The error tree: every bad input has its own class or its own message. No error is ever "no match"."""

from __future__ import annotations

__all__ = [
    "AddressError",
    "BackendError",
    "BlockFilterError",
    "CheckpointError",
    "CommitmentError",
    "DifficultyError",
    "DiscontinuousHeadersError",
    "EnvelopeError",
    "FalseFilterError",
    "FormatError",
    "FpRateWarning",
    "FutureHeaderError",
    "HeaderError",
    "IncompleteScanError",
    "InexpressibleError",
    "InvalidHeaderError",
    "LieError",
    "LostSpendsWarning",
    "LowWorkError",
    "MedianTimeError",
    "MessageError",
    "MismatchError",
    "NotRunningError",
    "OrderError",
    "ParameterError",
    "PeerError",
    "ProofError",
    "ProofOfWorkError",
    "ReadOnlyError",
    "RefusedError",
    "RemoteConnectionError",
    "RemoteError",
    "RemoteExistsError",
    "RemoteFullError",
    "RemoteMissingError",
    "RemoteReadOnlyError",
    "RemoteTypeError",
    "SessionError",
    "SourceError",
    "SpvFilterError",
    "SpvFilterWarning",
    "StoreCorruptError",
    "StoreError",
    "StoreForeignError",
    "StoreFullError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "TargetError",
    "TimewarpError",
    "TooLargeError",
    "UnconnectedHeadersError",
    "UselessPeerError",
    "VersionError",
    "WatchFileError",
    "WrongNetworkError",
]


class SpvFilterError(Exception):
    """Base of every error this package raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[SpvFilterError], args: tuple[object, ...], state: dict[str, object]) -> SpvFilterError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class FormatError(SpvFilterError, ValueError):
    """Bytes that are not what they claim to be: truncated, trailing, non-canonical, absurd.

    `offset` is the byte at which the field in question starts, `field` its name in the protocol's words.
    """

    def __init__(self, message: str, *, offset: int, field: str) -> None:
        super().__init__(f"{field} at byte {offset}: {message}")
        self.message = message
        self.offset = offset
        self.field = field


class BlockFilterError(FormatError):
    """One of many compact filters that is malformed; `block_hash` (32 bytes, wire order) says whose it is."""

    def __init__(self, message: str, *, offset: int, field: str, block_hash: bytes) -> None:
        super().__init__(message, offset=offset, field=f"{field} of the filter of block {block_hash[::-1].hex()}")
        self.block_hash = block_hash


class ParameterError(SpvFilterError, ValueError):
    """An argument outside its domain; the message carries the offending value."""


class MismatchError(ParameterError):
    """Two filters that do not put the same keys into the same places."""


class TooLargeError(ParameterError, MemoryError):
    """A filter larger than the machine's memory."""


class ReadOnlyError(SpvFilterError, TypeError):
    """A change to a filter whose bits are read-only."""


class AddressError(ParameterError):
    """A string that is no address: bad character, checksum, length, version or witness program."""


class WrongNetworkError(AddressError):
    """A valid address of another network; `networks` names those it belongs to."""

    def __init__(self, message: str, networks: tuple[str, ...]) -> None:
        super().__init__(message)
        self.networks = networks


class InexpressibleError(ParameterError):
    """Entries of a watch list that the asked kind of filter cannot find; `entries` names them."""

    def __init__(self, message: str, entries: tuple[str, ...]) -> None:
        super().__init__(message)
        self.entries = entries


class WatchFileError(SpvFilterError, ValueError):
    """A watch list file with bad lines; `problems` holds every one as (line number from 1, message)."""

    def __init__(self, path: str, problems: tuple[tuple[int, str], ...]) -> None:
        shown = "; ".join(f"line {line}: {message}" for line, message in problems[:20])
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        super().__init__(f"{path}: {len(problems)} bad line(s): {shown}{more}")
        self.path = path
        self.problems = problems


class SourceError(SpvFilterError):
    """A file or stream of blocks that cannot be read; the message names it."""


class FalseFilterError(SourceError):
    """A filter that is not the one its block's filter header commits to; `height` and `block_hash` (32 bytes, wire order) say whose."""

    def __init__(self, height: int, block_hash: bytes) -> None:
        super().__init__(f"the filter of block {height} {block_hash[::-1].hex()} is not the one that its filter header commits to")
        self.height = height
        self.block_hash = block_hash


class IncompleteScanError(SourceError):
    """A scan that reached its end but could not read everything; `problems` says what. All matches were given before."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(f"{len(problems)} problem(s) while scanning; the first: {problems[0]}")
        self.problems = problems


class OrderError(SpvFilterError):
    """A block that does not follow the one before it in a stream declared to be in chain order."""


class BackendError(SpvFilterError, ImportError):
    """The backend that SPVFILTER_BACKEND forces is not there; the message says how to get it."""


class PeerError(SpvFilterError):
    """A peer broke the protocol."""


class ProofError(PeerError):
    """A merkle proof that does not prove what it claims; `cause` names the rule it breaks, the same words for every such proof."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class EnvelopeError(PeerError):
    """24 bytes that open no message of this network; `field` is "magic", "length", "command" or "checksum".

    The first two end a stream: where the next message starts is not known. After the others the stream goes on, as in Core.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class MessageError(PeerError):
    """A payload that is not what its command wants; `offset` and `field` as in the FormatError that is its cause."""

    def __init__(self, message: str, *, command: str, offset: int, field: str) -> None:
        super().__init__(f"{command}: {field} at byte {offset}: {message}")
        self.command = command
        self.offset = offset
        self.field = field


class SessionError(PeerError):
    """A message out of turn, a handshake that cannot succeed, or silence; `cause` names the rule, the same words for every such case."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class LieError(PeerError):
    """A peer that says what is not so; `cause` names the lie, the same words for every such case."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class UselessPeerError(PeerError):
    """A peer that is perhaps honest but does not help: it has not what others have, or does not answer in time."""


class HeaderError(PeerError):
    """A run of headers that was not taken: nothing of it is stored. `index` is the place in it of the header at fault, from 0."""

    def __init__(self, message: str, *, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class InvalidHeaderError(HeaderError):
    """A header that breaks a rule, by its own class below. No honest peer sends one: cut the peer off and do not come back."""


class DiscontinuousHeadersError(InvalidHeaderError):
    """A header that does not follow the one before it in the same message."""


class TargetError(InvalidHeaderError):
    """Bits that are no target: negative, zero, overflowing, or above the network's limit."""


class ProofOfWorkError(InvalidHeaderError):
    """A hash above the target of its own bits."""


class DifficultyError(InvalidHeaderError):
    """Bits other than the ones the chain before it asks for."""


class CheckpointError(InvalidHeaderError):
    """A header other than the known one at its height, or a fork from below a known one."""


class MedianTimeError(InvalidHeaderError):
    """A time that is not above the median of the eleven before it."""


class TimewarpError(InvalidHeaderError):
    """A period that starts more than 600 seconds before the end of the last one, where BIP-94 forbids it."""


class VersionError(InvalidHeaderError):
    """A version that BIP-34, 66 or 65 no longer allows at this height."""


class FutureHeaderError(HeaderError):
    """A time more than two hours ahead of our clock. Not invalid: the `index` headers before it may be given alone, the rest later."""


class UnconnectedHeadersError(HeaderError):
    """Proven headers upon one that is not known. Ask the peer for what lies between, by a locator; if it cannot say, drop it."""


class LowWorkError(HeaderError):
    """Valid headers of a chain with too little work to be stored. The peer is of no use, but may be honest: drop it."""


class CommitmentError(HeaderError):
    """Headers of a second pass that are not those of the first. Drop the peer."""


class StoreError(SpvFilterError):
    """The wallet's database cannot be used."""


class StoreLockedError(StoreError):
    """Another process, or another client of this one, has the database open."""


class StoreForeignError(StoreError):
    """A file that is no database of this package, is of another network, or of a later version."""


class StoreCorruptError(StoreError):
    """A database that does not hold what was written into it; `rebuild` keeps what can be kept."""


class StoreFullError(StoreError):
    """The disk is full; nothing of the batch was written, what was there before is unharmed."""


class StoreReadOnlyError(StoreError):
    """The database or its folder cannot be written."""


class NotRunningError(SpvFilterError, RuntimeError):
    """Something asked of a light client before it was entered or after it was left, or one that is entered a second time."""


class RemoteError(SpvFilterError):
    """A filter in Redis that did not do what it was asked; redis-py's error, where there is one, is its cause."""


class RemoteConnectionError(RemoteError):
    """No answer: the server was not reached, or the connection broke, so that what was asked may or may not have been done."""


class RemoteMissingError(RemoteError, LookupError):
    """No filter there, or not all of it: it has expired, was deleted, or parts of it were evicted."""


class RemoteExistsError(RemoteError):
    """A filter is there already."""


class RemoteTypeError(RemoteError):
    """A key of the filter's holds something that is not a string."""


class RemoteFullError(RemoteError):
    """The server is at its maxmemory and refuses to write; nothing was changed."""


class RemoteReadOnlyError(RemoteError, ReadOnlyError):
    """The server is a read-only replica; nothing was changed."""


class RefusedError(SpvFilterError, ValueError):
    """A block or transaction that the embedded node does not take; `reason` is Core's word for the cause, such as txn-mempool-conflict."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class SpvFilterWarning(UserWarning):
    """Base of the package's warnings."""


class FpRateWarning(SpvFilterWarning):
    """The filter's real false-positive rate is not the one asked for."""


class LostSpendsWarning(SpvFilterWarning):
    """With these update flags a peer will not report spends that the watch list wants to see."""
