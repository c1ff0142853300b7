"""Block headers: difficulty, consensus rules, the chain with the most work, its forks, and header sync."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.chain.difficulty import (
        decode_bits as decode_bits,
        encode_bits as encode_bits,
        retarget as retarget,
        target as target,
        total_work as total_work,
        work as work,
    )
    from spvfilter.chain.forks import Fork as Fork
    from spvfilter.chain.headerchain import (
        Candidate as Candidate,
        ChainHeader as ChainHeader,
        HeaderChain as HeaderChain,
        Start as Start,
        Update as Update,
    )
    from spvfilter.chain.linking import (
        Linked as Linked,
        Order as Order,
        Segment as Segment,
        coinbase_height as coinbase_height,
        is_proven as is_proven,
        link as link,
    )
    from spvfilter.chain.rules import Tip as Tip
    from spvfilter.chain.sync import HeaderSync as HeaderSync, SyncPhase as SyncPhase
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        difficulty="decode_bits encode_bits retarget target total_work work",
        forks="Fork",
        headerchain="Candidate ChainHeader HeaderChain Start Update",
        linking="Linked Order Segment coinbase_height is_proven link",
        rules="Tip",
        sync="HeaderSync SyncPhase",
    )
