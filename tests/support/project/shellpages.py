"""The `sh` blocks of the pages, and the node, the block files and the small files that their commands find.

In place of mainnet and signet stands a chain of regtest, which a real Bitcoin Core serves. No assertions.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from spvfilter import MAINNET, Bip37Filter, TxOut, WatchList, address_to_script
from spvfilter.node import Regtest
from spvfilter.primitives import hash_to_hex
from support.blocks.chains import record
from support.blocks.silentpayments import Wallet
from support.commands.standin import StandIn
from support.oracles.bitcoind import Bitcoind, free_port
from support.project.pages import DOCS, PROGRAMS
from support.wallets.walletfiles import KEY, OTHER, core

ROOT = DOCS.parent
MARK = "<!-- not typed: "
"""Begins the comment above a block that needs the internet or a second machine. Its commands are only parsed."""
_BLOCK = re.compile(
    rf"(?:^{MARK}([^\n]*?) -->\n\n?)?^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_STORES = re.compile(r'store="([^"]+)"')
PATIENCE_S = 120.0  # for a command; a machine may run other tests
DAY = 86_400  # seconds between two blocks
START = 1_701_302_400  # 2023-11-30; block 1 is of 2023-12-01, and block 120 of 2024-03-29
BLOCKS = 120
OLD = "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"
DONATIONS = "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq"
FIRST = "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"  # of the descriptor
DESCRIPTOR = f"wpkh([d34db33f/84h/0h/0h]{KEY}/<0;1>/*)"
WATCHED = f"{DESCRIPTOR},savings\n{DONATIONS},donations\n"
GUAVA = bytes.fromhex("0107000000020a088000020248231088048221280000")  # made by Guava 31.1
CASSANDRA = bytes.fromhex("00000003 00000001") + b"\xff" * 8
MMAP = (  # made by pybloomfiltermmap3 0.6.3
    bytes.fromhex("4d42495441525241598000000000000000b00400000a000000000000009a9999999999a93f04000000")
    + bytes.fromhex("01000000ffffffff4d00000009000000").ljust(1036, b"\0")
    + b"\x01\x01".ljust(203, b"\0")
    + bytes.fromhex("00900000100080000002100110004090")
)
# Commands that run until Ctrl-C, each with a text that it prints once it works. The servers among them run until the
# end of their page, as in a second terminal.
ENDLESS = {
    r"spvfilter watch (?!.*--once)": '"event":"synced"',
    r"spvfilter node ": "port ",
    r"spvfilter electrum ": "Electrum server on",
    r"spvfilter scan http.*--follow": '"kind"',
    r"spvfilter (scan|export) .*--follow": "match|written",
    r"spvfilter match .*(--follow|tcp:|p2p:)": "waiting for transactions",
    r"^tail -f ": "GET",
    r"merchant.py serve": "synced",
}
SERVERS = r"spvfilter node |merchant.py serve"
_NETWORKS = '''\
"""Makes mainnet regtest in all but its name and its addresses, and moves the ports."""

from dataclasses import fields
from spvfilter.network import MAINNET, REGTEST

for field in fields(MAINNET):
    if field.name not in ("name", "hrp", "p2pkh_version", "p2sh_version"):
        object.__setattr__(MAINNET, field.name, getattr(REGTEST, field.name))
object.__setattr__(MAINNET, "default_port", {port})
object.__setattr__(REGTEST, "default_port", {own})
'''
_CALL = """\
#!{python}
import base64, json, pathlib, sys, urllib.request
cookie = base64.b64encode(pathlib.Path({cookie!r}).read_bytes()).decode()
params = [int(word) if word.isdigit() and len(word) < 9 else word for word in sys.argv[2:]]
body = json.dumps({{"method": sys.argv[1], "params": params}}).encode()
asked = urllib.request.Request({url!r}, body, {{"Authorization": f"Basic {{cookie}}"}})
answer = json.load(urllib.request.urlopen(asked))["result"]
print(answer if isinstance(answer, str) else json.dumps(answer))
"""


class Block(NamedTuple):
    """The commands of one `sh` block, why nobody can type them here, and the output that the page shows."""

    commands: list[str]
    reason: str
    shown: str


def shell_blocks(page: Path) -> Iterator[Block]:
    """The `sh` blocks of a page, in order."""
    for reason, code, shown in _BLOCK.findall(page.read_text(encoding="utf-8")):
        yield Block(code.replace("\\\n", " ").splitlines(), reason, shown)


class Typed(NamedTuple):
    """A command that has ended, or that Ctrl-C has ended."""

    line: str
    code: int
    output: str
    errors: str


class Stage:
    """A node with a chain, and the files of a reader. Used with `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zmq_port, self.own_port = free_port(), free_port()
        topics = [f"-zmqpub{topic}=tcp://127.0.0.1:{self.zmq_port}" for topic in ("rawtx", "rawblock", "sequence")]
        data = folder / "node"
        data.mkdir(parents=True)
        self.node = Bitcoind(data, "-rest=1", "-blocksxor=0", "-maxtipage=9999999999", *topics)
        self._runner = asyncio.Runner()
        self._now = START
        self._own = False  # True if the programs of the page made the database
        self._stand_in = StandIn(folder / "standin")
        self._is_real = False  # True if the page is typed with new processes of the real program
        self.regtest = Regtest(clock=lambda: self._now)

    def __enter__(self) -> Self:
        self._runner.run(self.node.start())
        self._mine()
        self._write_programs()
        return self

    def __exit__(self, *error: object) -> None:
        self._stand_in.close()
        self._runner.run(self.node.stop())
        self._runner.close()

    @property
    def blocks(self) -> Path:
        """The node's folder of blocks."""
        return self.folder / "node/regtest/blocks"

    def _mine(self) -> None:
        """Payments to the addresses of the pages, and a spend of one of them."""
        pay = {102: (FIRST, 50_000_000), 104: (DONATIONS, 7_500_000), 110: (OLD, 30_000)}
        for height in range(1, BLOCKS + 1):
            self._now += DAY
            if height in pay:
                address, value = pay[height]
                self.paid = hash_to_hex(self.regtest.pay(TxOut(value, address_to_script(address, MAINNET))))
            self.regtest.mine()
        self.regtest.pay(TxOut(20_000, address_to_script(FIRST, MAINNET)))
        for block in self.regtest.chain.active[1:]:
            if self.call("submitblock", block.raw.hex()) is not None:
                raise RuntimeError("the node refused a block")

    def call(self, method: str, *params: object) -> object:
        """Call the node's RPC."""
        return self._runner.run(self.node.call(method, *params))

    def _write_programs(self) -> None:
        bin_folder, modules = self.folder / "bin", self.folder / "modules"
        bin_folder.mkdir()
        modules.mkdir()
        ports = {"port": self.node.port, "own": self.own_port}
        (modules / "sitecustomize.py").write_text(_NETWORKS.format(**ports), encoding="utf-8")
        programs = {
            "spvfilter": f'#!/bin/sh\nexec {sys.executable} -m spvfilter "$@"\n',
            "python3": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
            "bitcoin-cli": _CALL.format(
                python=sys.executable, cookie=str(self.folder / "node/regtest/.cookie"), url=self.node.url
            ),
        }
        for name, text in programs.items():
            (bin_folder / name).write_text(text, encoding="utf-8")
            (bin_folder / name).chmod(0o755)

    def environment(self, home: Path) -> dict[str, str]:
        """The environment of a reader's shell. Only pages whose programs made the database know that it is regtest."""
        programs = [*([] if self._is_real else [self._stand_in.folder]), self.folder / "bin"]
        path = os.pathsep.join((*map(str, programs), os.environ["PATH"]))
        modules = str(ROOT) if self._own else os.pathsep.join((str(self.folder / "modules"), str(ROOT)))
        return {
            **os.environ,
            "PATH": path,
            "HOME": str(home),
            "PYTHONPATH": modules,
            "PYTHONUNBUFFERED": "1",
            "MERCHANT_SECRET": "e" * 64,
        }

    def files(self) -> dict[str, str | bytes]:
        """The files that a reader has, by name."""
        lines = "example.org\nexample.net\nexample.org\n"
        first = (self.blocks / "blk00000.dat").read_bytes()
        raw = [block.raw for block in self.regtest.chain.active]
        framed = [gzip.compress(b"".join(map(record, part))) for part in (raw[:105], raw[105:])]
        spent = self.regtest.chain.active[110]
        txids = [tx.txid for tx in self.regtest.chain.txs(spent)]
        (tx,) = self.regtest.mempool
        signed = tx.raw.hex()
        chosen = WatchList.from_addresses([OLD])
        return {
            "wallet.txt": WATCHED,
            "wallet.txt.gz": gzip.compress(WATCHED.encode()),
            "list.txt": f"{FIRST},savings\n{DONATIONS},donations\n{OLD}\n",
            "signet.txt": f"{DONATIONS}\n",
            "accounts.txt": f"account:alice\n{DESCRIPTOR}\naccount:bob\n{OLD}\n",
            "wallet.json": json.dumps(core()),
            "block.raw": spent.raw,
            "blk04321.dat": first,
            "rev04321.dat": (self.blocks / "rev00000.dat").read_bytes(),
            "blk00000.dat.zst": framed[0],
            "blk00001.dat.gz": framed[1],
            "txids.txt": "".join(f"{hash_to_hex(txid)}\n" for txid in txids),
            "transactions.txt": f"{signed}\n",
            "filterload.hex": bytes(Bip37Filter.for_watchlist(chosen, tweak=5, decoy_key=bytes(32))).hex(),
            "signed.hex": signed,
            "domains.txt": lines,
            "candidates.txt": lines,
            "urls.txt": lines,
            "lines.txt": lines,
            "access.log": "GET /\nGET /\n",
            "guava.bin": GUAVA,
            "nb-1-big-Filter.db": CASSANDRA,
            "seen.mmap": MMAP,
            "merchant.py": (ROOT / "examples/merchant.py").read_bytes(),
        }

    def folder_of(self, page: Path, home: Path) -> None:
        """Give a reader's folder the files that the commands of a page name."""
        (home / ".bitcoin/signet").mkdir(parents=True)
        for name in ("blocks", "signet/blocks"):
            (home / ".bitcoin" / name).symlink_to(self.blocks)
        (home / ".bitcoin/.cookie").symlink_to(self.folder / "node/regtest/.cookie")
        text = "\n".join(line for block in shell_blocks(page) if not block.reason for line in block.commands)
        for name, content in self.files().items():
            if re.search(rf"(?<![\w./]){re.escape(name)}(?![\w.])", text) or (
                name.startswith("rev") and name[3:] in text
            ):
                (home / name).write_bytes(content.encode() if isinstance(content, str) else content)
        if page.stem == "silent":
            (home / "wallet.txt").write_text(f"{Wallet().descriptor}\n{OLD}\n", encoding="utf-8")
        if "--db wallet.db" in text and not re.search(r"--watch \S+ .*--db wallet.db|--db wallet.db.* --watch", text):
            shutil.copy(self.database(), home / "wallet.db")

    def database(self) -> Path:
        """The database of a run of `watch` with a BIP-37 filter."""
        made = self.folder / "wallet/wallet.db"
        if not made.exists():
            made.parent.mkdir()
            (made.parent / "wallet.txt").write_text(WATCHED, encoding="utf-8")
            self.type(
                f"spvfilter watch --watch wallet.txt --db wallet.db --mode bip37 --once --connect {self.node.peer}",
                made.parent,
            )
        return made

    def type_page(self, page: Path, home: Path) -> Iterator[tuple[Block, list[Typed]]]:
        """Type the commands of a page in order, and yield each block with the results.

        Each command of the README starts an interpreter. Forked processes run the commands of other pages.
        """
        self._is_real = page.stem == "README"
        self.folder_of(page, home)
        named = {word for block in shell_blocks(page) for line in block.commands for word in line.split()}
        programs = [
            code for name, _, code, _ in PROGRAMS if ROOT / "docs" / name == page and named & {*_STORES.findall(code)}
        ]
        self._own = bool(programs)
        for code in programs:
            subprocess.run([sys.executable, "-c", code], cwd=home, check=True, stdout=subprocess.DEVNULL)
        servers: list[subprocess.Popen[str]] = []
        try:
            for block in shell_blocks(page):
                if not block.reason:
                    yield block, [self.type(line, home, servers) for line in block.commands]
        finally:
            for server in servers:
                interrupt(server)

    def type(self, line: str, home: Path, servers: list[subprocess.Popen[str]] | None = None) -> Typed:
        """Type a command into a shell. If it runs until Ctrl-C, press that once it works."""
        working = next((text for command, text in ENDLESS.items() if re.search(command, line)), None)
        meant = self.here(line)
        if working is not None:
            meant = re.sub(r" > (\S+)$", r" | tee \1", meant)
        child = subprocess.Popen(
            ["sh", "-c", meant],
            cwd=home,
            env=self.environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if working is None else subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        late = threading.Timer(PATIENCE_S, give_up, (child,))
        late.start()
        if working is None:
            output, errors = child.communicate()
            late.cancel()
            return Typed(line, child.returncode, output, errors)
        said = []
        for each in child.stdout or ():
            said.append(each)
            if re.search(working, each):
                break
        else:
            late.cancel()
            child.communicate()
            return Typed(line, child.returncode or 1, "", "".join(said))
        late.cancel()
        if servers is not None and re.search(SERVERS, line):
            servers.append(child)
            return Typed(line, 0, "".join(said), "")
        rest = interrupt(child)
        code = 0 if child.returncode in (0, 130, -signal.SIGINT) and "Traceback" not in rest else 1
        return Typed(line, code, "".join(said), rest)

    def here(self, line: str) -> str:
        """Return a command with the reader's keys in place of `xpub…`, and with the ports and heights of this chain."""
        block = self.regtest.chain.active[102]
        line = line.replace("xpub…", KEY, 1).replace("xpub…", OTHER)
        for written, meant in {
            "HASH": hash_to_hex(block.hash),
            ":8333": f":{self.node.port}",
            ":38333": f":{self.node.port}",
            ":8332": f":{self.node.rpc_port}",
            ":28332": f":{self.zmq_port}",
            "800000": "100",
            "800999": "110",
            "TXID": self.paid,
            " --network signet": "",
            "spvfilter electrum ": "spvfilter electrum --port 0 ",
            "--certificate ": "--tls-port 0 --certificate ",
        }.items():
            line = line.replace(written, meant)
        return line


def give_up(child: subprocess.Popen[str]) -> None:
    """Kill a command with all programs of a pipe. A stand-in first kills the process that it waits for."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
        time.sleep(1)
        os.killpg(child.pid, signal.SIGKILL)


def interrupt(child: subprocess.Popen[str]) -> str:
    """Press Ctrl-C, and return what the command still printed."""
    os.killpg(child.pid, signal.SIGINT)
    rest, _ = child.communicate(timeout=PATIENCE_S)
    return rest


def shows(shown: str, printed: str) -> bool:
    """True if a page shows what commands printed. In the page, `…` stands for any text, even for lines."""
    pattern = "".join(".*?" if each == "…" else re.escape(each) for each in shown.strip())
    return not shown or re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
