"""Inner parts of a connection, its session and its encryption: for nodes that send what a session refuses to, and for
tests that read the raw bytes.
"""

from __future__ import annotations

import asyncio

from spvfilter.p2p.connection import Connection
from spvfilter.wire import Session
from spvfilter.wire.v2 import PacketEncoder, V2Stream


def send_raw(session: Session, data: bytes) -> None:
    """Send bytes between two messages, which need not be a message."""
    session._stream.outgoing.extend(data)


def unsent(session: Session) -> bytes:
    """The bytes that wait to be sent."""
    return bytes(session._stream.outgoing)


def ping(session: Session, now: float) -> None:
    """Send a ping that is no fence, as on Core's timer."""
    session._ping(now, fence=False)


def pings_sent_at(session: Session) -> list[float]:
    """When the pings without an answer were sent."""
    return [sent for sent, _ in session._pings.values()]


def encoder_of(side: V2Stream) -> PacketEncoder:
    """The encoder of a stream, for packets that it does not send by itself."""
    return side._encoder


def writer_of(connection: Connection) -> asyncio.StreamWriter:
    """The writer of a connection, which tells what waits to be sent."""
    return connection._writer


def prompt(connection: Connection) -> None:
    """Send a line end if the peer has sent nothing, as soon after the connection has opened."""
    connection._prompt()
