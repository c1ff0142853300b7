"""Bitcoin's P2P protocol without sockets: a session takes received bytes and returns messages and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.wire.codec import Decoder as Decoder, Frame as Frame, encode_message as encode_message
    from spvfilter.wire.events import (
        PROTOCOL_VERSION as PROTOCOL_VERSION,
        Cause as Cause,
        Fenced as Fenced,
        Misbehaved as Misbehaved,
        Ready as Ready,
        Received as Received,
        ReceivedFilters as ReceivedFilters,
        Role as Role,
        Service as Service,
        SessionEnded as SessionEnded,
        SessionEvent as SessionEvent,
        Settings as Settings,
    )
    from spvfilter.wire.session import Session as Session
    from spvfilter.wire.streams import MessageStream as MessageStream
    from spvfilter.wire.transport import Transport as Transport, V2Policy as V2Policy
    from spvfilter.wire.v2 import V2Stream as V2Stream
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        codec="Decoder Frame encode_message",
        events=(
            "Cause SessionEnded Fenced Misbehaved PROTOCOL_VERSION Ready Received ReceivedFilters Role Service"
            " SessionEvent Settings"
        ),
        session="Session",
        streams="MessageStream",
        transport="Transport V2Policy",
        v2="V2Stream",
    )
