"""Read the descriptors, addresses and labels in files that wallets export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.watch.imports.recognition import read_wallet_file as read_wallet_file
    from spvfilter.watch.imports.walletfile import (
        ImportedAddress as ImportedAddress,
        ImportedDescriptor as ImportedDescriptor,
        WalletFile as WalletFile,
    )
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        recognition="read_wallet_file",
        walletfile="ImportedAddress ImportedDescriptor WalletFile",
    )
