"""Effects of the light client's engine. The shell carries them out in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from spvfilter.light.events import Broadcast, Event
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store
from spvfilter.wire.messages.table import Message
from spvfilter.wire.transport import V2Policy


class Connect(NamedTuple):
    """Open a connection to `address` (HOST:PORT).

    PeerConnected or Lost reports the outcome, with this number, which is never reused. A private connection reveals
    nothing about this client: its version message is the same as in Core's private connections, and it uses its own
    circuit through a proxy.
    """

    peer: int
    address: str
    is_private: bool = False
    v2: V2Policy = V2Policy.OFF
    """When to encrypt the connection (BIP-324)."""
    relay: bool = False
    """True if the version message asks the peer to announce transactions."""


class AskSeeds(NamedTuple):
    """Ask the network's DNS seeds for hosts with these services (bits of wire.Service). Seeded reports the answers."""

    services: int


class Send(NamedTuple):
    """Send a message to a peer. Nothing happens if the connection has ended."""

    peer: int
    message: Message


class Fence(NamedTuple):
    """Send a ping to a peer. Its pong is reported as FencePassed with this token."""

    peer: int
    token: int


@dataclass(frozen=True, slots=True)
class Drop:
    """End a connection, or the attempt to make it. Later messages from this peer are discarded."""

    peer: int
    error: Exception | None = field(default=None, compare=False, repr=False)
    """The reason, for the log; None if the connection is no longer needed."""


class Commit(NamedTuple):
    """Write a batch to the database. Numbers start at 1 and increase by one.

    Several batches may be written in one transaction. Committed reports when they are durable. An error ends the
    client: the engine is discarded, and the next one starts from the database.
    """

    number: int
    batch: Batch


class Emit(NamedTuple):
    """Report an event to the user, once all earlier commits are durable and all earlier events have been reported."""

    event: Event


class Work(NamedTuple):
    """Call a slow function, which does not use the database, in any thread. Worked reports its result."""

    token: int
    function: Callable[[], object]


class Read(NamedTuple):
    """Call a function with the database, after all earlier commits. Worked reports its result."""

    token: int
    function: Callable[[Store], object]


class AskSpent(NamedTuple):
    """Ask the user's source for the outputs that a block spends. Worked reports the undo record, None or the error.

    Nothing else waits for the answer, and several requests may be outstanding at a time.
    """

    token: int
    block_hash: bytes
    previous: bytes
    """Hash of the previous block."""


class AskTweaks(NamedTuple):
    """Ask the user's source for the tweaks of the block at a height. Worked reports the source's answer or the error.

    Nothing else waits for the answer, and several requests may be outstanding at a time.
    """

    token: int
    height: int


class Answer(NamedTuple):
    """Answer the call with this number, which is waiting for the result of a broadcast.

    The answer is the state of the transaction, or the error that prevents the broadcast.
    """

    call: int
    txid: bytes
    answer: Broadcast | Exception


class Done(NamedTuple):
    """The request with this token has been carried out and stored. If it failed, `value` is the exception."""

    token: int
    value: object


class End(NamedTuple):
    """End the client with this error, because it cannot continue."""

    error: Exception


class Wake(NamedTuple):
    """Report Tick at this time (monotonic seconds). It replaces the time of the previous Wake."""

    at: float


Effect = (
    Connect
    | AskSeeds
    | AskSpent
    | AskTweaks
    | Send
    | Fence
    | Drop
    | Commit
    | Emit
    | Work
    | Read
    | Answer
    | Done
    | End
    | Wake
)
