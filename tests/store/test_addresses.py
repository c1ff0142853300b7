"""Addresses of peers in the wallet's database."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.network import REGTEST
from spvfilter.store.addresses import KnownAddress
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store
from support.wallets.forgery import forge

ONE = KnownAddress("1.2.3.4:8333", 0x49, 1_700_000_000, "5.6.0.0/16", False)
TWO = KnownAddress("[2001:db8::1]:8333", 0xD, 1_700_000_001, "seed.example", True, 5, 6, 7, 8, 9)


def test_addresses_keep_their_latest_values(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        assert store.addresses.load() == []
        store.commit(Batch(addresses={ONE.address: ONE, TWO.address: TWO}))
        store.commit(
            Batch(addresses={ONE.address: ONE._replace(failures=3)}),
            Batch(addresses={TWO.address: None, "unknown:1": None}),
        )
    with Store.open(path, REGTEST) as store:
        assert store.addresses.load() == [ONE._replace(failures=3)]


def test_a_batch_of_addresses_alone_is_not_empty() -> None:
    assert not Batch(addresses={ONE.address: None}).is_empty


def test_services_above_63_bits_are_stored_as_the_largest_number(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(Batch(addresses={ONE.address: ONE._replace(services=(1 << 64) - 1)}))
        (known,) = store.addresses.load()
        assert known.services == (1 << 63) - 1


@pytest.mark.parametrize(
    "change", ["UPDATE addresses SET services = 0xd", "UPDATE addresses SET seen = 'x'", "DELETE FROM addresses"]
)
def test_a_damaged_address_is_left_out_and_can_return(change: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(addresses={ONE.address: ONE}))
    forge(path, change)
    with Store.open(path, REGTEST) as store:
        assert store.addresses.load() == []
        store.commit(Batch(addresses={ONE.address: ONE}))
        assert store.addresses.load() == [ONE]
