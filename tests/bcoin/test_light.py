"""The light client against bcoin: a first sync, mempool, broadcast, a reorganisation and a restart find what the whole
blocks hold.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.errors import TxCheckError, TxRefusedError
from spvfilter.kernel import parse_tx
from spvfilter.light.client import LightClient
from spvfilter.node.scripts import Lock, p2sh, p2wpkh, p2wsh
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.primitives import OutPoint
from spvfilter.signing import build_tx
from spvfilter.wallet.events import MatchUnconfirmed
from spvfilter.watch.watchlist import WatchList
from support.bcoin.process import Bcoin
from support.bcoin.wallets import Wallets
from support.client.lightworld import Place, Run, place

pytestmark = pytest.mark.bcoin

BLOCKS = 600
SEGWIT = 432  # bcoin's regtest has it from here on
OPEN = [p2wsh(b"\x54"), p2sh(Lock(b"\x52")), p2sh(p2wsh(b"\x53"))]  # anyone can spend them: OP_4, OP_2, OP_3
STRANGER = p2wpkh(b"\x02" + b"\x77" * 32)


async def whole_scan(bcoin: Bcoin, watch: WatchList) -> set[Place]:
    """The matches found by reading every block of the best chain."""
    found: set[Place] = set()
    height = (await bcoin.call("tip"))["height"]
    for number in range(1, height + 1):
        digest = await bcoin.call("getblockhash", [number])
        raw = bytes.fromhex(await bcoin.call("getblock", [digest, False]))
        found |= {place(match) for match in watch.match_block(raw, height=number)}
    return found


async def up_to_date(bcoin: Bcoin, run: Run) -> None:
    tip = bytes.fromhex((await bcoin.call("tip"))["hash"])[::-1]
    await run.until(lambda books: books.synced is not None and books.synced.hash == tip)


async def pay(bcoin: Bcoin, lock: Lock, value: int) -> OutPoint:
    sent = await bcoin.call("send", {"outputs": [[lock.script_pubkey.hex(), value]], "account": "default"})
    raw = bytes.fromhex(sent["raw"])
    scripts = [raw[start:end] for _, start, end in parse_tx(raw).outputs]
    return OutPoint(bytes.fromhex(sent["txid"])[::-1], scripts.index(lock.script_pubkey))


@pytest.mark.long
async def test_everything_a_wallet_does_is_found_and_nothing_else(
    bcoin: Bcoin, wallets: Wallets, tmp_path: Path
) -> None:
    for lock in OPEN:
        wallets.watch.add_script(lock.script_pubkey)
    legacy = bytes.fromhex((await bcoin.call("address"))["script"])
    wallets.watch.add_script(legacy)
    await wallets.prepare(SEGWIT)
    coins = []
    for number in range(8):
        await wallets.receive(1_000_000 + number, others=number % 3)
        coins.append((await pay(bcoin, OPEN[number % 3], 200_000 + number), OPEN[number % 3], 200_000 + number))
        await bcoin.call("send", {"outputs": [[legacy.hex(), 50_000 + number]], "account": "default"})
        await wallets.mine()
        if number % 2:
            await wallets.spend(700_000)
            outpoint, lock, value = coins.pop(0)
            await bcoin.call("submit", {"raw": build_tx([lock.spends(outpoint)], [STRANGER.pays(value - 5_000)]).hex()})
            await wallets.mine()
    height = (await bcoin.call("tip"))["height"]
    await wallets.mine(BLOCKS - height)
    watch, store = wallets.watch.copy(), tmp_path / "wallet.db"

    def client() -> LightClient:
        peer = f"127.0.0.1:{bcoin.port}"
        return LightClient(
            watch.copy(),
            peers=[peer],
            store=store,
            fp_rate=0.001,
            mode="bip37",
            limits=Limits(flight=100),
            clock=Clock(),
        )

    async with client() as first:
        run = Run(first)
        await up_to_date(bcoin, run)
        assert run.books.confirmed() == await whole_scan(bcoin, watch.copy())
        assert len(run.books.matches) > 30

        paid = await pay(bcoin, OPEN[0], 300_000)  # the mempool, then a block
        await run.until(lambda books: paid.txid in books.waiting())
        await wallets.mine()
        await up_to_date(bcoin, run)
        assert paid.txid not in run.books.waiting()

        spend = build_tx([OPEN[0].spends(paid)], [STRANGER.pays(290_000)])  # ours, through bcoin
        digest = (await first.broadcast(spend)).txid
        assert digest[::-1].hex() in await bcoin.call("getrawmempool", [])
        await run.until(lambda books: digest in books.waiting())
        await wallets.mine()
        await up_to_date(bcoin, run)
        assert run.books.confirmed() == await whole_scan(bcoin, watch.copy())

        await bcoin.call("branch", {"depth": 2, "count": 3, "address": wallets.mined_to})  # both blocks leave
        await up_to_date(bcoin, run)
        moved = {event.match.txid for event in run.books.events if isinstance(event, MatchUnconfirmed)}
        assert moved >= {paid.txid, digest}
        assert run.books.confirmed() == await whole_scan(bcoin, watch.copy())

    # nothing has happened since, and bcoin does not answer a request for headers that it does not have
    async with client() as again:
        await up_to_date(bcoin, Run(again))

    late = await pay(bcoin, OPEN[1], 400_000)  # while nobody looks
    await wallets.mine(3)
    async with client() as second:
        run = Run(second)
        await up_to_date(bcoin, run)
        known = {place(found.match) for found in await second.matches() if found.match.height is not None}
        assert known == await whole_scan(bcoin, watch.copy())
        assert late.txid in {txid for _, txid, *_ in known}


@pytest.mark.long
async def test_what_bcoin_refuses_is_refused_with_its_words(bcoin: Bcoin, wallets: Wallets) -> None:
    wallets.watch.add_script(OPEN[0].script_pubkey)
    await wallets.prepare(SEGWIT)
    coin = await pay(bcoin, OPEN[0], 300_000)
    await wallets.mine()
    limits = Limits(reply_s=6, stall_s=1)
    async with LightClient(
        wallets.watch.copy(), peers=[f"127.0.0.1:{bcoin.port}"], mode="bip37", limits=limits
    ) as client:
        run = Run(client)
        await up_to_date(bcoin, run)
        early = build_tx([OPEN[0].spends(coin)], [STRANGER.pays(290_000)], lock_time=400_000)
        with pytest.raises(TxCheckError, match="must wait for block 400,001"):
            await client.broadcast(early)
        free = build_tx([OPEN[0].spends(coin)], [STRANGER.pays(300_000)])
        lost = build_tx([OPEN[0].spends(OutPoint(bytes(32), 0))], [STRANGER.pays(290_000)])
        for raw, said in ((free, "insufficient priority (0x42)"), (lost, "does not have it")):
            with pytest.raises(TxRefusedError) as caught:
                await client.broadcast(raw, force=True)
            assert said in caught.value.refusals[0][1]
        assert (await client.balance()).spendable == 300_000
        assert (await client.broadcast(build_tx([OPEN[0].spends(coin)], [STRANGER.pays(290_000)]))).sent
