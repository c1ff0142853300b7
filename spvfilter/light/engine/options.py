"""Options of the light client's engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from spvfilter.filters.bip37 import DEFAULT_FP_RATE
from spvfilter.light.events import Mode
from spvfilter.p2p.limits import Limits


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose; see LightClient."""

    mode: Mode = Mode.AUTO
    mempool: bool = True
    keep_filters: bool = False
    fp_rate: float = DEFAULT_FP_RATE
    from_height: int = 0
    birthday: int | None = None  # seconds since 1970
    max_peers: int = 8
    limits: Limits = field(default_factory=Limits)
