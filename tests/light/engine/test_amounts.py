"""Transactions with impossible amounts: no valid block has one. The books do not count them, and their sender is
banned.
"""

from __future__ import annotations

import pytest

from light.engine.test_bounds import OURS
from light.engine.test_queue import Announcing
from spvfilter.errors import LieError
from spvfilter.hashes import sha256d
from spvfilter.light.engine.blocks import flaw_in
from spvfilter.light.engine.effects import Effect, Emit
from spvfilter.light.engine.inputs import Heard
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.light.lies import Lie
from spvfilter.network import REGTEST
from spvfilter.primitives import Header
from spvfilter.protocol import MAX_MONEY
from spvfilter.transaction import Transaction
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import InvItem, InvType
from support.blocks import build
from support.blocks.build import TxIn, TxOut, tx

IMPOSSIBLE = pytest.mark.parametrize("values", [(-1,), (-(2**63),), (2**63 - 1,), (MAX_MONEY + 1,), (MAX_MONEY, 1)])
POSSIBLE = [(0,), (MAX_MONEY,), (MAX_MONEY - 1, 1)]


def paying(*values: int) -> bytes:
    return tx([TxIn(b"\x07" * 32, 0)], [TxOut(value, OURS) for value in values])


def block(txs: list[bytes]) -> bytes:
    return build.block(sha256d(REGTEST.genesis), txs, mined=True)


def bans(effects: list[Effect]) -> list[str]:
    """Return the causes of bans."""
    told = [effect.event for effect in effects if isinstance(effect, Emit) and isinstance(effect.event, PeerWarning)]
    return [each.error.cause for each in told if each.banned and isinstance(each.error, LieError)]


@IMPOSSIBLE
def test_a_whole_block_with_an_impossible_amount_is_refused(values: tuple[int, ...]) -> None:
    for txs in (
        [build.coinbase(1), paying(1), paying(*values)],
        [build.coinbase(1, [TxOut(value, OURS) for value in values])],
    ):
        found = flaw_in(block(txs), must_have_witness=False)
        assert isinstance(found, LieError)
        assert found.cause is Lie.IMPOSSIBLE_TX


@pytest.mark.parametrize("values", POSSIBLE)
def test_amounts_up_to_all_coins_are_accepted(values: tuple[int, ...]) -> None:
    assert flaw_in(block([build.coinbase(1), paying(*values)]), must_have_witness=False) is None


@pytest.mark.parametrize(
    ("values", "is_possible"), [((-1,), False), ((2**63 - 1,), False), ((MAX_MONEY, 1), False), ((MAX_MONEY,), True)]
)
def test_an_impossible_amount_in_a_filtered_block_is_not_recorded(values: tuple[int, ...], is_possible: bool) -> None:
    world = Announcing(Mode.BIP37)
    run = world.run
    txs = [build.coinbase(1), paying(*values)]
    header = Header.parse(block(txs)[:80])
    effects = run.do(Heard(1, wire.Headers((bytes(header),))))
    assert any(isinstance(message, wire.GetData) for message in run.sent(effects))
    effects += run.do(Heard(1, MerkleBlock.from_txids(header, [Transaction.parse(each).txid for each in txs], [1])))
    effects += run.do(Heard(1, wire.Tx(txs[1])))
    effects += run.pong(effects)
    assert bool(list(run.engine.books.matches())) == is_possible
    assert bans(effects) == ([] if is_possible else [Lie.IMPOSSIBLE_TX])


@pytest.mark.parametrize(
    ("sizes", "is_possible"), [((1_900_000, 1_900_000), True), ((1_900_000, 1_900_000, 300_000), False)]
)
def test_a_filtered_block_may_not_exceed_the_block_size(sizes: tuple[int, ...], is_possible: bool) -> None:
    """A txid does not commit to the witness. A peer could send thousands of transactions with a witness of maximal
    size.
    """
    world = Announcing(Mode.BIP37)
    run = world.run
    txs = [tx([TxIn(bytes((n,)) * 32, 0, witness=(bytes(size),))], [TxOut(n, OURS)]) for n, size in enumerate(sizes, 1)]
    whole = [build.coinbase(1), *txs]
    header = Header.parse(block(whole)[:80])
    effects = run.do(Heard(1, wire.Headers((bytes(header),))))
    places = list(range(1, len(whole)))
    effects += run.do(
        Heard(1, MerkleBlock.from_txids(header, [Transaction.parse(each).txid for each in whole], places))
    )
    for each in txs:
        effects += run.do(Heard(1, wire.Tx(each)))
    assert bans(effects) == ([] if is_possible else [Lie.IMPOSSIBLE_TX])
    effects += run.pong(effects)
    assert bool(list(run.engine.books.matches())) == is_possible


@IMPOSSIBLE
@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_an_unconfirmed_impossible_amount_bans_its_sender(mode: Mode, values: tuple[int, ...]) -> None:
    run = Announcing(mode).run
    raw = paying(*values)
    effects = run.do(Heard(1, wire.Inv((InvItem(InvType.TX, Transaction.parse(raw).txid),))))
    assert any(isinstance(message, wire.GetData) for message in run.sent(effects))
    assert bans(run.do(Heard(1, wire.Tx(raw)))) == [Lie.IMPOSSIBLE_TX]
    assert not list(run.engine.books.facts.unconfirmed())
