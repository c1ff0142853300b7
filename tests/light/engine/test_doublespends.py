"""Double spends of pending payments that pay only other people, in mode bip37: they end the payment, without a leak."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.light.engine import bloomfilters
from spvfilter.light.engine.bloomlink import BloomLink
from spvfilter.light.events import Mode
from spvfilter.primitives import TxOut
from spvfilter.store.ledger import TxStatus
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvType, Message
from support.client.engineparts import bloom_links
from support.client.regtests import accept_replacements
from support.client.stage import Prompt, Stage, stage

_BLOCKS = (InvType.BLOCK, InvType.WITNESS_BLOCK)


def pay(world: Stage) -> bytes:
    """Pay the wallet, and let the client see it."""
    txid = world.truth.regtest.pay(world.truth.locks[0].pays(50_000))
    world.pass_time(20)
    assert status(world, txid) is TxStatus.PENDING
    return txid


def status(world: Stage, txid: bytes) -> TxStatus | None:
    return world.engine.books.judgement.status(txid)


def sent(world: Stage) -> list[Message]:
    """Collect what the client sends from now on."""
    messages, before = list[Message](), world.sent

    def collect(peer: int, message: Message, is_private: bool) -> None:
        messages.append(message)
        before(peer, message, is_private)

    world.sent = collect  # type: ignore[method-assign]
    return messages


def whole_blocks(messages: list[Message]) -> int:
    return sum(item.kind in _BLOCKS for each in messages if isinstance(each, wire.GetData) for item in each.items)


@pytest.mark.few(1)
@pytest.mark.parametrize("in_block", [False, True])
def test_a_running_client_sees_what_replaces_a_payment(tmp_path: Path, in_block: bool) -> None:
    with stage(tmp_path, Mode.BIP37, Prompt, Prompt, mempool_groups=1) as world:
        messages = sent(world)
        world.boot()
        world.wait_synced(within=60)
        txid = pay(world)
        accept_replacements(world.truth.regtest)
        world.truth.regtest.double_spend(txid, in_block=in_block)
        world.pass_time(20)
        assert status(world, txid) is (TxStatus.CONFLICTED if in_block else TxStatus.REPLACED)
        world.truth.mine(2)
        world.wait_synced(within=60)
        assert status(world, txid) is TxStatus.CONFLICTED
        assert whole_blocks(messages) == 0


def test_a_payment_confirmed_between_two_runs_needs_no_block(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, Prompt, Prompt, mempool_groups=1) as world:
        messages = sent(world)
        world.boot()
        world.wait_synced(within=60)
        txid = pay(world)
        world.kill()
        world.truth.mine(3)
        world.wait_synced(within=120)
        assert status(world, txid) is TxStatus.CONFIRMED
        assert whole_blocks(messages) == 0


def test_a_rescan_finds_a_double_spend_between_two_runs(tmp_path: Path) -> None:
    """Without one no block is fetched whole, which would show that the payment is the wallet's."""
    with stage(tmp_path, Mode.BIP37, Prompt, Prompt, mempool_groups=1) as world:
        messages = sent(world)
        world.boot()
        world.wait_synced(within=60)
        txid = pay(world)
        world.kill()
        seen_at = world.truth.height
        for _ in range(2):
            world.truth.regtest.mine(transactions=())
        world.truth.regtest.double_spend(txid, in_block=True)
        world.wait_synced(within=120)
        assert status(world, txid) is TxStatus.PENDING
        assert whole_blocks(messages) == 0
        world.rescan(seen_at)
        world.pass_time(60)
        assert status(world, txid) is TxStatus.CONFLICTED


def test_a_rescan_fetches_no_block_if_filters_have_the_inputs(tmp_path: Path) -> None:
    """Then the peer's own answer contains any double-spend, and a whole block would reveal the payment for nothing."""
    with stage(tmp_path, Mode.BIP37, Prompt, Prompt, mempool_groups=1) as world:
        messages = sent(world)
        world.boot()
        world.wait_synced(within=60)
        txid, seen_at = pay(world), world.truth.height
        for _ in range(3):
            world.truth.regtest.mine(transactions=())
        world.wait_synced(within=60)
        world.rescan(seen_at)
        world.pass_time(60)
        assert status(world, txid) is TxStatus.PENDING
        assert whole_blocks(messages) == 0


def test_filters_get_the_inputs_of_every_announced_match(tmp_path: Path) -> None:
    """Otherwise the additional elements would show which of the matching transactions pay the wallet."""
    with stage(tmp_path, Mode.BIP37, Prompt, mempool_groups=1, fp_rate=0.01) as world:
        messages, regtest = sent(world), world.truth.regtest
        world.boot()
        world.wait_synced(within=60)
        loaded = next(Bip37Filter.parse(bytes(each)) for each in messages if isinstance(each, wire.FilterLoad))
        scripts = (b"\x00\x14" + number.to_bytes(20, "big") for number in range(1_000_000))
        decoy = next(script for script in scripts if script[2:] in loaded)
        txids = [pay(world), regtest.pay(TxOut(50_000, decoy))]
        world.pass_time(20)
        added = [each.data for each in messages if isinstance(each, wire.FilterAdd)]
        waiting = [tx for txid in txids if (tx := regtest.mempool.get(txid)) is not None]
        assert added == [outpoint for tx in waiting for outpoint in tx.inputs]
        assert len(waiting) == 2


def test_few_inputs_are_kept_for_the_next_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bloomfilters.BloomFilters, "most_hunted", 1)
    with stage(tmp_path, Mode.BIP37, Prompt, mempool_groups=1) as world:
        world.boot()
        world.wait_synced(within=60)
        first, second = pay(world), pay(world)
        assert [*only(world).hunted] == [second]
        world.truth.regtest.double_spend(first, in_block=True)
        world.wait_synced(within=60)
        assert (status(world, first), status(world, second)) == (TxStatus.CONFLICTED, TxStatus.PENDING)


def only(world: Stage) -> BloomLink:
    """The link to the only peer."""
    (link,) = bloom_links(world.engine).values()
    return link
