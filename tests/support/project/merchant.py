"""The module examples/merchant.py, and accounts for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter.watch.descriptor.keyexpression import wally as library

PATH = Path(__file__).parents[3] / "examples" / "merchant.py"

if TYPE_CHECKING:
    from examples import merchant as merchant
else:
    _spec = importlib.util.spec_from_file_location("merchant", PATH)
    merchant = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(merchant)

# the account m/84h/1h/0h of the words "abandon abandon … about", which BIP-84 uses
_KEY = "tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQgewGiYZqrA9DsP4zbQ1M"
_HARDENED = 1 << 31

ACCOUNTS = {"cafe": f"wpkh({_KEY}/0/*)", "bar": f"wpkh({_KEY}/7/*)"}
"""Descriptor of each account."""


def private_key(branch: int, index: int) -> bytes:
    """The private key of an address: branch 0 is the account "cafe", branch 7 is "bar"."""
    wally = library()
    seed = wally.bip39_mnemonic_to_seed512("abandon " * 11 + "about", None)
    master = wally.bip32_key_from_seed(seed, wally.BIP32_VER_TEST_PRIVATE, 0)
    path = [84 + _HARDENED, 1 + _HARDENED, _HARDENED, branch, index]
    return bytes(wally.bip32_key_get_priv_key(wally.bip32_key_from_parent_path(master, path, 0)))
