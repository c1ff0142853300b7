"""The exception hierarchy of the package: every public error and warning.

Malformed input raises; it is never reported as "no match".
"""

from __future__ import annotations

__all__ = [
    "AddressError",
    "BackendError",
    "BlockFilterError",
    "CapacityError",
    "CapacityWarning",
    "CheckpointError",
    "ColumnError",
    "CommitmentError",
    "DescriptorError",
    "DifficultyError",
    "DirectoryInUseError",
    "DiscontinuousHeadersError",
    "EnvelopeError",
    "EventGapError",
    "FalseFilterError",
    "FormatError",
    "FpRateWarning",
    "FutureHeaderError",
    "HeaderError",
    "IncompleteScanError",
    "InexpressibleError",
    "InvalidHeaderError",
    "KeychainError",
    "KeychainMismatchError",
    "LieError",
    "LostSpendsWarning",
    "LowWorkError",
    "MedianTimeError",
    "MessageError",
    "MismatchError",
    "NodeAnswerError",
    "NodeBusyError",
    "NodeChainError",
    "NodeError",
    "NodeNetworkError",
    "NodePrunedError",
    "NodeRefusedError",
    "NodeRpcError",
    "NodeUnreachableError",
    "NotConfirmedError",
    "NotRunningError",
    "OrderError",
    "ParameterError",
    "PeerError",
    "PrivacyError",
    "ProofError",
    "ProofOfWorkError",
    "ReadOnlyError",
    "RefusedError",
    "RemoteConnectionError",
    "RemoteError",
    "RemoteExistsError",
    "RemoteFileError",
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
    "TxConflictError",
    "TxRefusedError",
    "UnconnectedHeadersError",
    "UndoError",
    "UselessPeerError",
    "VersionError",
    "WatchFileError",
    "WatchListInUseError",
    "WrongNetworkError",
]


class SpvFilterError(Exception):
    """Base class of every error that this package raises deliberately."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[SpvFilterError], args: tuple[object, ...], state: dict[str, object]) -> SpvFilterError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class FormatError(SpvFilterError, ValueError):
    """Malformed bytes: truncated, trailing, non-canonical or beyond a limit.

    `offset` is the byte at which the malformed field starts, `field` its name in the protocol's terms.
    """

    def __init__(self, message: str, *, offset: int, field: str) -> None:
        super().__init__(f"{field} at byte {offset}: {message}")
        self.message = message
        self.offset = offset
        self.field = field


class BlockFilterError(FormatError):
    """A malformed compact filter in a stream of filters; `block_hash` (32 bytes, wire order) is the hash of its
    block.
    """

    def __init__(self, message: str, *, offset: int, field: str, block_hash: bytes) -> None:
        super().__init__(message, offset=offset, field=f"{field} of the filter of block {block_hash[::-1].hex()}")
        self.block_hash = block_hash


class UndoError(FormatError):
    """An undo record that is malformed, damaged, or not of the block it is read with; `offset` is within the record."""


class ColumnError(SpvFilterError, ValueError):
    """A column of keys that contradicts itself: an array of a table whose memory is not what its structure says, or
    text that is none.

    `row` is the number of the key among those that came in, `field` the part of the column in Arrow's terms.
    """

    def __init__(self, message: str, *, row: int, field: str) -> None:
        super().__init__(f"{field} of a column, key {row}: {message}")
        self.message = message
        self.row = row
        self.field = field


class ParameterError(SpvFilterError, ValueError):
    """An argument outside its domain. The message contains the offending value."""


class MismatchError(ParameterError):
    """Two filters cannot be combined or compared: they differ in size, hash functions or key encoding."""


class TooLargeError(ParameterError, MemoryError):
    """A filter does not fit into the machine's memory."""


class CapacityError(SpvFilterError):
    """A new key for a filter that already holds as many as it was made for. It was not added; the keys before it were.

    `count` is the number of keys in the filter, `capacity` what it was made for, `fp_rate` the false-positive rate it
    has now; they are None where the kernel itself refuses.
    """

    count: int | None = None
    capacity: int | None = None
    fp_rate: float | None = None

    def __init__(
        self, message: str, *, count: int | None = None, capacity: int | None = None, fp_rate: float | None = None
    ) -> None:
        super().__init__(message)
        self.count, self.capacity, self.fp_rate = count, capacity, fp_rate


class ReadOnlyError(SpvFilterError, TypeError):
    """An attempt to change a filter whose memory is read-only."""


class AddressError(ParameterError):
    """An invalid address: bad character, checksum, length, version or witness program."""


class WrongNetworkError(AddressError):
    """A valid address of another network; `networks` lists the names of the networks it belongs to."""

    def __init__(self, message: str, networks: tuple[str, ...]) -> None:
        super().__init__(message)
        self.networks = networks


class DescriptorError(ParameterError):
    """A text that is no usable output descriptor or extended public key.

    The message repeats none of what may be a private key.
    """


class KeychainError(ParameterError):
    """A keychain whose scripts cannot be derived: its function fails, gives what is no scriptPubKey, or does not follow
    from the index.
    """


class KeychainMismatchError(KeychainError):
    """The database has another keychain under this name: one of another descriptor, or whose function gives other
    scripts.
    """


class InexpressibleError(ParameterError):
    """Watch list entries that the requested kind of filter cannot find; `entries` lists them."""

    def __init__(self, message: str, entries: tuple[str, ...]) -> None:
        super().__init__(message)
        self.entries = entries


class WatchFileError(SpvFilterError, ValueError):
    """A watch list file with invalid lines; `problems` lists all of them as (line number from 1, message)."""

    def __init__(self, path: str, problems: tuple[tuple[int, str], ...]) -> None:
        shown = "; ".join(f"line {line}: {message}" for line, message in problems[:20])
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        super().__init__(f"{path}: {len(problems)} bad line(s): {shown}{more}")
        self.path = path
        self.problems = problems


class WatchListInUseError(SpvFilterError, RuntimeError):
    """A watch list that a running LightClient uses was to be changed: the client would not search for what is added."""


class SourceError(SpvFilterError):
    """A source of blocks that cannot be read; the message names the file or stream."""


class DirectoryInUseError(SpvFilterError):
    """A directory into which another process scans, or another scan of this process."""


class RemoteFileError(SpvFilterError):
    """A store of remote files that fails or refuses; the message names the URL."""


class FalseFilterError(SourceError):
    """A compact filter does not match its block's filter header; `height` and `block_hash` (32 bytes, wire order)
    identify the block.
    """

    def __init__(self, height: int, block_hash: bytes) -> None:
        super().__init__(f"the filter of block {height} {block_hash[::-1].hex()} does not match its filter header")
        self.height = height
        self.block_hash = block_hash


class IncompleteScanError(SourceError):
    """A scan finished but could not read everything; `problems` lists what failed.

    All matches were yielded before this was raised.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(f"{len(problems)} problem(s) while scanning; the first: {problems[0]}")
        self.problems = problems


class NodeError(SourceError):
    """A full node that is asked by REST, RPC or ZMQ does not give what a scan needs; the message names the node and
    never a password.
    """


class NodeUnreachableError(NodeError):
    """No connection to the node, or it broke: refused, reset, cut off in the middle of an answer, or no answer in
    time.
    """


class NodeBusyError(NodeError):
    """The node is starting (RPC error -28), or has more requests than it takes (HTTP 503); it may be asked again."""


class NodeRefusedError(NodeError):
    """The node does not serve us: a wrong password or cookie (401), a forbidden address or method (403), or REST that
    is off (404).
    """


class NodeAnswerError(NodeError):
    """An answer that is not what was asked for: another block, a wrong merkle root, too long, of another type,
    malformed, an RPC error.
    """


class NodeRpcError(NodeAnswerError):
    """An RPC error; `code` is the node's (Core rpc/protocol.h), 0 where it gives none."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class NodeNetworkError(NodeError):
    """The node is of another network: its genesis block is not ours."""


class NodePrunedError(NodeError):
    """The node has a block's header but not the block: it was pruned, or was never downloaded."""


class NodeChainError(NodeError):
    """The node's chain changed faster than it could be listed, or deeper than is remembered."""


class OrderError(SpvFilterError):
    """A block does not follow its predecessor in a stream declared to be in chain order."""


class BackendError(SpvFilterError, ImportError):
    """The backend that SPVFILTER_BACKEND requires is not installed; the message says how to install it."""


class PeerError(SpvFilterError):
    """A peer violated the protocol."""


class ProofError(PeerError):
    """An invalid merkle proof; `cause` names the rule that it violates, in the same words for every such proof."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class EnvelopeError(PeerError):
    """An invalid 24-byte message header; `field` is "magic", "length", "command" or "checksum".

    A bad magic or length ends the stream, since the start of the next message is unknown. After a bad command or
    checksum the stream continues, as in Core.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class MessageError(PeerError):
    """A malformed payload for its command; `offset` and `field` are those of the FormatError that caused it."""

    def __init__(self, message: str, *, command: str, offset: int, field: str) -> None:
        super().__init__(f"{command}: {field} at byte {offset}: {message}")
        self.command = command
        self.offset = offset
        self.field = field


class SessionError(PeerError):
    """A message out of order, a failed handshake or a timeout; `cause` names the rule, in the same words for every such
    case.
    """

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class LieError(PeerError):
    """A peer made a false statement; `cause` names the kind of lie, in the same words for every such case."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class UselessPeerError(PeerError):
    """A peer that may be honest but is of no use: it lacks data that other peers have, or does not answer in time."""


class TxRefusedError(PeerError):
    """Every peer that was given a transaction refused it; `refusals` lists each as (HOST:PORT, reason).

    It is not offered any more and counts as nothing. A peer may have lied and passed it on: to pay again, spend one of
    the same coins.
    """

    def __init__(self, message: str, refusals: tuple[tuple[str, str], ...]) -> None:
        super().__init__(message)
        self.refusals = refusals


class TxConflictError(ParameterError):
    """A transaction spends what another one has spent:

    `by` is the txid of that one, `height` that of its block, None if it is in none.
    """

    def __init__(self, message: str, by: bytes | None = None, height: int | None = None) -> None:
        super().__init__(message)
        self.by = by
        self.height = height


class PrivacyError(SpvFilterError):
    """What was asked to be done privately cannot be; nothing was done. The message says why, and what to do."""


class HeaderError(PeerError):
    """A run of headers was refused; none of it is stored. `index` is the position, from 0, of the header at fault."""

    def __init__(self, message: str, *, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class InvalidHeaderError(HeaderError):
    """A header violates a consensus rule; each rule has a subclass.

    No honest peer sends such a header: disconnect and ban the peer.
    """


class DiscontinuousHeadersError(InvalidHeaderError):
    """A header does not follow its predecessor in the same message."""


class TargetError(InvalidHeaderError):
    """Compact bits that encode no valid target: negative, zero, overflowing, or above the network's limit."""


class ProofOfWorkError(InvalidHeaderError):
    """A header's hash is above the target of its own bits."""


class DifficultyError(InvalidHeaderError):
    """A header's bits differ from those that the difficulty rules require."""


class CheckpointError(InvalidHeaderError):
    """A header differs from the checkpoint at its height, or a fork starts below a checkpoint."""


class MedianTimeError(InvalidHeaderError):
    """A header's time is not above the median of the eleven headers before it."""


class TimewarpError(InvalidHeaderError):
    """A difficulty period starts more than 600 seconds before the end of the last one, which BIP-94 forbids."""


class VersionError(InvalidHeaderError):
    """A header's version is below the minimum of BIP-34, BIP-66 or BIP-65 at its height."""


class FutureHeaderError(HeaderError):
    """A header's time is more than two hours ahead of our clock.

    The header is not invalid: the first `index` headers may be accepted now, the rest later.
    """


class UnconnectedHeadersError(HeaderError):
    """Headers with valid proof of work whose parent is unknown.

    Ask the peer for the missing ones; disconnect if it does not send them.
    """


class LowWorkError(HeaderError):
    """Valid headers of a chain with too little work to be stored.

    The peer may be honest but is of no use: disconnect.
    """


class CommitmentError(HeaderError):
    """The headers of the second pass differ from those of the first. Disconnect the peer."""


class StoreError(SpvFilterError):
    """The wallet's database cannot be used."""


class StoreLockedError(StoreError):
    """The database is open in another process, or in another client of this process."""


class StoreForeignError(StoreError):
    """A file that is not a database of this package, or belongs to another network or a later version."""


class StoreCorruptError(StoreError):
    """A damaged database: its contents differ from what was written. `rebuild` saves what can be saved."""


class StoreFullError(StoreError):
    """The disk is full. Nothing of the batch was written; the earlier contents are intact."""


class StoreReadOnlyError(StoreError):
    """The database or its folder is not writable."""


class NotRunningError(SpvFilterError, RuntimeError):
    """A light client was used before it was entered or after it was left, or was entered a second time."""


class EventGapError(SpvFilterError, LookupError):
    """Events that follow number `since` are no longer kept; those from number `first` on are."""

    def __init__(self, since: int, first: int) -> None:
        super().__init__(since, first)
        self.since = since
        self.first = first

    def __str__(self) -> str:
        gone = f"events {self.since + 1} to {self.first - 1} are no longer kept"
        return f"{gone}: go on from the sequence of a snapshot, as matches() gives it"


class NotConfirmedError(SpvFilterError):
    """A transaction that was waited for ended without a block.

    `status` is "conflicted" where a block has another, `rival`, that spends the same, else "abandoned", "expired" or
    "refused"; `txid` and `rival` have 32 bytes, wire order.
    """

    def __init__(self, txid: bytes, status: str, rival: bytes | None = None) -> None:
        super().__init__(txid, status, rival)
        self.txid = txid
        self.status = status
        self.rival = rival

    def __str__(self) -> str:
        by = "" if self.rival is None else f": {self.rival[::-1].hex()} spends the same"
        return f"transaction {self.txid[::-1].hex()} is {self.status}{by}"


class RemoteError(SpvFilterError):
    """An operation on a filter in Redis failed; `__cause__` is redis-py's error, if there is one."""


class RemoteConnectionError(RemoteError):
    """No answer: the server could not be reached or the connection broke.

    The operation may or may not have been executed.
    """


class RemoteMissingError(RemoteError, LookupError):
    """The filter or a part of it is missing: it has expired, was deleted or was evicted."""


class RemoteExistsError(RemoteError):
    """A filter with this name already exists."""


class RemoteTypeError(RemoteError):
    """A Redis key of the filter holds a value that is not a string."""


class RemoteFullError(RemoteError):
    """The server has reached its maxmemory and refuses writes; nothing was changed."""


class RemoteReadOnlyError(RemoteError, ReadOnlyError):
    """The server is a read-only replica; nothing was changed."""


class RefusedError(SpvFilterError, ValueError):
    """The embedded node rejected a block or transaction; `reason` is Core's reject reason, such as
    txn-mempool-conflict.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class SpvFilterWarning(UserWarning):
    """Base class of the package's warnings."""


class CapacityWarning(SpvFilterWarning):
    """A filter holds as many keys as it was made for: with more, its false-positive rate exceeds the one it was made
    for.
    """


class FpRateWarning(SpvFilterWarning):
    """The filter's real false-positive rate differs from the requested one."""


class LostSpendsWarning(SpvFilterWarning):
    """With these update flags a peer will not report some spends that the watch list wants to see."""
