"""Client for a full node's REST, JSON-RPC and ZMQ interfaces (chain, blocks, spent outputs), and for a tweak server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.rpc.api import ChainInfo as ChainInfo, NodeApi as NodeApi
    from spvfilter.rpc.blindbit import BlindBitOracle as BlindBitOracle
    from spvfilter.rpc.credentials import CookieFile as CookieFile, Credentials as Credentials, Password as Password
    from spvfilter.rpc.endpoint import Endpoint as Endpoint
    from spvfilter.rpc.fullnode import FullNode as FullNode, Listing as Listing
    from spvfilter.rpc.http import RpcLimits as RpcLimits
    from spvfilter.rpc.notices import TipNotices as TipNotices
    from spvfilter.rpc.patience import Patience as Patience
    from spvfilter.rpc.txnotices import TxNotices as TxNotices
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        api="ChainInfo NodeApi",
        blindbit="BlindBitOracle",
        credentials="CookieFile Credentials Password",
        endpoint="Endpoint",
        fullnode="FullNode Listing",
        http="RpcLimits",
        notices="TipNotices",
        patience="Patience",
        txnotices="TxNotices",
    )
