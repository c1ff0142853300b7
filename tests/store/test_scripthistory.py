"""The history of one script, compared with the inputs and outputs of all transactions."""

from __future__ import annotations

import random

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import AddressError, ParameterError, WrongNetworkError
from spvfilter.network import MAINNET, REGTEST
from spvfilter.store.place import MEMORY
from spvfilter.store.views import HistoryEntry, Views
from spvfilter.transaction import Transaction
from store.test_views import OURS, SAVINGS
from store.test_windowviews import Chains, change_at, rows_read
from support.blocks.build import TxIn, TxOut, tx
from support.vectors import effort
from support.wallets.keychains import script_at

SCRIPTS = [OURS, SAVINGS, *map(script_at, range(4)), *map(change_at, range(3))]
FOREIGN = b"\x51"


def filled(rng: random.Random, number: int) -> tuple[Chains, dict[bytes, set[bytes]]]:
    """A wallet with random transactions, and the txids that touch each script."""
    ledger, touched = Chains(MEMORY), {script: set[bytes]() for script in SCRIPTS}
    ledger.mine(12)
    coins: dict[tuple[bytes, int], bytes] = {}
    for each in range(number):
        spent = rng.sample(sorted(coins), min(len(coins), rng.randrange(3)))
        outputs = [TxOut(rng.randrange(1, 9_999), rng.choice([*SCRIPTS, FOREIGN])) for _ in range(rng.randrange(1, 4))]
        inputs = [TxIn(*place) for place in spent] or [TxIn(each.to_bytes(32, "big"), 0)]
        scripts = {coins.pop(place) for place in spent} | {out.script_pubkey for out in outputs}
        if scripts == {FOREIGN}:
            continue
        made = ledger.put(tx(inputs, outputs), rng.choice([None, *range(1, 12)]), seen=1_000 + each)
        coins |= {(made, at): out.script_pubkey for at, out in enumerate(outputs) if out.script_pubkey != FOREIGN}
        for script in scripts - {FOREIGN}:
            touched[script].add(made)
    return ledger, touched


def paged(views: Views, script: bytes | str) -> list[HistoryEntry]:
    """The same history in pages of two."""
    found, before = list[HistoryEntry](), None
    while page := views.history(script=script, limit=2, before=before):
        found += page
        before = page[-1].cursor
    return found


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(4, 12, 300)))
def test_history_of_a_script_is_what_touches_it(seed: int) -> None:
    ledger, touched = filled(random.Random(seed), 40)
    views = ledger.store.views
    whole = views.history()
    assert {entry.txid for entry in whole} == set().union(*touched.values())
    for script in SCRIPTS:
        expected = [entry for entry in whole if entry.txid in touched[script]]
        address = script_to_address(script, REGTEST)
        assert address is not None
        found = views.history(script=script)
        assert (found, found.sequence) == (expected, whole.sequence)
        assert views.history(script=address) == paged(views, address) == expected
        for chosen in ({"label": "savings"}, {"label": "daily"}, {"keychain": "change"}, {"keychain": "savings"}):
            both = [entry for entry in views.history(**chosen) if entry.txid in touched[script]]  # type: ignore[arg-type]
            assert views.history(**chosen, script=script) == both  # type: ignore[arg-type]
        assert views.history(script=script, waiting=True) == []
        assert all(Transaction.parse(entry.raw).txid == entry.txid for entry in found)


@pytest.mark.long
def test_history_of_a_script_reads_its_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    for number in (1, 60):
        ledger, _ = filled(random.Random(1), number)
        ledger.put(tx([TxIn(b"\x77" * 32, 1)], [TxOut(5, script_at(9))]), 3)
        views = ledger.store.views
        assert [entry.net for entry in views.history(script=script_at(9))] == [5]
        read.append(rows_read(monkeypatch, lambda views=views: views.history(script=script_at(9))))  # type: ignore[misc]
    assert read[0] == read[1]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (b"\x51", ParameterError),
        (b"", ParameterError),
        (7, ParameterError),
        ("", AddressError),
        ("no address", AddressError),
        (script_to_address(OURS, MAINNET), WrongNetworkError),
        (script_to_address(script_at(500), REGTEST), ParameterError),
    ],
)
def test_unknown_scripts_have_no_history(script: object, error: type[Exception]) -> None:
    ledger, _ = filled(random.Random(1), 3)
    with pytest.raises(error):
        ledger.store.views.history(script=script)  # type: ignore[arg-type]
