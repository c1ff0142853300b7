"""The light client: finds a wallet's transactions on the live network, by BIP-37 or compact filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.light.blocking import EventIterator as EventIterator, SyncLightClient as SyncLightClient
    from spvfilter.light.client import LightClient as LightClient
    from spvfilter.light.events import (
        BlockFeeRate as BlockFeeRate,
        Broadcast as Broadcast,
        BroadcastChanged as BroadcastChanged,
        BroadcastProgress as BroadcastProgress,
        BroadcastStep as BroadcastStep,
        Event as Event,
        FeeFloor as FeeFloor,
        FeeRates as FeeRates,
        FeeWarning as FeeWarning,
        Mode as Mode,
        PeerChanged as PeerChanged,
        PeerWarning as PeerWarning,
        PendingWarning as PendingWarning,
        Phase as Phase,
        Progress as Progress,
        Refusal as Refusal,
        Synced as Synced,
    )
    from spvfilter.light.lies import Lie as Lie
    from spvfilter.light.spentsource import SpentSource as SpentSource
    from spvfilter.light.status import ClientStatus as ClientStatus, Metrics as Metrics, PeerStatus as PeerStatus
    from spvfilter.light.stream import EventStream as EventStream
    from spvfilter.light.tweaksource import TweakSource as TweakSource
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        client="LightClient",
        events=(
            "BlockFeeRate Broadcast BroadcastChanged BroadcastProgress BroadcastStep Event FeeFloor FeeRates FeeWarning"
            " Mode PeerChanged PeerWarning PendingWarning Phase Progress Refusal Synced"
        ),
        lies="Lie",
        spentsource="SpentSource",
        status="ClientStatus Metrics PeerStatus",
        stream="EventStream",
        tweaksource="TweakSource",
        blocking="EventIterator SyncLightClient",
    )
