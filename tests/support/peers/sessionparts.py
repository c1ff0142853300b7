"""Inner parts of a session, for nodes that send what a session refuses to, and for tests that read the raw bytes."""

from __future__ import annotations

from spvfilter.wire import Session


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
