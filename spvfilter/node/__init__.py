"""A regtest full node for tests, demos and applications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.node.blocktree import BlockTree as BlockTree, TipChange as TipChange, TreeBlock as TreeBlock
    from spvfilter.node.build import build_block as build_block, build_coinbase as build_coinbase
    from spvfilter.node.consensus import UnspentOutput as UnspentOutput
    from spvfilter.node.filterindex import FilterIndex as FilterIndex
    from spvfilter.node.mempool import TxMempool as TxMempool
    from spvfilter.node.regtest import ChainListener as ChainListener, Regtest as Regtest
    from spvfilter.node.responder import Responder as Responder
    from spvfilter.node.scripts import (
        Lock as Lock,
        multisig as multisig,
        op_return as op_return,
        p2pk as p2pk,
        p2pkh as p2pkh,
        p2sh as p2sh,
        p2tr as p2tr,
        p2wpkh as p2wpkh,
        p2wsh as p2wsh,
    )
    from spvfilter.node.server import Node as Node
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        blocktree="BlockTree TipChange TreeBlock",
        build="build_block build_coinbase",
        consensus="UnspentOutput",
        filterindex="FilterIndex",
        mempool="TxMempool",
        regtest="ChainListener Regtest",
        responder="Responder",
        scripts="Lock multisig op_return p2pk p2pkh p2sh p2tr p2wpkh p2wsh",
        server="Node",
    )
