"""Silent payments in the books: the label, the account and the tweak of the scripts that payments add."""

from __future__ import annotations

import pytest

from spvfilter.errors import InexpressibleError
from spvfilter.network import REGTEST
from spvfilter.wallet.filterdata import stored_elements
from spvfilter.watch.silentkeychain import Found
from spvfilter.watch.watchlist import WatchList
from support.blocks import silentpayments
from support.blocks.build import p2wpkh
from support.wallets.storesqlite import checked_rows
from support.wallets.walletbooks import OURS, Wallet, coin, pay

pytest.importorskip("btclib_secp256k1")
pytestmark = pytest.mark.descriptors
KEYS = silentpayments.Wallet(network=REGTEST)
FIRST, SECOND, TWEAK = p2wpkh(b"\x11" * 20), p2wpkh(b"\x12" * 20), bytes(range(32))


class Gifts(Wallet):
    """A wallet with a scan key in an account."""

    def watch_list(self) -> WatchList:
        watch = super().watch_list()
        with watch.within_account("gifts"):
            watch.add_descriptor(KEYS.descriptor, "savings")
        watch.add_sp_label(1, "lunch")
        return watch


@pytest.fixture
def wallet() -> Wallet:
    return Gifts()


def add(wallet: Wallet, *payments: tuple[bytes, Found]) -> None:
    name = str(KEYS.address())
    wallet.books.add_payments((name, script, found) for script, found in payments)
    wallet.tell(())


def test_a_payment_gets_the_label_and_account_of_its_address(wallet: Wallet) -> None:
    add(wallet, (OURS, Found(None, TWEAK)), (FIRST, Found(1, TWEAK)), (SECOND, Found(None, TWEAK)))
    wallet.mine(*(pay(at, coin(at), to=script) for at, script in enumerate((OURS, FIRST, SECOND), 1)))
    coins = {each.value: (each.account, each.label) for each in wallet.store.views.coins()}
    assert coins == {1: ("gifts", "label 0"), 2: ("gifts", "lunch"), 3: ("gifts", "savings")}


def test_a_tweak_is_stored_once_it_is_known(wallet: Wallet) -> None:
    """A scan into files finds payments without their tweaks."""
    add(wallet, (FIRST, Found(None, b"")))
    wallet.mine(pay(5, coin(1), to=FIRST))
    for tweak, stored in ((b"", None), (TWEAK, TWEAK), (b"", TWEAK)):
        add(wallet, (FIRST, Found(None, tweak)))
        assert [each.sp_tweak for each in wallet.store.views.coins()] == [stored]


def test_a_bip37_filter_is_refused_for_a_stored_scan_key(wallet: Wallet) -> None:
    with pytest.raises(InexpressibleError, match="cannot find payments to silent payment addresses"):
        stored_elements(checked_rows(wallet.store), REGTEST, wallet.store.tip)
