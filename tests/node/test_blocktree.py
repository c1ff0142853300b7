"""The embedded node's block tree: accepted and refused blocks, and its coins after a reorganization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from spvfilter.errors import (
    DifficultyError,
    FormatError,
    FutureHeaderError,
    HeaderError,
    MedianTimeError,
    ProofOfWorkError,
    RefusedError,
    TargetError,
    UnconnectedHeadersError,
    VersionError,
)
from spvfilter.hashes import sha256d
from spvfilter.network import REGTEST
from spvfilter.node import blocktree
from spvfilter.node.blocktree import HALVING_INTERVAL, STALE_AGE_LIMIT_S, BlockTree, TreeBlock, subsidy
from spvfilter.node.build import BITS, build_block, build_coinbase, mine
from spvfilter.primitives import Header, OutPoint, TxOut
from spvfilter.protocol import MAX_MONEY
from spvfilter.signing import build_tx
from spvfilter.transaction import TxIn
from support.blocks import build

NOW = 1_700_000_000
TRUE = b"\x51"


def empty_chain() -> BlockTree:
    return BlockTree(lambda: NOW)


def body(
    parent: TreeBlock,
    txs: Sequence[bytes] = (),
    *,
    value: int | None = None,
    extra: bytes = b"",
    height: int | None = None,
) -> list[bytes]:
    height = parent.height + 1 if height is None else height
    return [build_coinbase(height, [TxOut(subsidy(height) if value is None else value, TRUE)], txs, extra=extra), *txs]


def block_on(parent: TreeBlock, txs: Sequence[bytes] = (), *, time: int | None = None, **more: Any) -> bytes:
    return build_block(parent.hash, parent.median_time + 1 if time is None else time, body(parent, txs, **more))


def extend(chain: BlockTree, count: int, parent: TreeBlock | None = None, **more: Any) -> list[TreeBlock]:
    """Accept empty blocks, each on top of the previous one."""
    added = []
    for _ in range(count):
        raw = block_on(parent or chain.tip, **more)
        chain.accept(raw)
        parent = chain.blocks[sha256d(raw[:80])]
        added.append(parent)
    return added


def coin_of(block: TreeBlock) -> OutPoint:
    return OutPoint(block.txids[0], 0)


def spend(*coins: OutPoint, value: int = 1, count: int = 1, **more: Any) -> bytes:
    return build_tx([TxIn(coin) for coin in coins], [TxOut.parsed(value, TRUE)] * count, **more)


@pytest.fixture
def chain() -> BlockTree:
    """101 blocks: the next block can spend the first coinbase."""
    made = empty_chain()
    extend(made, 101)
    return made


def refusal(chain: BlockTree, raw: bytes) -> str:
    """The reason why a block is refused. Checks that the chain is unchanged."""
    before = (chain.tip, dict(chain.coins), len(chain.active))
    with pytest.raises(RefusedError) as caught:
        chain.accept(raw)
    assert (chain.tip, chain.coins, len(chain.active)) == before
    return caught.value.reason


def test_the_genesis_coinbase_is_no_coin() -> None:
    chain = empty_chain()
    assert (chain.tip.hash, chain.tip.height, chain.coins) == (REGTEST.genesis_hash, 0, {})
    assert sha256d(chain.tip.raw[:80]) == REGTEST.genesis_hash
    assert chain.tip.header.merkle_root == build.txid(chain.tip.raw[81:])


def test_the_subsidy_halves_every_150_blocks() -> None:
    heights = (0, HALVING_INTERVAL - 1, HALVING_INTERVAL, 299, 300, 33 * 150, 64 * 150, 100 * 150)
    assert [subsidy(height) for height in heights] == [
        50 * 10**8,
        50 * 10**8,
        25 * 10**8,
        25 * 10**8,
        1_250_000_000,
        0,
        0,
        0,
    ]


def test_blocks_of_an_independent_builder_are_accepted() -> None:
    chain = empty_chain()
    raw = build.block_of(REGTEST.genesis_hash, 1, time=NOW)
    change = chain.accept(raw)
    assert [block.raw for block in change.connected] == [raw]
    assert (chain.tip.height, len(chain.coins)) == (1, 1)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"previous": bytes(32)}, UnconnectedHeadersError),
        ({"bits": 0x1F7FFFFF}, ProofOfWorkError),
        ({"bits": 0}, TargetError),
        ({"bits": 0x21008000}, TargetError),
        ({"bits": 0x2000FFFF}, DifficultyError),
        ({"version": 3}, VersionError),
        ({"version": -1}, VersionError),
        ({"time": NOW + 7_201}, FutureHeaderError),
        ({"time": 1_296_688_602}, MedianTimeError),
    ],
)
def test_an_invalid_header_is_refused_by_its_cause(change: dict[str, Any], error: type[HeaderError]) -> None:
    chain = empty_chain()
    raw = block_on(chain.tip, time=NOW)
    header = replace(Header.parse(raw[:80]), **change)
    header = mine(header) if header.bits != 0x2000FFFF else hard(header)
    with pytest.raises(error):
        chain.accept(bytes(header) + raw[80:])
    chain.accept(raw)


def hard(header: Header) -> Header:
    """Mine for a 256th of regtest's target."""
    while header.hash[31]:
        header = replace(header, nonce=header.nonce + 1)
    return header


def test_the_time_has_a_lower_and_an_upper_bound() -> None:
    chain = empty_chain()
    first = chain.tip.header.time
    # the median of 1, 2, 3 and 4 blocks: the middle or the later middle
    for time in (first + 5, first + 9, NOW + 7_200, first + 10):
        chain.accept(block_on(chain.tip, time=time))
    assert chain.tip.median_time == first + 9
    with pytest.raises(MedianTimeError):
        chain.accept(block_on(chain.tip, time=first + 9))
    chain.accept(block_on(chain.tip, time=first + 10))
    assert chain.tip.height == 5


def test_a_block_without_proof_of_work_is_refused() -> None:
    chain = empty_chain()
    raw = block_on(chain.tip)
    header = Header.parse(raw[:80])
    while header.hash[31] < 0x80:
        header = replace(header, nonce=header.nonce + 1)
    with pytest.raises(ProofOfWorkError):
        chain.accept(bytes(header) + raw[80:])


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lambda raw: raw[:79], "header"),
        (lambda raw: raw[:-1], "lock time"),
        (lambda raw: raw + b"\0", "block"),
        (lambda raw: raw[:-4] + b"\1\0\0\0", "merkle root"),
    ],
)
def test_bytes_that_contradict_their_header_are_no_block(damage: Callable[[bytes], bytes], field: str) -> None:
    chain = empty_chain()
    raw = block_on(chain.tip)
    with pytest.raises(FormatError) as caught:
        chain.accept(damage(raw))
    assert caught.value.field == field
    chain.accept(raw)  # the genuine block is still accepted
    assert refusal(chain, raw) == "duplicate"


def first_coin(chain: BlockTree) -> OutPoint:
    return coin_of(chain.active[1])


BODIES: dict[str, Callable[[BlockTree], list[bytes]]] = {
    "bad-cb-missing": lambda chain: [spend(first_coin(chain))],
    "bad-cb-multiple": lambda chain: body(
        chain.tip, [build_coinbase(chain.tip.height + 1, [TxOut(0, TRUE)], extra=b"x")]
    ),
    "bad-cb-height": lambda chain: body(chain.tip, height=chain.tip.height),
    "bad-cb-length": lambda chain: [build.tx([build.TxIn(bytes(32), 0xFFFFFFFF, b"\x51")], [build.TxOut(1, TRUE)])],
    "bad-witness-nonce-size": lambda chain: [build.stripped(raw) for raw in body(chain.tip)],
    "bad-cb-amount": lambda chain: body(chain.tip, value=subsidy(chain.tip.height + 1) + 1),
    "bad-txns-vout-empty": lambda chain: body(chain.tip, [build_tx([TxIn(first_coin(chain))], [])]),
    "bad-txns-vout-negative": lambda chain: body(chain.tip, [spend(first_coin(chain), value=-1)]),
    "bad-txns-vout-toolarge": lambda chain: body(chain.tip, [spend(first_coin(chain), value=MAX_MONEY + 1)]),
    "bad-txns-txouttotal-toolarge": lambda chain: body(chain.tip, [spend(first_coin(chain), value=MAX_MONEY, count=2)]),
    "bad-txns-inputs-duplicate": lambda chain: body(chain.tip, [spend(first_coin(chain), first_coin(chain))]),
    "bad-txns-prevout-null": lambda chain: body(chain.tip, [spend(first_coin(chain), OutPoint(bytes(32), 0xFFFFFFFF))]),
    "bad-txns-inputs-missingorspent": lambda chain: body(chain.tip, [spend(OutPoint(bytes(32), 5))]),
    "bad-txns-premature-spend-of-coinbase": lambda chain: body(chain.tip, [spend(coin_of(chain.active[3]))]),
    "bad-txns-in-belowout": lambda chain: body(chain.tip, [spend(first_coin(chain), value=subsidy(1) + 1)]),
    "bad-txns-nonfinal": lambda chain: body(chain.tip, [spend(first_coin(chain), lock_time=chain.tip.height + 1)]),
    "bad-txns-oversize": lambda chain: body(
        chain.tip, [build_tx([TxIn(first_coin(chain), bytes(1_000_000))], [TxOut(1, TRUE)])]
    ),
    "bad-blk-weight": lambda chain: body(
        chain.tip, [build_tx([TxIn(first_coin(chain), bytes(999_800))], [TxOut(1, TRUE)])]
    ),
}


@pytest.mark.parametrize("reason", BODIES)
def test_an_invalid_body_is_refused_by_its_cause(chain: BlockTree, reason: str) -> None:
    raw = build_block(chain.tip.hash, chain.tip.median_time + 1, BODIES[reason](chain))
    assert refusal(chain, raw) == reason


def test_a_block_at_all_limits_is_accepted(chain: BlockTree) -> None:
    """It spends the oldest coinbase completely, with a lock time that has just passed. The fee goes to the miner."""
    worth = subsidy(1)
    fee = 1_000
    raw = spend(first_coin(chain), value=worth - fee, lock_time=chain.tip.height)
    chain.accept(block_on(chain.tip, [raw], value=subsidy(102) + fee))
    assert chain.coins[coin_bytes(build.txid(raw))].value == worth - fee
    exact = build_tx([TxIn(coin_of(chain.active[2]), bytes(999_600))], [TxOut(1, TRUE)])
    blocks = [build_block(chain.tip.hash, chain.tip.median_time + 1, [*body(chain.tip, [exact])])]
    chain.accept(blocks[0])
    assert chain.tip.raw == blocks[0]


def coin_bytes(txid: bytes, index: int = 0) -> bytes:
    return bytes(OutPoint(txid, index))


def test_a_block_may_spend_its_own_outputs_in_order(chain: BlockTree) -> None:
    parent = spend(first_coin(chain), value=9)
    child = spend(OutPoint(build.txid(parent), 0), value=8)
    again = spend(OutPoint(build.txid(parent), 0), value=7)
    assert refusal(chain, block_on(chain.tip, [child, parent])) == "bad-txns-inputs-missingorspent"
    assert (
        refusal(chain, block_on(chain.tip, [parent, child, again], time=chain.tip.median_time + 2))
        == "bad-txns-inputs-missingorspent"
    )
    chain.accept(block_on(chain.tip, [parent, child], time=chain.tip.median_time + 3))
    assert coin_bytes(build.txid(parent)) not in chain.coins
    assert chain.coins[coin_bytes(build.txid(child))].value == 8
    assert chain.tip.spent is not None
    assert [coin.value for coin in chain.tip.spent.values()] == [subsidy(1), 9]


def test_unspendable_outputs_are_no_coins(chain: BlockTree) -> None:
    outputs = [TxOut(1, b"\x6a\x01x"), TxOut(1, b""), TxOut(1, bytes(10_000)), TxOut(1, bytes(10_001))]
    raw = build_tx([TxIn(first_coin(chain))], outputs)
    chain.accept(block_on(chain.tip, [raw]))
    assert [coin_bytes(build.txid(raw), index) in chain.coins for index in range(4)] == [False, True, True, False]


def test_the_first_branch_stays_until_another_has_more_work() -> None:
    chain = empty_chain()
    ours = extend(chain, 3)
    theirs = extend(chain, 3, chain.active[0], extra=b"other")
    assert chain.tip is ours[-1]
    change = chain.accept(block_on(theirs[-1]))
    assert list(change.disconnected) == ours[::-1]
    assert list(change.connected)[:3] == theirs
    assert chain.active[1:4] == theirs
    assert chain.tip.height == 4
    assert not chain.is_active(ours[0])


def replayed(chain: BlockTree) -> dict[bytes, object]:
    """The coins of the best chain, computed by a second tree that has only these blocks."""
    fresh = empty_chain()
    for block in chain.active[1:]:
        fresh.accept(block.raw)
    return {outpoint: tuple(coin) for outpoint, coin in fresh.coins.items()}


def test_after_reorganizations_coins_are_those_of_the_best_chain(chain: BlockTree) -> None:
    parent = spend(first_coin(chain), value=1_000, count=3)
    child = spend(OutPoint(build.txid(parent), 0), OutPoint(build.txid(parent), 2), value=100)
    chain.accept(block_on(chain.tip, [parent, child]))
    chain.accept(block_on(chain.tip, [spend(OutPoint(build.txid(child), 0), value=1)]))
    for depth in (1, 2, 5, 101, 104):
        fork = chain.active[-1 - depth]
        extend(chain, depth + 1, fork, extra=depth.to_bytes(2, "little"))
        assert chain.tip.height == fork.height + depth + 1
        assert {outpoint: tuple(coin) for outpoint, coin in chain.coins.items()} == replayed(chain)


def test_an_invalid_branch_changes_nothing(chain: BlockTree) -> None:
    fork = chain.active[-3]
    side = extend(chain, 1, fork, extra=b"side")[0]
    bad = block_on(side, [spend(OutPoint(bytes(32), 9))])  # as much work as the best chain, so not checked yet
    assert chain.accept(bad).connected == ()
    on_bad = chain.blocks[sha256d(bad[:80])]
    assert refusal(chain, block_on(on_bad)) == "bad-txns-inputs-missingorspent"
    assert {outpoint: tuple(coin) for outpoint, coin in chain.coins.items()} == replayed(chain)
    assert refusal(chain, bad) == "duplicate-invalid"
    assert refusal(chain, block_on(on_bad, extra=b"again")) == "bad-prevblk"
    extend(chain, 3, side)
    assert chain.active[-4] is side


def test_a_locator_finds_the_fork() -> None:
    chain = empty_chain()
    ours = extend(chain, 3)
    stale = extend(chain, 1, ours[0], extra=b"stale")[0]
    assert chain.fork_height([ours[1].hash, ours[0].hash]) == 2
    assert chain.fork_height([bytes(32), stale.hash, ours[0].hash]) == 1
    assert chain.fork_height([bytes(32)]) == 0
    assert chain.fork_height([]) == 0


def test_stale_blocks_are_served_for_30_days() -> None:
    chain = empty_chain()
    first = chain.tip.header.time
    stale = extend(chain, 1, time=first + 1)[0]
    extend(chain, 1, chain.active[0], time=first + 2)
    chain.accept(block_on(chain.blocks[block_hash_of(chain, first + 2)], time=first + STALE_AGE_LIMIT_S))
    assert not chain.is_active(stale)
    assert chain.is_requestable(stale)
    chain.accept(block_on(chain.tip, time=first + STALE_AGE_LIMIT_S + 1))
    assert not chain.is_requestable(stale)
    assert chain.is_requestable(chain.active[1])


def test_stale_blocks_with_little_work_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocktree, "STALE_AGE_LIMIT_S", 5 * 600)
    chain = empty_chain()
    extend(chain, 1)
    stale = extend(chain, 1, chain.blocks[REGTEST.genesis_hash], extra=b"stale")[0]
    extend(chain, 4)
    assert chain.is_requestable(stale)
    extend(chain, 1)
    assert not chain.is_requestable(stale)


def block_hash_of(chain: BlockTree, time: int) -> bytes:
    return next(block.hash for block in chain.blocks.values() if block.header.time == time)


def test_bits_must_be_those_of_regtest() -> None:
    assert empty_chain().tip.header.bits == BITS == 0x207FFFFF
