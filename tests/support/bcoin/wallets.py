"""bcoin's wallet in a test: it mines, pays watched addresses, and spends from them. No assertions."""

from __future__ import annotations

from spvfilter.network import REGTEST
from spvfilter.watch.watchlist import WatchList
from support.bcoin.process import Bcoin


class Wallets:
    """bcoin's own wallet. It mines to one account; the client watches the other account."""

    def __init__(self, bcoin: Bcoin) -> None:
        self.bcoin = bcoin
        self.watch = WatchList(REGTEST)
        self.mined_to = ""

    async def prepare(self, blocks: int) -> None:
        self.mined_to = (await self.bcoin.call("address"))["address"]
        await self.mine(blocks)

    async def mine(self, count: int = 1) -> list[bytes]:
        hashes = await self.bcoin.call("mine", {"count": count, "address": self.mined_to})
        return [bytes.fromhex(txid)[::-1] for txid in hashes]

    async def receive(self, value: int, others: int = 0) -> str:
        """Pay a new watched address, and some that are not watched. Returns the txid."""
        script = (await self.bcoin.call("address", {"account": "segwit"}))["script"]
        self.watch.add_script(bytes.fromhex(script))
        outputs = [[f"0014{number + 1:040x}", 10_000 + number] for number in range(others)]
        return str(
            (await self.bcoin.call("send", {"outputs": [*outputs, [script, value]], "account": "default"}))["txid"]
        )

    async def spend(self, value: int) -> str:
        """Pay a foreign script from received coins, with change to a new address."""
        return str(
            (await self.bcoin.call("send", {"outputs": [["0014" + "77" * 20, value]], "account": "segwit"}))["txid"]
        )

    async def pay_strangers(self, outputs: int) -> None:
        await self.bcoin.call(
            "send", {"outputs": [[f"0014{n + 9:040x}", 9_000] for n in range(outputs)], "account": "default"}
        )
