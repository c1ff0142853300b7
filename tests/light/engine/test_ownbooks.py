"""Own transactions in the books: broadcasts that the wallet refuses at once, and ancestors that return with a child."""

from __future__ import annotations

import pytest

from spvfilter.errors import ParameterError, TxConflictError, counted
from spvfilter.light.engine.ownbooks import OwnBooks
from spvfilter.primitives import hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from support.blocks.build import TxIn, TxOut, tx, txid
from support.wallets.walletbooks import OURS, Wallet, coin, out, pay


@pytest.fixture
def wallet() -> Wallet:
    return Wallet()


def refusal(wallet: Wallet, raw: bytes) -> ParameterError:
    """Return the error of a broadcast, and check that nothing was recorded."""
    before = wallet.statuses()
    with pytest.raises(ParameterError) as caught:
        OwnBooks(wallet.books).check(Transaction.parse(raw))
    assert wallet.statuses() == before
    return caught.value


def test_outputs_above_known_inputs_are_refused(wallet: Wallet) -> None:
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    parent = pay(900, coin(2))
    wallet.observe(parent)
    for inputs, most in (((funding,), 1_000), ((parent,), 900), ((funding, parent), 1_900)):
        spends = [TxIn(txid(each), 0) for each in inputs]
        told = str(refusal(wallet, tx(spends, [TxOut(most, OURS), TxOut(1, OURS)])))
        assert f"its outputs are worth {most + 1} satoshi, but its inputs only {most}" in told
        OwnBooks(wallet.books).check(Transaction.parse(tx(spends, [TxOut(most, OURS)])))
    unknown = TxIn(bytes(31) + b"\x03", 0)
    OwnBooks(wallet.books).check(Transaction.parse(tx([TxIn(txid(parent), 0), unknown], [TxOut(5_000, OURS)])))


def test_an_output_that_does_not_exist_is_refused(wallet: Wallet) -> None:
    parent = pay(900, coin(1))
    wallet.observe(parent)
    wallet.mine(funding := pay(1_000, coin(2)))
    for each in (parent, funding):
        number = len(Transaction.parse(each).outputs)
        told = str(refusal(wallet, tx([TxIn(txid(each), number)], [TxOut(1, OURS)])))
        assert f"it spends output {number} of" in told
        assert f"which has only {counted(number, 'output')}" in told


def test_an_input_that_a_block_spends_is_refused(wallet: Wallet) -> None:
    funding = pay(1_000, coin(1))
    spend = pay(900, out(funding))
    wallet.mine(funding, spend)
    error = refusal(wallet, pay(800, out(funding)))
    assert isinstance(error, TxConflictError)
    assert (error.by, error.height) == (txid(spend), wallet.books.cursor)


@pytest.mark.few(1)
@pytest.mark.parametrize("rejected", [True, False])
@pytest.mark.parametrize("length", [1, 2, 40])
def test_ended_ancestors_return_with_a_child(wallet: Wallet, rejected: bool, length: int) -> None:
    wallet.mine(funding := pay(100_000, coin(1)))
    chain = [funding]
    for number in range(length):
        chain.append(pay(99_000 - 1_000 * number, out(chain[-1])))
        wallet.broadcast(chain[-1])
    wallet.tell((wallet.books.reject if rejected else wallet.books.abandon)(txid(chain[1])))
    child = Transaction.parse(pay(5, out(chain[-1])))
    books = OwnBooks(wallet.books)
    if rejected:
        assert [each.raw for each in books.check(child)] == chain[1:]
        assert wallet.statuses()[txid(chain[1])] == TxStatus.REFUSED
        return
    with pytest.raises(ParameterError, match=r"was abandoned: broadcast .* first"):
        books.check(child)


def test_every_ended_parent_returns_once_and_parents_come_first(wallet: Wallet) -> None:
    """A diamond: the child spends from two parents, and both spend from one ancestor."""
    wallet.mine(funding := pay(100_000, coin(1)))
    root = tx([TxIn(txid(funding), 0)], [TxOut(40_000, OURS), TxOut(40_000, OURS), TxOut(9_000, OURS)])
    sides = [tx([TxIn(txid(root), side)], [TxOut(30_000, OURS)]) for side in (0, 1)]
    for raw in (root, *sides):
        wallet.broadcast(raw)
    wallet.tell(wallet.books.reject(txid(root)))
    child = Transaction.parse(pay(5, *map(out, sides), out(root, 2)))
    found = [each.txid for each in OwnBooks(wallet.books).check(child)]
    assert found[0] == txid(root)
    assert sorted(found[1:]) == sorted(map(txid, sides))


def test_an_ancestor_in_conflict_with_a_block_is_named(wallet: Wallet) -> None:
    wallet.mine(funding := pay(1_000, coin(1)))
    parent, rival = pay(900, out(funding)), pay(800, out(funding))
    wallet.broadcast(parent)
    wallet.tell(wallet.books.reject(txid(parent)))
    wallet.mine(rival)
    assert isinstance(refusal(wallet, pay(5, out(parent))), TxConflictError)


def test_an_ancestor_that_turns_out_to_be_impossible_is_named(wallet: Wallet) -> None:
    """Its input became known only after it was broadcast. Nothing is wrong with the child itself."""
    funding = pay(500, coin(1))
    parent = pay(900, out(funding))
    wallet.broadcast(parent)
    wallet.tell(wallet.books.reject(txid(parent)))
    wallet.mine(funding)
    told = str(refusal(wallet, pay(5, out(parent))))
    assert f"it spends from {hash_to_hex(txid(parent))}, which cannot be broadcast again" in told
    assert told.endswith("but its inputs only 500")


def test_the_fee_is_known_if_every_value_is_known(wallet: Wallet) -> None:
    wallet.mine(funding := pay(1_000, coin(1)))
    books, spend = OwnBooks(wallet.books), Transaction.parse(tx([TxIn(txid(funding), 0)], [TxOut(900, OURS)]))
    foreign = Transaction.parse(tx([TxIn(bytes(31) + b"\x03", 0)], [TxOut(900, OURS)]))
    assert books.known_fee(spend) == 100
    assert (books.known_fee(foreign), books.known_fee(foreign, (1_000,)), books.known_fee(foreign, (5,))) == (
        None,
        100,
        None,
    )


def test_a_rejected_replacement_conflicts_with_the_pending_version(wallet: Wallet) -> None:
    wallet.mine(funding := pay(10_000, coin(1)))
    first, second, third = (pay(value, out(funding)) for value in (9_000, 8_000, 7_900))
    books = wallet.books
    for raw in (first, second):
        books.broadcast(raw, wallet.now)
        books.requested(txid(raw))
    books.broadcast(third, wallet.now)
    books.reject(txid(third))
    assert OwnBooks(books).rival(Transaction.parse(third)) == txid(second)
    assert OwnBooks(books).rival(Transaction.parse(pay(500, coin(7)))) is None
