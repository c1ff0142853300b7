"""The light client's engine, sans-IO: it runs in virtual time as well as in real time."""

from __future__ import annotations

from spvfilter.light.engine.engine import Engine as Engine
from spvfilter.light.engine.inputs import Instant as Instant
from spvfilter.light.engine.options import Options as Options, Patience as Patience
from spvfilter.light.engine.saved import Saved as Saved
