"""`spvfilter node`: a regtest full node for experiments, controlled by options and by commands on standard input."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, suppress

from spvfilter.address import address_to_script, script_to_address
from spvfilter.cli.arguments import cannot_listen, seconds, standard_input, whole
from spvfilter.cli.interrupts import on_signal
from spvfilter.cli.term.matches import bitcoin
from spvfilter.cli.term.page import Page, complain
from spvfilter.errors import ParameterError, SpvFilterError
from spvfilter.network import REGTEST
from spvfilter.node.blocktree import TipChange
from spvfilter.node.regtest import Regtest
from spvfilter.node.server import Node
from spvfilter.primitives import TxOut, hash_to_hex
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.scan.pull import pull
from spvfilter.transaction import Transaction

_BLOCKS = COINBASE_MATURITY + 10  # blocks mined at the start, so that ten coinbases can be spent
_AMOUNT = 100_000  # satoshi, of each payment
_MOST = 100_000  # most blocks that one command may mine or replace (our choice)

_COMMANDS = {
    "mine [N]": "mine N blocks; default: one",
    "pay ADDRESS SATOSHI": "add a payment to the mempool",
    "reorg DEPTH": "replace the last DEPTH blocks with a longer branch",
    "status": "show the height and count transactions and connections",
    "quit": "stop the node",
}
_COMMAND_LINES = [f"  {command:<20}  {purpose}" for command, purpose in _COMMANDS.items()]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Run a regtest full node in memory that serves compact and BIP-37 filters. It\n"
        "mines with real proof of work and checks everything except scripts and\n"
        "signatures. Use it for experiments, never for money. Ctrl-C or SIGTERM ends it."
    )
    parser.epilog = "\n".join(["commands, one per line on standard input:", *_COMMAND_LINES])
    parser.add_argument("--host", metavar="HOST", default="127.0.0.1", help="address to listen on; default %(default)s")
    parser.add_argument(
        "--port",
        metavar="N",
        type=whole(0, 65_535),
        default=REGTEST.default_port,
        help="port to listen on; 0 chooses a free one; default %(default)s",
    )
    parser.add_argument(
        "--blocks",
        metavar="N",
        type=whole(0, _MOST),
        default=_BLOCKS,
        help="number of blocks to mine at the start; default %(default)s",
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds(0.01),
        help="mine a block every SECONDS; default: mine only on command",
    )
    parser.add_argument(
        "--pay",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="pay this address at the start, and in every block that --interval mines; repeatable",
    )
    parser.add_argument(
        "--amount",
        metavar="SATOSHI",
        type=whole(1, 10**15),
        default=_AMOUNT,
        help="amount of each payment; default %(default)s",
    )


def run(args: argparse.Namespace) -> int:
    payments = [TxOut(args.amount, address_to_script(address, REGTEST)) for address in args.pay]
    asyncio.run(_serve(args, payments, Page(sys.stdout)))
    return 0


async def _serve(args: argparse.Namespace, payments: Sequence[TxOut], page: Page) -> None:
    """Run the node until a signal arrives, `quit` is read or an error occurs."""
    stopped = asyncio.Event()
    forgets = [on_signal(number, stopped.set) for number in (signal.SIGINT, signal.SIGTERM)]
    regtest = Regtest()
    regtest.mine(args.blocks)
    if payments:
        regtest.pay(*payments)
        regtest.mine()
    node = Node(regtest, args.host, args.port)
    async with AsyncExitStack() as stack:
        for forget in forgets:
            stack.callback(forget)
        try:
            await stack.enter_async_context(node)
        except UnicodeError:
            raise ParameterError("--host is not a host name or an address") from None
        except OSError as error:
            raise cannot_listen(args.host, args.port, error) from error
        page.line(
            f"regtest node on {node.host} port {node.port}, height {regtest.height}; scripts and signatures are not"
            " checked"
        )
        for out in payments:
            page.line(
                f"paid {bitcoin(out.value)} BTC to {script_to_address(out.script_pubkey, REGTEST)} in block"
                f" {regtest.height}"
            )
        printer = _EventPrinter(page, stopped)
        regtest.listeners.append(printer)
        await _until_one_ends(
            stopped.wait(), _execute(node, page, _command_lines()), _mine_every(args.interval, regtest, payments)
        )
    if printer.error is not None:
        raise printer.error
    page.line("stopped")


async def _until_one_ends(*jobs: Coroutine[object, object, object]) -> None:
    """Run the jobs until one of them returns or raises an error, then cancel the others."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


class _EventPrinter:
    """Prints changes to the chain and the mempool.

    If printing fails, it stops the node instead of raising: an exception would make the node ban the peer that sent the
    block.
    """

    def __init__(self, page: Page, stopped: asyncio.Event) -> None:
        self.error: OSError | None = None
        self._page = page
        self._stopped = stopped

    def on_tip(self, change: TipChange) -> None:
        if change.disconnected:
            self._print(
                f"reorganization: blocks disconnected: {len(change.disconnected)}, connected: {len(change.connected)}"
            )
        for block in change.connected:
            self._print(f"block {block.height} {hash_to_hex(block.hash)}, {len(block.txids)} tx")

    def on_tx(self, tx: Transaction) -> None:
        self._print(f"mempool {hash_to_hex(tx.txid)}")

    def _print(self, text: str) -> None:
        try:
            self._page.line(text)
        except OSError as error:
            self.error = error
            self._stopped.set()


async def _mine_every(interval: float | None, regtest: Regtest, payments: Sequence[TxOut]) -> None:
    while True:
        await (asyncio.sleep(interval) if interval else asyncio.Event().wait())
        if payments:
            regtest.pay(*payments)
        regtest.mine()


def _command_lines() -> Iterable[bytes]:
    """Return the lines of standard input.

    There are none if this process is in the background of its terminal, because reading would stop it.
    """
    if sys.stdin is None:
        return ()
    if sys.platform != "win32":
        with suppress(OSError):
            if os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
                return ()
    return standard_input()


async def _execute(node: Node, page: Page, lines: Iterable[bytes]) -> None:
    """Execute commands until `quit`. At the end of the input, wait forever."""
    async for line in pull(lines):
        words = line.decode("utf-8", "replace").split()
        try:
            if words == ["quit"]:
                return
            if words:
                _do(node, page, words)
        except SpvFilterError as error:
            complain(str(error))
    await asyncio.Event().wait()


def _do(node: Node, page: Page, words: Sequence[str]) -> None:
    regtest = node.regtest
    match words:
        case ["mine"]:
            regtest.mine()
        case ["mine", count]:
            regtest.mine(_number(count, 1, _MOST))
        case ["pay", address, satoshi]:
            regtest.pay(TxOut(_number(satoshi, 1, 10**15), address_to_script(address, REGTEST)))
        case ["reorg", depth]:
            regtest.reorg(_number(depth, 1, _MOST))
        case ["status"]:
            page.line(
                f"height {regtest.height}, transactions in the mempool: {len(regtest.mempool)}, connections:"
                f" {len(node.responders)}"
            )
        case ["help"]:
            page.line("commands:")
            for line in _COMMAND_LINES:
                page.line(line)
        case _:
            raise ParameterError("unknown command or wrong arguments (try 'help')")


def _number(text: str, least: int, most: int) -> int:
    try:
        return whole(least, most)(text)
    except argparse.ArgumentTypeError as error:
        raise ParameterError(str(error)) from None
