"""A wallet's eyes on the network: the light client over BIP-37 and compact filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.light.client import LightClient as LightClient
    from spvfilter.light.events import (
        Event as Event,
        FeeFloor as FeeFloor,
        FeeWarning as FeeWarning,
        Mode as Mode,
        PeerChanged as PeerChanged,
        PeerWarning as PeerWarning,
        Phase as Phase,
        Progress as Progress,
        Synced as Synced,
    )
    from spvfilter.light.lies import Lie as Lie
    from spvfilter.light.stream import EventStream as EventStream
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        client="LightClient",
        events="Event FeeFloor FeeWarning Mode PeerChanged PeerWarning Phase Progress Synced",
        lies="Lie",
        stream="EventStream",
    )
