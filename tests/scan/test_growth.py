"""Keychains in a scan: the order in which scripts are used does not change the result.

The result is always that of a scan with all scripts up to the final window.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spvfilter.network import REGTEST
from spvfilter.scan.matcher import Matcher
from spvfilter.watch.keychain import GAP_LIMIT
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, block_hash, block_of, tx, txid
from support.blocks.chains import exact, found_by
from support.matching import JOBS, KINDS, source
from support.vectors import effort
from support.wallets.keychains import script_at

pytestmark = pytest.mark.usefixtures("small_batches_and_many_threads", "nothing_is_left")

CHANGE = 10_000_000  # indexes from here on belong to another keychain


def change_at(index: int) -> bytes:
    return script_at(CHANGE + index)


def wallet(lookahead: int) -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_keychain("receiving", script_at, "mine", lookahead=lookahead)
    watch.add_keychain("change", change_at, lookahead=lookahead)
    return watch


def life(rng: random.Random, indexes: list[int]) -> list[bytes]:
    """A chain that pays the scripts with these indexes in this order, and spends some of the outputs."""
    blocks: list[bytes] = []
    unspent: list[tuple[bytes, int]] = []
    previous = REGTEST.genesis_hash
    while indexes:
        txs = []
        for _ in range(rng.randrange(3)):
            inputs = [TxIn(rng.randbytes(32), 0)]
            while unspent and rng.random() < 0.4:
                spent, number = unspent.pop(rng.randrange(len(unspent)))
                inputs.append(TxIn(spent, number))
            paid = [indexes.pop(0) for _ in range(min(len(indexes), rng.randrange(1, 4)))]
            outputs = [
                TxOut(1_000 + index % 7, (change_at if rng.random() < 0.3 else script_at)(index)) for index in paid
            ]
            txs.append(tx(inputs, outputs))
            unspent += ((txid(txs[-1]), number) for number in range(len(outputs)))
        blocks.append(block_of(previous, len(blocks) + 1, txs))
        previous = block_hash(blocks[-1])
    return blocks


def order(rng: random.Random, highest: int) -> list[int]:
    """Indexes that a wallet with this lookahead can reach, in an order that is hard for it."""
    reached, used = 0, []
    while reached < highest:
        reached += rng.randrange(1, 2 * GAP_LIMIT)
        used.append(reached)
    used += rng.sample(range(highest), min(highest, 15))
    match rng.randrange(3):
        case 0:
            used.sort(reverse=True)
        case 1:
            rng.shuffle(used)
        case _:
            used.sort()
    return used


def in_full(watch: WatchList) -> WatchList:
    """A watch list of all scripts in the windows of another list, without keychains."""
    full = WatchList(REGTEST)
    for keychain, script in zip(watch.keychains, (script_at, change_at), strict=True):
        for index in range(keychain.end):
            full.add_script(script(index), keychain.label)
    return full


@KINDS
@pytest.mark.parametrize("seed", range(effort(2, 6, 300)))
async def test_any_order_of_use_gives_the_scan_with_all_scripts(kind: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    blocks = life(rng, order(rng, rng.choice((30, 200, 900))))
    if kind not in ("in order", "files"):
        rng.shuffle(blocks)
    what, options = source(kind, blocks, tmp_path)
    watch = wallet(GAP_LIMIT)
    matcher = Matcher(watch, jobs=rng.choice((1, 3)))
    found = await found_by(matcher, what, **options)
    assert len({exact(match) for match in found}) == len(found)
    if kind == "in order" and matcher.report.late_scripts:
        return  # the report says so
    full = await found_by(Matcher(in_full(watch)), blocks)
    assert sorted(map(exact, found)) == sorted(map(exact, full))
    assert {exact(match): match.label for match in found} == {exact(match): match.label for match in full}
    chains = {keychain.name: keychain for keychain in watch.keychains}
    for match in found:
        assert match.keychain is not None
        assert match.keychain_index is not None
        assert (match.script_pubkey,) == chains[match.keychain].scripts(match.keychain_index)
    for keychain in watch.keychains:
        assert set(keychain.used) == {match.keychain_index for match in found if match.keychain == keychain.name}
        assert keychain.end >= keychain.last_used + 1 + GAP_LIMIT


@JOBS
async def test_one_block_finds_a_wallet_that_was_used_backwards(jobs: int) -> None:
    """Each use moves the window up to the script that was paid before it."""
    steps = list(range(2 * GAP_LIMIT - 1, 400, GAP_LIMIT))
    blocks, previous = [], REGTEST.genesis_hash
    for number, index in enumerate(reversed(steps), 1):
        blocks.append(
            block_of(previous, number, [tx([TxIn(bytes([number]) * 32, 0)], [TxOut(index, script_at(index))])])
        )
        previous = block_hash(blocks[-1])
    watch = wallet(GAP_LIMIT)
    found = await found_by(Matcher(watch, jobs=jobs), blocks)
    assert sorted(match.value or 0 for match in found) == steps


async def test_an_endless_stream_reports_scripts_that_came_too_late() -> None:
    blocks, previous = [], REGTEST.genesis_hash
    for number, index in enumerate((59, 2 * GAP_LIMIT - 1, 59), 1):
        blocks.append(
            block_of(previous, number, [tx([TxIn(bytes([number]) * 32, 0)], [TxOut(index, script_at(index))])])
        )
        previous = block_hash(blocks[-1])
    watch = wallet(GAP_LIMIT)
    matcher = Matcher(watch)
    found = await found_by(matcher, iter(blocks), in_order=True)
    assert [match.keychain_index for match in found] in (
        [39, 59],
        [39],
    )  # the third block may have been scanned in advance
    assert matcher.report.late_scripts > 0
    assert [match.keychain_index for match in await found_by(Matcher(wallet(GAP_LIMIT)), iter(blocks))].count(59) == 2


async def test_a_list_without_keychains_searches_blocks_once() -> None:
    rng = random.Random(1)
    blocks = life(rng, list(range(20)))
    watch = WatchList(REGTEST)
    for index in range(20):
        watch.add_script(script_at(index))
    matcher = Matcher(watch)
    await found_by(matcher, blocks)
    assert matcher.report.late_scripts == 0


async def test_a_transaction_that_moves_a_window_is_matched_completely() -> None:
    watch = wallet(GAP_LIMIT)
    paying = tx([TxIn(bytes(32), 0)], [TxOut(index, script_at(index)) for index in (10, 70, 50, 30)])
    found = await Matcher(watch).match_tx(paying)
    assert [match.keychain_index for match in found] == [10, 70, 50, 30]
    assert [match.keychain_index for match in wallet(GAP_LIMIT).match_tx(paying)] == [10, 70, 50, 30]


async def test_a_spend_before_its_watched_output_is_found() -> None:
    """The output is found when blocks are searched again. This search has already passed the block of its spend."""
    paid = tx([TxIn(b"\x01" * 32, 0)], [TxOut(5_000, script_at(59))])
    first = block_of(REGTEST.genesis_hash, 1, [paid])
    second = block_of(block_hash(first), 2, [tx([TxIn(b"\x02" * 32, 0)], [TxOut(1, script_at(2 * GAP_LIMIT - 1))])])
    third = block_of(block_hash(second), 3, [tx([TxIn(txid(paid), 0)], [TxOut(4_000, b"\x51")])])
    found = await found_by(Matcher(wallet(GAP_LIMIT)), iter([third, first, second]))
    assert sorted((match.kind, match.keychain_index) for match in found) == [
        ("input", 59),
        ("output", 39),
        ("output", 59),
    ]
