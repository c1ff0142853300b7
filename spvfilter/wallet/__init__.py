"""A wallet's events, and read-only access to its database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.wallet.events import (
        BlockConnected as BlockConnected,
        BlockDisconnected as BlockDisconnected,
        MatchConfirmed as MatchConfirmed,
        MatchFound as MatchFound,
        MatchUnconfirmed as MatchUnconfirmed,
        MatchWithdrawn as MatchWithdrawn,
        Reason as Reason,
        RunStarted as RunStarted,
        TxReplaced as TxReplaced,
        WalletEvent as WalletEvent,
    )
    from spvfilter.wallet.reader import WalletStore as WalletStore
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        events=(
            "BlockConnected BlockDisconnected MatchConfirmed MatchFound MatchUnconfirmed MatchWithdrawn"
            " Reason RunStarted TxReplaced WalletEvent"
        ),
        reader="WalletStore",
    )
