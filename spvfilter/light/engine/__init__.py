"""The light client's engine, sans-IO: it runs in virtual time as well as in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.light.engine.engine import ClientEngine as ClientEngine
    from spvfilter.light.engine.inputs import Instant as Instant
    from spvfilter.light.engine.options import Options as Options, PeerTimeouts as PeerTimeouts
    from spvfilter.light.engine.saved import Saved as Saved
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__, engine="ClientEngine", inputs="Instant", options="Options PeerTimeouts", saved="Saved"
    )
