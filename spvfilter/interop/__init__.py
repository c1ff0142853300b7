"""Give other wallet libraries the history that spvfilter found: so far, BDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.interop.bdk import bdk_wallet as bdk_wallet
else:
    __all__, __getattr__, __dir__ = lazy(__name__, bdk="bdk_wallet")
