"""The package's exception hierarchy: every public error and warning.

Malformed input raises an error. It is never reported as "no match".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = [
    "AddressError",
    "BackendError",
    "BackendWarning",
    "BlockFilterError",
    "CapacityError",
    "CapacityWarning",
    "CheckpointError",
    "ColumnError",
    "CommitmentError",
    "DescriptorError",
    "DescriptorWarning",
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
    "KeyRangeError",
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
    "TxCheckError",
    "TxConflictError",
    "TxRefusedError",
    "UnconnectedHeadersError",
    "UndoError",
    "UnknownAccountError",
    "UselessPeerError",
    "VanishedFileError",
    "VersionError",
    "WalletFileWarning",
    "WatchFileError",
    "WatchListInUseError",
    "WrongNetworkError",
]


class SpvFilterError(Exception):
    """Base class of every error that this package raises deliberately.

    Catch it to catch all errors of the package. System errors, such as OSError, are not included.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[SpvFilterError], args: tuple[object, ...], state: dict[str, object]) -> SpvFilterError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class FormatError(SpvFilterError, ValueError):
    """Bytes are malformed: truncated, followed by trailing bytes, not canonical, or above a limit.

    Raised by every parser of the package. The bytes cannot be repaired: read or request them again.
    """

    message: str
    """Description of the fault, without the offset and the field."""
    offset: int
    """Offset in bytes at which the malformed field starts."""
    field: str
    """Name of the malformed field, in the terms of the protocol or file format."""

    def __init__(self, message: str, *, offset: int, field: str) -> None:
        super().__init__(f"{field} at byte {offset}: {message}")
        self.message = message
        self.offset = offset
        self.field = field


class BlockFilterError(FormatError):
    """A compact filter (BIP-158) in a stream of filters is malformed.

    The filters before it were valid. Fetch this filter from another source, then continue from its block.
    """

    block_hash: bytes
    """Hash of the filter's block, 32 bytes in wire order."""

    def __init__(self, message: str, *, offset: int, field: str, block_hash: bytes) -> None:
        super().__init__(message, offset=offset, field=f"{field} of the filter of block {block_hash[::-1].hex()}")
        self.block_hash = block_hash

    @property
    def block_hash_hex(self) -> str:
        """The field `block_hash` in hex, as block explorers show it."""
        return self.block_hash[::-1].hex()


class UndoError(FormatError):
    """An undo record (rev*.dat) is malformed, damaged, or does not belong to the block.

    `offset` counts from the start of the record. Scan without undo data, or let the node rebuild its files.
    """


class ColumnError(SpvFilterError, ValueError):
    """A column of keys is inconsistent.

    Either the memory of an Arrow array does not match its schema, or a string is not valid Unicode. Check the program
    that created the column.
    """

    message: str
    """Description of the fault, without the row and the field."""
    row: int
    """Index of the key in the call's input, starting at 0."""
    field: str
    """Part of the column, in Arrow's terms, such as "schema" or "offsets"."""

    def __init__(self, message: str, *, row: int, field: str) -> None:
        super().__init__(f"{field} of a column, key {row}: {message}")
        self.message = message
        self.row = row
        self.field = field


class ParameterError(SpvFilterError, ValueError):
    """An argument is outside its domain.

    The message contains the value, unless the value may be a secret, and says what is allowed.
    """


class MismatchError(ParameterError):
    """Two filters cannot be combined or compared, because they differ in size, hash functions or key encoding.

    Also raised if an existing filter in Redis was made with different parameters. Build both filters with the same
    parameters.
    """


class TooLargeError(ParameterError, MemoryError):
    """A filter does not fit into the machine's memory.

    Make it for fewer keys or a higher false-positive rate, or keep it in a file or in Redis.
    """


class CapacityError(SpvFilterError):
    """A filter is full: it already contains as many keys as it was made for.

    The new key was not added. Keys before it in the same call were added. Make a larger filter, or a
    `ScalableBloomFilter`, which grows. The attributes are None if the kernel itself raised the error.
    """

    count: int | None = None
    """Number of keys in the full filter. None if the kernel itself raised the error."""
    capacity: int | None = None
    """Number of keys that the filter was made for. None if the kernel itself raised the error."""
    fp_rate: float | None = None
    """Current false-positive rate of the filter, between 0 and 1. None if the kernel itself raised the error."""

    def __init__(
        self, message: str, *, count: int | None = None, capacity: int | None = None, fp_rate: float | None = None
    ) -> None:
        super().__init__(message)
        self.count, self.capacity, self.fp_rate = count, capacity, fp_rate


class ReadOnlyError(SpvFilterError, TypeError):
    """The filter's memory is read-only, so the filter cannot be changed.

    Copy the filter and change the copy, or open its file for writing.
    """


class KeyRangeError(SpvFilterError, TypeError, OverflowError):
    """An integer key is out of range for the filter's encoding, so the filter cannot contain it.

    This is a TypeError, as for any other key that a filter does not accept. For larger integers, choose the int64 or
    uint64 encoding.
    """


class AddressError(ParameterError):
    """The text is not a valid address: it has a bad character, checksum, length, version or witness program.

    The message never repeats text that may be a private key or a seed phrase.
    """


class WrongNetworkError(AddressError):
    """A valid address or extended key belongs to another network.

    Ask the user for an address of the right network, or choose the network of the address.
    """

    networks: tuple[str, ...]
    """Names of the networks that the address or the extended key belongs to."""

    def __init__(self, message: str, networks: tuple[str, ...]) -> None:
        super().__init__(message)
        self.networks = networks


class DescriptorError(ParameterError):
    """The text is not a usable output descriptor or extended public key.

    The message repeats no part of the text that may be a private key.
    """


class KeychainError(ParameterError):
    """The scripts of a keychain cannot be derived.

    The keychain's function raised an error, returned a value that is not a scriptPubKey, or returned different scripts
    for the same index. Correct the function.
    """


class KeychainMismatchError(KeychainError):
    """The database contains a different keychain with this name.

    That keychain has a different descriptor, or its function derives different scripts. Choose a different name or a
    different database.
    """


class UnknownAccountError(ParameterError):
    """The wallet or the watch list has no account with this name.

    `accounts` lists the names.
    """

    name: str
    """The name that was not found."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no account {str(name)[:80]!r}: list the accounts to see their names")
        self.name = name


class InexpressibleError(ParameterError):
    """The requested kind of filter cannot find some entries of the watch list.

    Remove these entries, or choose a different kind of filter.
    """

    entries: tuple[str, ...]
    """The entries of the watch list that the filter cannot find, as strings."""

    def __init__(self, message: str, entries: tuple[str, ...]) -> None:
        super().__init__(message)
        self.entries = entries


class WatchFileError(SpvFilterError, ValueError):
    """A watch list file has invalid lines.

    No watch list was made: correct the lines and load the file again. The message shows the first 20 invalid lines.
    """

    path: str
    """Path of the watch list file."""
    problems: tuple[tuple[int, str], ...]
    """Invalid lines in the file, each given as (line number, message). Lines are numbered from 1, and line 0 stands for
    the whole file.

    Reading stops after 1,000 invalid lines, and the last problem says so.
    """

    def __init__(self, path: str, problems: tuple[tuple[int, str], ...]) -> None:
        shown = "; ".join(f"line {line}: {message}" if line else message for line, message in problems[:20])
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        bad = f"{counted(len(problems), 'bad line')}: " if problems[0][0] else ""
        super().__init__(f"{path}: {bad}{shown}{more}")
        self.path = path
        self.problems = problems


class WatchListInUseError(SpvFilterError, RuntimeError):
    """A watch list cannot be changed directly while a LightClient uses it.

    The client would not search for the new entry. Use the client's own `add_…` methods, or change a copy of the list.
    """


class SourceError(SpvFilterError):
    """A source of blocks cannot be read.

    The message names the file, the stream or the node.
    """


class VanishedFileError(SourceError):
    """A block file or undo file has disappeared since the plan was made.

    A node may have pruned it. Make a new plan and run that.
    """


class DirectoryInUseError(SpvFilterError):
    """Another scan or export is writing to this directory.

    It may be running in this process or another one. Wait until it has ended, or choose a different directory.
    """


class RemoteFileError(SpvFilterError):
    """A store of remote files failed or refused a request.

    The message names the URL. `__cause__` is fsspec's error, if there is one.
    """


class FalseFilterError(SourceError):
    """A compact filter does not match the filter header of its block.

    The source of the filter is damaged or lying. The scan did not use this filter.
    """

    height: int
    """Height of the filter's block."""
    block_hash: bytes
    """Hash of the filter's block, 32 bytes in wire order."""

    def __init__(self, height: int, block_hash: bytes) -> None:
        super().__init__(f"the filter of block {height} {block_hash[::-1].hex()} does not match its filter header")
        self.height = height
        self.block_hash = block_hash

    @property
    def block_hash_hex(self) -> str:
        """The field `block_hash` in hex, as block explorers show it."""
        return self.block_hash[::-1].hex()


class IncompleteScanError(SourceError):
    """A scan has ended, but could not read everything.

    It yielded every match that it found before it raised this error. Repair the sources in `problems` and scan again.
    """

    problems: tuple[str, ...]
    """One message for each file, block or record that the scan could not read."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(f"{counted(len(problems), 'problem')} while scanning; the first: {problems[0]}")
        self.problems = problems


class NodeError(SourceError):
    """A full node that the client queries through REST, RPC or ZMQ does not supply what a scan needs.

    The message names the node and never a password.
    """


class NodeUnreachableError(NodeError):
    """The connection to the node failed, was lost, or timed out.

    Check that the node is running and that the address and port are right, then try again.
    """


class NodeBusyError(NodeError):
    """The node is still starting (RPC error -28), or too busy to accept requests (HTTP 503).

    Try again later.
    """


class NodeRefusedError(NodeError):
    """The node refuses to serve this client.

    Possible causes are a wrong password or cookie (HTTP 401), a forbidden address or method (403), a REST interface
    that is switched off (404), or a TLS failure. Correct the password or the node's configuration.
    """


class NodeAnswerError(NodeError):
    """The node's answer is not what the client requested.

    Examples: a different block, a wrong merkle root, too many bytes, malformed JSON, or an RPC error. Check that the
    URL leads to a Bitcoin node.
    """


class NodeRpcError(NodeAnswerError):
    """The node answered an RPC call with an error."""

    code: int
    """The node's error code (Core rpc/protocol.h), or 0 if the answer contains no code."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class NodeNetworkError(NodeError):
    """The node is on a different network from the requested one: its genesis block differs.

    Connect to another node, or choose the node's network.
    """


class NodePrunedError(NodeError):
    """The node has the header of a block, but not the block.

    The node pruned the block or has not downloaded it. Start at a later block, or use a node that has all blocks.
    """


class NodeChainError(NodeError):
    """The node's chain changed too fast or too far back.

    Either the chain kept changing while its blocks were being listed, or a reorganization goes back further than the
    list of known blocks. Scan again.
    """


class OrderError(SpvFilterError):
    """A block does not follow its predecessor, although the stream was declared to be in chain order.

    Scan the stream without declaring that it is in chain order.
    """


class BackendError(SpvFilterError, ImportError):
    """The backend that SPVFILTER_BACKEND requires is not installed.

    The message says how to install it.
    """


class PeerError(SpvFilterError):
    """A peer violated the protocol or is of no use.

    The light client drops such a peer and continues with other peers.
    """


class ProofError(PeerError):
    """A merkle proof that a peer sent is invalid."""

    cause: str
    """The rule that the proof violates, as a fixed string: a `wire.messages.Flaw`."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class EnvelopeError(PeerError):
    """The 24-byte header of a P2P message, or a packet of an encrypted connection (BIP-324), is invalid.

    A bad magic, length, garbage or tag ends the stream, because the start of the next message is unknown. After a bad
    command or checksum, the stream continues, as in Core.
    """

    field: str
    """The invalid field: "magic", "length", "command", "checksum", "garbage" or "tag".

    "transport" means that the peer answered without encryption.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class MessageError(PeerError):
    """The payload of a P2P message is malformed.

    `__cause__` is the FormatError that the parser raised.
    """

    command: str
    """Command of the message, such as "merkleblock"."""
    offset: int
    """Offset in the payload, in bytes, at which the malformed field starts."""
    field: str
    """Name of the malformed field, in the protocol's terms."""

    def __init__(self, message: str, *, command: str, offset: int, field: str) -> None:
        super().__init__(f"{command}: {field} at byte {offset}: {message}")
        self.command = command
        self.offset = offset
        self.field = field


class SessionError(PeerError):
    """A P2P session failed: a message out of order, a failed handshake, a timeout or a lost connection."""

    cause: str
    """The rule that the peer violated or the event that ended the session, as a fixed string: a `wire.Cause`."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class LieError(PeerError):
    """A peer made a statement that is provably false."""

    cause: str
    """The kind of lie, as a fixed string: a `light.Lie`."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class UselessPeerError(PeerError):
    """A peer may be honest, but it is of no use.

    It lacks data that other peers have, does not offer a required service, or does not answer in time. A broadcast
    raises this error if no peer requested the transaction in time.
    """


class TxRefusedError(PeerError):
    """Every peer that received a transaction rejected it.

    The client does not broadcast the transaction again, and the transaction no longer counts toward the balance. A peer
    may have lied and relayed it anyway. To be safe, make sure that a second payment spends one of the same coins.
    """

    refusals: tuple[tuple[str, str], ...]
    """The rejections, each given as (HOST:PORT, reason)."""

    def __init__(self, message: str, refusals: tuple[tuple[str, str], ...]) -> None:
        super().__init__(message)
        self.refusals = refusals


class TxConflictError(ParameterError):
    """A transaction conflicts with another one: they spend at least one coin in common.

    A conflict can also be indirect, through an ancestor. As long as the other transaction is unconfirmed, a replacement
    that pays a higher fee may still be confirmed.
    """

    by: bytes | None
    """Txid of the other transaction, 32 bytes in wire order. None if it is not known."""
    height: int | None
    """Height of the block that contains the other transaction. None if that is unconfirmed or the height is not
    known.
    """

    def __init__(self, message: str, by: bytes | None = None, height: int | None = None) -> None:
        super().__init__(message)
        self.by = by
        self.height = height

    @property
    def by_hex(self) -> str | None:
        """The field `by` in hex, as block explorers show it. None if there is none."""
        return None if self.by is None else self.by[::-1].hex()


class TxCheckError(ParameterError):
    """A transaction was not sent because no block can contain it or all connected peers would refuse it.

    The wallet has not stored it. `LightClient.check` returns the same findings and warnings.
    """

    causes: tuple[str, ...]
    """The problems, most serious first, as values of `store.CheckCause`."""
    can_force: bool
    """True if `broadcast` sends it with `force=True`. False if no block can contain it."""

    def __init__(self, message: str, causes: tuple[str, ...] = (), *, can_force: bool = False) -> None:
        super().__init__(message)
        self.causes = causes
        self.can_force = can_force


class PrivacyError(SpvFilterError):
    """A transaction or a filter would reveal the wallet's addresses. The message says why and what to do.

    `LightClient.broadcast` raises it if a transaction cannot be sent privately, before any peer receives it. A
    `PeerWarning` contains it if a BIP-37 filter was sent without encryption.
    """


class HeaderError(PeerError):
    """A sequence of block headers from a peer was rejected, and none of these headers was stored."""

    index: int
    """Index of the rejected header among the headers that were checked together, starting at 0."""

    def __init__(self, message: str, *, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class InvalidHeaderError(HeaderError):
    """A header violates a consensus rule. Each rule has a subclass.

    No honest peer sends such a header: disconnect and ban the peer.
    """


class DiscontinuousHeadersError(InvalidHeaderError):
    """A header does not follow the one before it in the same message."""


class TargetError(InvalidHeaderError):
    """The compact bits of a header encode no valid target: it is negative, zero, overflowing, or above the limit."""


class ProofOfWorkError(InvalidHeaderError):
    """The hash of a header is above the target that its own bits encode."""


class DifficultyError(InvalidHeaderError):
    """The bits of a header differ from the bits that the difficulty rules require."""


class CheckpointError(InvalidHeaderError):
    """A header differs from the checkpoint at its height, or a fork starts below a checkpoint."""


class MedianTimeError(InvalidHeaderError):
    """The time of a header is not later than the median time of the eleven headers before it."""


class TimewarpError(InvalidHeaderError):
    """A difficulty period starts more than 600 seconds before the end of the previous period. BIP-94 forbids this."""


class VersionError(InvalidHeaderError):
    """The version of a header is below the minimum of BIP-34, BIP-66 or BIP-65 at its height."""


class FutureHeaderError(HeaderError):
    """The time of a header is more than two hours ahead of this machine's clock.

    The header is not invalid: accept the first `index` headers now and the rest later.
    """


class UnconnectedHeadersError(HeaderError):
    """Headers have valid proof of work, but their parent is unknown.

    Request the missing headers from the peer. Disconnect the peer if it does not send them.
    """


class LowWorkError(HeaderError):
    """The headers are valid, but their chain has too little work to be stored.

    The peer may be honest but is of no use: disconnect it.
    """


class CommitmentError(HeaderError):
    """A peer sent different headers in the second pass of the header sync than in the first.

    Disconnect the peer.
    """


class StoreError(SpvFilterError):
    """The wallet's database cannot be used.

    The message names the file. The subclasses name causes that a program may want to handle.
    """


class StoreLockedError(StoreError):
    """Another process, or another client in this process, has the database open.

    Stop the client that is using the database, or choose a different database.
    """


class StoreForeignError(StoreError):
    """The file is not a database that this package can use.

    The file belongs to another program, to another network, or to another version of this package. The message says
    which.
    """


class StoreCorruptError(StoreError):
    """The database is damaged: SQLite or one of this package's checksums reports an error.

    Restore a backup, or open the database with `rebuild=True`, which keeps the watch list and searches the chain again.
    """


class StoreFullError(StoreError):
    """The disk is full.

    No part of the last batch was written, and the earlier contents are intact. Free some space and start again.
    """


class StoreReadOnlyError(StoreError):
    """The database or its folder is not writable, or the file cannot be opened.

    Check the permissions of the file and the folder.
    """


class NotRunningError(SpvFilterError, RuntimeError):
    """A light client was used before it was entered or after it was left, or was entered a second time.

    Use the client inside `async with` (or `with`), and create a new client for each run.
    """


class EventGapError(SpvFilterError, LookupError):
    """The database cannot yield every event that follows number `since`.

    The number is neither 0 nor the number of a stored event, or older events were dropped. This happens if the database
    is new, restored or rebuilt. Take a snapshot, such as the result of `matches()`, and continue from its `sequence`.
    """

    since: int
    """The number that the caller passed: only events with higher numbers were requested."""
    sequence: int
    """Number to continue from after a snapshot: the last event of the database when the error was raised."""

    def __init__(self, since: int, sequence: int) -> None:
        super().__init__(since, sequence)
        self.since = since
        self.sequence = sequence

    def __str__(self) -> str:
        return (
            f"the database does not contain every event after number {self.since}: it is new, restored or rebuilt, or"
            " old events were dropped. Take a snapshot, such as matches(), then continue from its sequence"
            f" ({self.sequence} or higher)"
        )


class NotConfirmedError(SpvFilterError):
    """The transaction that the caller is waiting for will not be confirmed."""

    txid: bytes
    """Txid of the transaction that will not be confirmed, 32 bytes in wire order."""
    status: str
    """Final status: "conflicted" (a conflicting transaction is confirmed), "abandoned", "expired" or "refused"."""
    rival: bytes | None
    """Txid of the confirmed transaction that conflicts with `txid`, 32 bytes in wire order. None if there is no
    conflict.
    """

    def __init__(self, txid: bytes, status: str, rival: bytes | None = None) -> None:
        super().__init__(txid, status, rival)
        self.txid = txid
        self.status = status
        self.rival = rival

    def __str__(self) -> str:
        by = "" if self.rival is None else f": it conflicts with {self.rival_hex}"
        return f"transaction {self.txid_hex} is {self.status}{by}"

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return self.txid[::-1].hex()

    @property
    def rival_hex(self) -> str | None:
        """The field `rival` in hex, as block explorers show it. None if there is none."""
        return None if self.rival is None else self.rival[::-1].hex()


class RemoteError(SpvFilterError):
    """An operation on a filter in Redis failed.

    `__cause__` is redis-py's error, if there is one.
    """


class RemoteConnectionError(RemoteError):
    """The Redis server could not be reached, or the connection was lost before the answer arrived.

    The server may or may not have executed the operation. Adding a key again is harmless, except in a
    counting filter.
    """


class RemoteMissingError(RemoteError, LookupError):
    """A filter in Redis, or a part of the filter, is missing: Redis expired, evicted or deleted it.

    Create the filter again and add all keys.
    """


class RemoteExistsError(RemoteError):
    """A filter with this name already exists in Redis.

    Open the existing filter, or choose a different name.
    """


class RemoteTypeError(RemoteError):
    """A Redis key that the filter needs contains a value of a different type.

    Another program uses this key, so choose a different name for the filter.
    """


class RemoteFullError(RemoteError):
    """The Redis server has reached its maxmemory and refuses writes. The filter is unchanged."""


class RemoteReadOnlyError(RemoteError, ReadOnlyError):
    """The Redis server is a read-only replica. The filter is unchanged.

    Connect to the primary server.
    """


class RefusedError(SpvFilterError, ValueError):
    """The embedded node rejected a block, a transaction or a request for filters."""

    reason: str
    """Core's reject reason, such as "txn-mempool-conflict"."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class SpvFilterWarning(UserWarning):
    """Base class of the package's warnings."""


class BackendWarning(SpvFilterWarning, RuntimeWarning):
    """The slow pure-Python kernel is used, although a compiled kernel is installed or could be installed."""


class CapacityWarning(SpvFilterWarning):
    """A filter contains as many keys as it was made for.

    Each key added from now on raises the false-positive rate above the rate that the filter was made for.
    """


class DescriptorWarning(SpvFilterWarning):
    """A descriptor is accepted, although it is probably not what the user wants.

    Either it contains an extended key without a wildcard, so only one script is watched, or it comes from a database
    but breaks a rule for new descriptors.
    """


class FpRateWarning(SpvFilterWarning):
    """The real false-positive rate of a filter differs from the requested rate."""


class WalletFileWarning(SpvFilterWarning):
    """Part of a wallet file, such as the private keys, was not read.

    Private keys are never kept. Anyone who can read the file can spend the coins, so keep it in a safe place.
    """


class LostSpendsWarning(SpvFilterWarning):
    """The update flags of a BIP-37 filter keep a peer from reporting some spends of watched coins.

    Use `UpdateFlags.ALL`, or the flags that `Bip37Filter.for_watchlist` chooses.
    """


# Words of messages


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 block", "2,000 blocks"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def alternatives(names: Sequence[str]) -> str:
    """Return names as alternatives: "a", "a or b", "a, b or c"."""
    return " or ".join((*filter(None, [", ".join(names[:-1])]), names[-1]))


# Remedies for missing packages

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "bdk": ("bdkpython>=3.1",),
    "bip324": ("btclib-secp256k1>=0.8", "cryptography>=42"),
    "cli": ("rich>=13.7", "shtab>=1.7"),
    "dask": ("distributed>=2024.8",),
    "descriptors": ("wallycore>=1.5",),
    "electrum": ("aiorpcX>=0.25",),
    "musig": ("btclib-secp256k1>=0.8",),
    "parquet": ("pyarrow>=15",),
    "plot": ("matplotlib>=3.8",),
    "redis": ("redis>=5.0",),
    "remote": ("fsspec>=2024.2", "s3fs>=2024.2"),
    "rpc": ("httpx>=0.27", "sniffio>=1.3"),
    "silent": ("btclib-secp256k1>=0.8,<0.9",),
    "socks": ("python-socks>=2.4",),
    "testing": ("pytest>=8",),
    "zmq": ("pyzmq>=26",),
    "zstd": ("zstandard>=0.22",),
}
"""Requirements of each extra that a message can name, as in pyproject.toml."""


def remedy(extra: str) -> str:
    """Say how to install the packages of an extra.

    The command names the packages themselves, so it works in a clone, with a wheel, and in a container.
    """
    quoted = " ".join(f'"{each}"' for each in EXTRAS[extra])
    return f"run `python -m pip install {quoted}` (extra `{extra}`)"
