"""Connections to peers over TCP, directly or through a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.p2p.address import Address as Address
    from spvfilter.p2p.clock import Clock as Clock
    from spvfilter.p2p.connection import Connection as Connection
    from spvfilter.p2p.limits import Limits as Limits
    from spvfilter.p2p.proxy import Proxy as Proxy
    from spvfilter.p2p.relayed import RelayedTransactions as RelayedTransactions
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        address="Address",
        clock="Clock",
        connection="Connection",
        limits="Limits",
        proxy="Proxy",
        relayed="RelayedTransactions",
    )
