"""Signatures of foreign spends in the books: wrong bytes are dropped, valid ones count from the first peer on."""

from __future__ import annotations

import pytest

from spvfilter.kernel import parse_tx, strip_witness
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import SIGHASH_ALL, find_curve, verify_spends
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books
from spvfilter.wallet.canonical import Status
from spvfilter.wallet.events import MatchWithdrawn
from support.blocks import build
from support.blocks.build import TxIn, tx, txid
from support.blocks.signing import Kind, signed_tx, tr, tr_script, wpkh
from support.wallets.walletbooks import THEIRS, Wallet, coin, out, pay, saved

pytestmark = pytest.mark.skipif(find_curve() is None, reason="libsecp256k1 is not installed")
MINE, SCRIPT_PATH, KEY_PATH = wpkh(5), tr_script(62), tr(61)


class Checked(Wallet):
    """A wallet that verifies signatures."""

    def restart(self) -> None:
        watch = self.watch_list()
        self.store.attach(watch)
        self.books = Books(watch, saved(self.store), self.limits, verify_spends)


LEGACY = b"\x76\xa9\x14" + MINE.script_pubkey[2:] + b"\x88\xac"


@pytest.fixture
def wallet() -> Checked:
    return Checked(scripts=[LEGACY, *(each.script_pubkey for each in (MINE, SCRIPT_PATH, KEY_PATH))])


def fund(wallet: Wallet, *kinds: Kind) -> list[bytes]:
    """A confirmed coin of 10,000 satoshi of each kind: their outpoints."""
    made = [pay(10_000, coin(number), to=kind.script_pubkey) for number, kind in enumerate(kinds, 1)]
    wallet.mine(*made)
    return [out(raw) for raw in made]


def spend(kinds: list[Kind], points: list[bytes], value: int = 9_000) -> bytes:
    """A signed spend of coins of 10,000 satoshi."""
    places = [OutPoint.parse(each) for each in points]
    tx, _, _ = signed_tx(
        [(kind, 10_000) for kind in kinds], [TxOut(value, THEIRS)], [SIGHASH_ALL] * len(kinds), outpoints=places
    )
    return tx.raw


def broken(raw: bytes) -> bytes:
    """The same transaction with another byte in its last signature: the same txid, another wtxid."""
    tx = Transaction.parse(raw)
    at = raw.rindex(b"\x30\x44") + 40 if b"\x30\x44" in raw else raw.rindex(b"\x30\x45") + 40
    changed = raw[:at] + bytes((raw[at] ^ 1,)) + raw[at + 1 :]
    assert Transaction.parse(changed).txid == tx.txid
    return changed


def test_valid_spend_of_one_peer_takes_the_coin(wallet: Checked) -> None:
    points = fund(wallet, MINE)
    raw = spend([MINE], points)
    wallet.observe(raw, "a", quorum=2)
    views = wallet.store.views
    assert wallet.statuses()[txid(raw)] == "pending"
    assert views.unspent() == []
    assert views.balance().spendable == 0
    assert views.balance().pending_out == 10_000
    wallet.restart()
    assert wallet.books.opening == []
    assert views.unspent() == []


def test_wrong_signature_drops_the_bytes_and_not_the_transaction(wallet: Checked) -> None:
    points = fund(wallet, MINE)
    raw = spend([MINE], points)
    wrong = broken(raw)
    for _ in range(2):
        assert wallet.observe(wrong, "a", "b", quorum=2) == []
        assert wallet.books.intake.take_wrong() == [(txid(raw), Transaction.parse(wrong).wtxid)]
        assert wallet.books.intake.take_wrong() == []
        assert wallet.store.views.transaction(txid(raw)) is None
        assert [bytes(each.outpoint) for each in wallet.store.views.unspent()] == points
    wallet.observe(raw, "c", quorum=2)
    assert wallet.statuses()[txid(raw)] == "pending"


def test_unsigned_spend_is_wrong_whatever_announces_it(wallet: Checked) -> None:
    points = fund(wallet, MINE)
    wallet.observe(pay(9_000, points[0], to=THEIRS), "a", "b", "c", quorum=1)
    assert wallet.books.intake.take_wrong()
    assert wallet.store.views.balance().total == 10_000


def test_unverified_spend_needs_two_groups_and_leaves_the_coin(wallet: Checked) -> None:
    points = fund(wallet, SCRIPT_PATH)
    raw = spend([SCRIPT_PATH], points)
    wallet.observe(raw, "a", quorum=2)
    assert wallet.books.judgement.status(txid(raw)) is TxStatus.WAITING
    assert wallet.store.views.balance().pending_out == 0
    wallet.observe(raw, "b", quorum=2)
    assert wallet.store.views.balance().pending_out == 10_000
    assert len(wallet.store.views.unspent()) == 1


def test_one_wrong_input_of_several_is_enough(wallet: Checked) -> None:
    points = fund(wallet, SCRIPT_PATH, MINE)
    raw = broken(spend([SCRIPT_PATH, MINE], points))
    wallet.observe(raw, "a", "b")
    assert wallet.books.intake.take_wrong()
    assert wallet.books.judgement.status(txid(raw)) is None


def test_valid_spend_outranks_a_later_unverified_one(wallet: Checked) -> None:
    points = fund(wallet, MINE, SCRIPT_PATH)
    signed = spend([MINE], points[:1])
    wallet.observe(signed, "a", quorum=2)
    both = spend([MINE, SCRIPT_PATH], points, 19_000)
    wallet.observe(both, "a", "b", quorum=2)
    assert wallet.statuses()[txid(signed)] == "pending"
    assert wallet.statuses()[txid(both)] == "replaced"


def test_own_broadcast_outranks_a_valid_spend(wallet: Checked) -> None:
    points = fund(wallet, MINE)
    replayed, sent = spend([MINE], points), spend([MINE], points, 8_000)
    wallet.broadcast(sent)
    wallet.observe(replayed, "a", "b", quorum=2)
    assert wallet.statuses() | {txid(sent): "pending", txid(replayed): "replaced"} == wallet.statuses()


def test_ancestors_of_a_valid_spend_count_with_it(wallet: Checked) -> None:
    payment = pay(10_000, coin(9), to=MINE.script_pubkey)
    wallet.observe(payment, "a", quorum=2)
    assert wallet.books.judgement.status(txid(payment)) is TxStatus.WAITING
    wallet.observe(spend([MINE], [out(payment)]), "a", quorum=2)
    assert wallet.books.judgement.status(txid(payment)) is TxStatus.PENDING


def test_ancestors_count_once_a_learned_coin_proves_a_spend(wallet: Checked) -> None:
    """A block confirms the coin after the spend was announced. Only then can the wallet verify its signature."""
    theirs, payment = wpkh(6), pay(10_000, coin(9), to=MINE.script_pubkey)
    outputs = [build.TxOut(1_000, MINE.script_pubkey), build.TxOut(10_000, theirs.script_pubkey)]
    parent = tx([TxIn(coin(8)[:32], 0)], outputs)
    child, _, _ = signed_tx(
        [(theirs, 10_000), (MINE, 10_000)],
        [TxOut(9_000, MINE.script_pubkey)],
        [SIGHASH_ALL] * 2,
        outpoints=[OutPoint.parse(out(parent, 1)), OutPoint.parse(out(payment))],
    )
    for raw in (parent, child.raw):
        wallet.observe(raw, "a", quorum=2)
        assert wallet.books.judgement.status(txid(raw)) is TxStatus.WAITING
    wallet.mine(payment)
    assert wallet.statuses() == {txid(payment): "confirmed", child.txid: "pending", txid(parent): "pending"}


def forged(point: bytes, to: bytes) -> bytes:
    """A spend with a made-up witness."""
    txin = TxIn(point[:32], int.from_bytes(point[32:], "little"), witness=(bytes(71), bytes(33)))
    return tx([txin], [build.TxOut(9_000, to), build.TxOut(7, THEIRS)])


@pytest.mark.parametrize("groups", [(), ("a",), ("a", "b")])
def test_stripped_spend_of_a_filtered_block_survives_a_restart(wallet: Checked, groups: tuple[str, ...]) -> None:
    """Peers that filter blocks by BIP-37 send transactions without witnesses, also those announced with one."""
    points = fund(wallet, MINE)
    stripped = strip_witness(signed := spend([MINE], points[:1]), parse_tx(signed))
    if groups:
        wallet.observe(signed, *groups, quorum=2)
    wallet.mine(stripped)
    wallet.reorganize(1)
    for _ in range(2):
        assert wallet.books.judgement.status(txid(signed)) is TxStatus.PENDING
        assert wallet.store.views.unspent() == []
        wallet.restart()


@pytest.mark.parametrize("kind", [MINE, SCRIPT_PATH], ids=["unchecked", "unverifiable"])
def test_a_block_is_evidence_for_the_spend_in_it(kind: Kind) -> None:
    """Its owner signed it, so the coin stays taken after a reorganization, even if nothing can verify the signature."""
    wallet = Wallet(scripts=[MINE.script_pubkey]) if kind is MINE else Checked(scripts=[SCRIPT_PATH.script_pubkey])
    raw = spend([kind], fund(wallet, kind))
    wallet.observe(raw, "a", "b", quorum=2)
    assert wallet.store.views.balance().spendable == 10_000
    wallet.mine(raw)
    wallet.reorganize(1)
    for _ in range(2):
        assert wallet.store.views.balance().pending_out == 10_000
        assert wallet.store.views.balance().spendable == 0
        wallet.restart()


def test_a_wrong_witness_in_a_stale_block_is_dropped(wallet: Checked) -> None:
    raw = forged(fund(wallet, MINE)[0], THEIRS)
    wallet.mine(raw)
    wallet.reorganize(1)
    assert wallet.books.judgement.status(txid(raw)) is None
    assert wallet.store.views.balance().spendable == 10_000


def test_coin_that_is_learned_later_shows_a_wrong_signature(wallet: Checked) -> None:
    """The payment arrives in a block after its forged spend, which also pays the wallet."""
    payment = pay(10_000, coin(9), to=MINE.script_pubkey)
    invented = forged(out(payment), MINE.script_pubkey)
    wallet.observe(invented, "a", "b", quorum=2)
    assert wallet.pending == 9_000
    events = wallet.mine(payment)
    assert [each.match.txid for each in events if isinstance(each, MatchWithdrawn)] == [txid(invented)]
    assert wallet.books.intake.take_wrong()
    assert wallet.store.views.balance().total == 10_000


@pytest.mark.parametrize("groups", [("a",), ("a", "b")])
@pytest.mark.parametrize("script", [MINE.script_pubkey, LEGACY], ids=["stripped", "legacy"])
def test_unsigned_spend_of_a_later_coin_is_withdrawn(wallet: Checked, script: bytes, groups: tuple[str, ...]) -> None:
    payment = pay(10_000, coin(9), to=script)
    unsigned = pay(1, out(payment), to=script)
    wallet.observe(unsigned, *groups, quorum=len(groups))
    assert wallet.pending == 1
    events = wallet.mine(payment)
    assert [each.match.txid for each in events if isinstance(each, MatchWithdrawn)] == [txid(unsigned)]
    assert wallet.books.intake.take_wrong()
    wallet.restart()
    wallet.tell(wallet.books.opening)
    assert wallet.store.views.balance().total == 10_000
    assert [bytes(each.outpoint) for each in wallet.store.views.unspent()] == [out(payment)]


def test_wrong_spends_of_an_older_database_are_dropped() -> None:
    wallet: Wallet = Wallet(scripts=[MINE.script_pubkey])
    points = fund(wallet, MINE)
    wallet.observe(forged(points[0], THEIRS))
    assert wallet.store.views.balance().total == 0
    wallet.__class__ = Checked
    wallet.restart()
    wallet.tell(wallet.books.opening)
    assert wallet.store.views.balance().total == 10_000
    assert len(wallet.store.views.unspent()) == 1


def test_child_of_a_dropped_transaction_is_judged_without_it(wallet: Checked) -> None:
    points = fund(wallet, MINE)
    parent = pay(9_000, points[0], to=THEIRS)
    child = pay(8_000, out(parent), to=MINE.script_pubkey)
    wallet.observe(child, "a", "b", quorum=2)
    wallet.observe(parent, "a", "b", quorum=2)
    assert wallet.books.judgement.status(txid(parent)) is None
    assert wallet.books.judgement.verdict(txid(child)) is not None
    assert wallet.books.judgement.verdict(txid(child)).status is Status.CANONICAL  # type: ignore[union-attr]


def test_taproot_key_path_needs_all_outputs_that_it_spends(wallet: Checked) -> None:
    """Its signature commits to all of them. A later parent of the other input makes it verifiable."""
    (point,) = fund(wallet, KEY_PATH)
    other = pay(10_000, coin(8), to=MINE.script_pubkey)
    raw = spend([KEY_PATH, MINE], [point, out(other)])
    wallet.observe(raw, "a", quorum=2)
    assert wallet.books.judgement.status(txid(raw)) is TxStatus.WAITING
    wallet.observe(other, "a", quorum=2)
    assert wallet.books.judgement.status(txid(raw)) is TxStatus.PENDING
