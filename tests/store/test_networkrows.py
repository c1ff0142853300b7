"""The network of a database: signets share a genesis block, and their magics and challenges tell them apart."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from spvfilter.errors import StoreCorruptError, StoreForeignError
from spvfilter.network import NETWORKS, SIGNET, Network
from spvfilter.store.networkrows import network_of, network_rows
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from support.wallets.storesqlite import writing

CUSTOM = Network.signet("51")
OTHER = Network.signet("52")
BY_MAGIC = dataclasses.replace(SIGNET, name="mine", magic=b"mine")  # a network of the caller, without a challenge


@pytest.mark.parametrize("network", [*NETWORKS, CUSTOM, OTHER], ids=str)
def test_database_tells_its_network(tmp_path: Path, network: Network) -> None:
    path = tmp_path / "w.db"
    Store.open(path, network).close()
    Store.open(path, network).close()
    with WalletStore.open(path) as wallet:
        assert wallet.network == network
    Store.open(path, network, rebuild=True).close()
    with WalletStore.open(path) as wallet:
        assert wallet.network == network


@pytest.mark.parametrize("network", [SIGNET, CUSTOM, BY_MAGIC], ids=str)
@pytest.mark.parametrize("other", [SIGNET, CUSTOM, OTHER, BY_MAGIC], ids=str)
@pytest.mark.parametrize("rebuild", [False, True])
def test_signet_with_another_challenge_is_refused(
    tmp_path: Path, network: Network, other: Network, rebuild: bool
) -> None:
    path = tmp_path / "w.db"
    Store.open(path, network).close()
    if other is network:
        Store.open(path, other, rebuild=rebuild).close()
        return
    before = path.read_bytes()
    with pytest.raises(StoreForeignError, match="this wallet belongs to"):
        Store.open(path, other, rebuild=rebuild)
    assert path.read_bytes() == before


def test_message_has_the_magics_if_the_names_are_equal(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    Store.open(path, dataclasses.replace(SIGNET, magic=b"mine")).close()
    with pytest.raises(StoreForeignError, match=r"signet \(magic 6d696e65\), not to signet \(magic 0a03cf40\)"):
        Store.open(path, SIGNET)


def test_database_without_a_magic_is_of_the_default_network(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, SIGNET) as store, writing(store) as rows:
        rows.set_meta("magic", None)
        rows.set_meta("signet_challenge", None)
    Store.open(path, SIGNET).close()
    with pytest.raises(StoreForeignError, match="belongs to signet, not to signet:51"):
        Store.open(path, CUSTOM)


@pytest.mark.parametrize(
    "damage",
    [{"network": bytes(32)}, {"magic": b"123"}, {"signet_challenge": b""}, {"signet_challenge": bytes(10_001)}],
)
def test_malformed_values_are_an_unknown_network(tmp_path: Path, damage: dict[str, bytes]) -> None:
    assert network_of(network_rows(CUSTOM) | damage) is None
    path = tmp_path / "w.db"
    with Store.open(path, CUSTOM) as store, writing(store) as rows:
        for key, value in damage.items():
            rows.set_meta(key, value)
    for open_store in (WalletStore.open, lambda file: Store.open(file, CUSTOM)):
        with pytest.raises(StoreCorruptError, match="belongs to an unknown network"):
            open_store(path)
