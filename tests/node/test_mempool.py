"""The embedded node's mempool: refusals and their reasons, chains of unconfirmed transactions, conflicts, blocks,
reorganizations.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spvfilter.errors import FormatError, ParameterError, RefusedError
from spvfilter.node.build import build_coinbase
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import Lock
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signing import build_tx
from spvfilter.transaction import TxIn
from support.blocks.build import txid, wtxid

NOW = 1_700_000_000
ANY = Lock(b"\x51" + bytes(20))  # never checked; long enough for a transaction of 65 bytes


def regtest(blocks: int = 104, **more: int) -> Regtest:
    """Coinbases of heights 1 to blocks - 100 can be spent in the next block."""
    made = Regtest(clock=lambda: NOW, **more)  # type: ignore[arg-type]  # max_mempool
    made.mine(blocks)
    return made


def coinbase(made: Regtest, height: int) -> OutPoint:
    return OutPoint(made.chain.active[height].txids[0], 0)


def spend(*coins: OutPoint, value: int = 1_000, count: int = 1, lock_time: int = 0) -> bytes:
    return build_tx([ANY.spends(coin) for coin in coins], [ANY.pays(value)] * count, lock_time=lock_time)


def output(raw: bytes, index: int = 0) -> OutPoint:
    return OutPoint(txid(raw), index)


def pool(made: Regtest) -> list[bytes]:
    return [tx.raw for tx in made.mempool]


def refusal(made: Regtest, raw: bytes) -> str:
    """The reason why a transaction is refused. Checks that the mempool is unchanged."""
    before = (pool(made), made.mempool.size)
    with pytest.raises(RefusedError) as caught:
        made.submit_tx(raw)
    assert (pool(made), made.mempool.size) == before
    return caught.value.reason


REFUSED: dict[str, Callable[[Regtest], bytes]] = {
    "bad-txns-vout-empty": lambda made: build_tx([ANY.spends(coinbase(made, 1))], []),
    "bad-txns-inputs-duplicate": lambda made: spend(coinbase(made, 1), coinbase(made, 1)),
    "bad-txns-inputs-missingorspent": lambda made: spend(OutPoint(b"\x07" * 32, 0)),
    "bad-txns-premature-spend-of-coinbase": lambda made: spend(coinbase(made, 6)),
    "bad-txns-in-belowout": lambda made: spend(coinbase(made, 1), value=50 * 10**8 + 1),
    "bad-txns-prevout-null": lambda made: spend(OutPoint(bytes(32), 0xFFFFFFFF), coinbase(made, 1)),
    "coinbase": lambda made: build_coinbase(105, [TxOut(1, b"\x51")]),
    "non-final": lambda made: spend(coinbase(made, 1), lock_time=105),
    "tx-size-small": lambda made: build_tx([TxIn(coinbase(made, 1))], [TxOut(1, bytes(4))]),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_an_invalid_transaction_is_refused_by_its_cause(reason: str) -> None:
    made = regtest()
    assert refusal(made, REFUSED[reason](made)) == reason


def test_transactions_at_the_limits_are_accepted() -> None:
    made = regtest()
    oldest = coinbase(made, 5)  # its 100th block is the next
    taken = [
        spend(oldest, value=50 * 10**8, lock_time=104),
        spend(coinbase(made, 1), lock_time=NOW - 1, count=2),
        build_tx([TxIn(coinbase(made, 2))], [TxOut(1, bytes(5))]),
        build_tx([TxIn(coinbase(made, 3), sequence=0xFFFFFFFF)], [ANY.pays(1)], lock_time=105),
    ]
    assert len(taken[2]) == 65
    made.mine(time=NOW + 100)
    for raw in taken:
        made.submit_tx(raw)
    made.mine()
    assert pool(made) == []
    assert made.chain.tip.txids[1:] == tuple(map(txid, taken))


def test_malformed_bytes_are_no_transaction() -> None:
    made = regtest()
    raw = spend(coinbase(made, 1))
    for wrong in (b"", raw[:-1], raw + b"\0"):
        with pytest.raises(FormatError):
            made.submit_tx(wrong)


def test_without_replacement_a_conflict_is_refused_by_name() -> None:
    made = regtest(replace_by_fee=False)
    first = spend(coinbase(made, 1))
    made.submit_tx(first)
    assert refusal(made, spend(coinbase(made, 1), coinbase(made, 2))) == "txn-mempool-conflict"
    with pytest.raises(RefusedError, match=f"transaction {txid(first)[::-1].hex()} spends"):
        made.submit_tx(spend(coinbase(made, 1), value=999))
    assert refusal(made, first) == "txn-already-in-mempool"
    with_witness = build_tx([TxIn(coinbase(made, 1), witness=(b"x",))], [ANY.pays(1_000)])
    assert txid(with_witness) == txid(first)
    assert refusal(made, with_witness) == "txn-same-nonwitness-data-in-mempool"
    made.mine()
    assert refusal(made, first) == "bad-txns-inputs-missingorspent"


def test_unconfirmed_outputs_can_be_spent_and_blocks_keep_the_order() -> None:
    made = regtest()
    chain = [spend(coinbase(made, 1), value=10_000, count=2)]
    chain += [spend(output(chain[0], 1), value=9_000)]
    chain += [spend(output(chain[0], 0), output(chain[1]), value=8_000)]
    assert refusal(made, chain[1]) == "bad-txns-inputs-missingorspent"
    for raw in chain:
        made.submit_tx(raw)
    assert refusal(made, spend(output(chain[0], 2))) == "bad-txns-inputs-missingorspent"
    assert made.mempool.coin(bytes(output(chain[2]))) is not None
    assert made.mempool.coin(bytes(output(chain[1]))) is None
    assert made.mempool.fees[txid(chain[2])] == 11_000
    made.mine()
    assert made.chain.tip.txids[1:] == tuple(map(txid, chain))


def test_a_transaction_is_found_by_txid_and_wtxid() -> None:
    made = regtest()
    raw = build_tx([TxIn(coinbase(made, 1), witness=(b"x",))], [ANY.pays(1)])
    assert made.submit_tx(raw) == txid(raw)
    assert txid(raw) in made.mempool
    for found in (made.find_tx(txid(raw)), made.find_tx(wtxid(raw), by_wtxid=True)):
        assert found is not None
        assert (found.raw, found.wtxid, found.weight) == (raw, wtxid(raw), 3 * len(found.stripped) + len(raw))
    assert made.find_tx(wtxid(raw)) is None
    assert made.find_tx(txid(raw), by_wtxid=True) is None


def test_a_block_removes_its_transactions_and_their_conflicts() -> None:
    made = regtest()
    held = spend(coinbase(made, 1), value=5_000)
    child_of_held = spend(output(held), value=4_000)
    doomed = spend(coinbase(made, 2), coinbase(made, 3), value=5_000, count=2)
    children = [spend(output(doomed, 0), value=4_000), spend(output(doomed, 1), value=4_000)]
    grandchild = spend(output(children[0]), output(children[1]), value=3_000)
    for raw in (held, child_of_held, doomed, *children, grandchild):
        made.submit_tx(raw)
    made.mine(transactions=[held, spend(coinbase(made, 2), value=7)])
    assert pool(made) == [child_of_held]
    assert made.mempool.size == len(child_of_held)
    made.submit_tx(spend(coinbase(made, 3), value=6))  # not spent any more
    made.mine()
    assert (len(made.mempool), made.mempool.size, made.mempool.fees) == (0, 0, {})


def test_a_conflict_with_the_first_transaction_removes_its_descendants() -> None:
    made = regtest()
    raw = spend(coinbase(made, 1), value=10**8)
    made.submit_tx(raw)
    for value in range(10**8 - 1, 10**8 - 3_000, -1):
        raw = spend(output(raw), value=value)
        made.submit_tx(raw)
    assert len(made.mempool) == 3_000
    made.mine(transactions=[spend(coinbase(made, 1), value=7)])
    assert len(made.mempool) == 0


def test_valid_transactions_of_disconnected_blocks_return() -> None:
    made = regtest()
    stays = spend(coinbase(made, 1), value=10_000)
    doubled = spend(coinbase(made, 2), value=10_000)
    young = spend(coinbase(made, 6), value=10_000)  # spendable from height 106 on
    made.submit_tx(stays)
    made.submit_tx(doubled)
    made.mine()
    made.submit_tx(young)
    made.mine()
    unconfirmed = spend(output(stays), value=9_000)
    gone = spend(output(doubled), value=9_000)
    fresh = spend(coinbase(made, 105 - 101), value=9_000)
    for raw in (unconfirmed, gone, fresh):
        made.submit_tx(raw)
    other = spend(coinbase(made, 2), value=1)
    made.reorg(2, transactions=[[other]])
    assert made.height == 107
    assert pool(made) == [stays, young, unconfirmed, fresh]
    made.mine()
    assert pool(made) == []
    made.reorg(4, blocks=5)
    assert pool(made) == [other, stays, young, unconfirmed, fresh]


def test_a_reorganization_removes_spends_of_immature_coinbases() -> None:
    made = regtest(101)
    spent = made.pay(TxOut(1, ANY.script_pubkey))
    assert spent in made.mempool
    made.reorg(101, blocks=102)
    assert len(made.mempool) == 0  # its coinbase is in no block any more
    again = made.pay(TxOut(1, ANY.script_pubkey))
    made.mine(1)
    assert made.find_tx(again) is not None
    made.submit_tx(spend(OutPoint(again, 0), value=1, count=1))
    assert len(made.mempool) == 1


def test_the_mempool_never_exceeds_its_size() -> None:
    made = regtest(max_mempool=111 + 80)
    first = spend(coinbase(made, 1), count=2)
    made.submit_tx(first)
    assert made.mempool.size == len(first) == 111
    assert refusal(made, spend(coinbase(made, 2))) == "mempool full"
    made.mine()
    made.submit_tx(spend(coinbase(made, 2)))
    with pytest.raises(ParameterError, match="must be at least 0, not -1"):
        Regtest(max_mempool=-1)
