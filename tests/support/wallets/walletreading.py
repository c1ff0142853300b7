"""Reads examples of wallet files, or says why a file is refused. A refusal repeats no secret."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from spvfilter.errors import WalletFileWarning, WatchFileError
from spvfilter.network import MAINNET, Network
from spvfilter.watch.imports import WalletFile, read_wallet_file
from spvfilter.watch.watchlist import WatchList
from support.wallets.walletfiles import MULTI, PHRASE, SINGLE, WIF, XPRV, text_of

BOTH = f"{SINGLE}/<0;1>/*)"
MULTISIG = MULTI % ("/<0;1>/*", "/<0;1>/*")


def write(path: Path, value: object) -> Path:
    path = path / "wallet"
    path.write_bytes(value if isinstance(value, bytes) else text_of(value).encode())
    return path


def read(path: Path, value: object) -> WalletFile:
    return read_wallet_file(write(path, value))


def load(path: Path, value: object, network: Network = MAINNET) -> WatchList:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WalletFileWarning)
        return WatchList.load(write(path, value), network)


def refused(path: Path, value: object, network: Network = MAINNET) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WalletFileWarning)
        with pytest.raises(WatchFileError) as caught:
            WatchList.load(write(path, value), network)
    (problem,) = caught.value.problems
    assert str(problem[1]) in str(caught.value)
    for secret in (XPRV, WIF, PHRASE):
        assert secret[:12] not in str(caught.value)
    return problem[1]
