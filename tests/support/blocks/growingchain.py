"""The blk*.dat and rev*.dat of a node whose chain grows and reorganizes, on a small random chain. No assertions."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from pathlib import Path

from spvfilter.network import REGTEST
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import block_hash, p2wpkh
from support.blocks.chains import record
from support.blocks.undo import Ledger, framed, records_of

START = 100  # height of the first block
_LOOKAHEAD = 20  # of the keychain: the smallest one


def _keychain_script(index: int) -> bytes:
    return p2wpkh(b"keychain" + index.to_bytes(12, "little"))


class _Wallet(Ledger):
    """A ledger that also pays a keychain, whose indexes become used in random order."""

    has_keychain = False
    used = 0  # the highest index that was paid

    def script(self) -> bytes:
        if self.has_keychain and self.rng.random() < 0.15:
            self.used += self.rng.choice((0, 0, 1, 10, _LOOKAHEAD))
            return _keychain_script(self.used)
        return super().script()


@dataclass(frozen=True)
class Mined:
    """A block, and the state of the chain after it."""

    raw: bytes
    """The serialized block."""
    undo: bytes
    """Its undo record."""
    ledger: Ledger
    """The coins after the block."""


class GrowingChain:
    """A chain in files, as a node writes them: blocks in the order of their arrival, undo records later.

    Args:
        folder: The directory for the files.
        seed: The seed of the chain.
        has_undo: True to write undo records.
        has_keychain: True if the wallet has a keychain, whose window moves.
        states_heights: False if only the genesis block, which the first block follows, tells the heights of the blocks.
    """

    def __init__(
        self,
        folder: Path,
        seed: object,
        *,
        has_undo: bool = True,
        has_keychain: bool = False,
        states_heights: bool = True,
    ) -> None:
        self.rng = random.Random(f"{seed}")
        self.folder = folder
        self.folder.mkdir()
        self.has_undo = has_undo
        self.chain: list[Mined] = []
        self.files = 1
        self._version = 4 if states_heights else 1  # BIP-34
        self._root = self.rng.randbytes(32) if states_heights else REGTEST.genesis_hash
        self._start = _Wallet(self.rng)
        self._start.has_keychain = has_keychain
        self._late: list[tuple[int, bytes]] = []  # number of a file, and an undo record to write into it
        self._scripts = list(self._start.interest.scripts)

    def watch(self) -> WatchList:
        """The wallet's watch list, which is the same however far the chain has grown."""
        watch = WatchList(REGTEST)
        for number, script in enumerate(self._scripts):
            watch.add_script(script, f"script {number}")
        if self._start.has_keychain:
            watch.add_keychain("one", _keychain_script, "mine", lookahead=_LOOKAHEAD)
        return watch

    def mine(self, count: int = 1, *, late: int = 0) -> None:
        """Mine blocks. The undo records of the last `late` blocks are not written yet."""
        first = len(self.chain)
        for height in range(START + first, START + first + count):
            ledger = copy.copy(self.chain[-1].ledger if self.chain else self._start)
            ledger.unspent = list(ledger.unspent)
            previous = block_hash(self.chain[-1].raw) if self.chain else self._root
            raw = self._version.to_bytes(4, "little") + ledger.block(previous, height)[4:]
            self.chain.append(Mined(raw, b"", ledger))
        records = records_of([block.raw for block in self.chain], self._start.before, START)
        for number in range(first, first + count):
            mined = self.chain[number] = Mined(self.chain[number].raw, records[number], self.chain[number].ledger)
            self._append("blk", self.files - 1, record(mined.raw))
            if number < first + count - late:
                self.write_late_undo()
                self._write_undo(self.files - 1, mined.undo)
            else:
                self._late.append((self.files - 1, mined.undo))

    def begin_file(self) -> None:
        """Write later blocks into a new file."""
        if (self.folder / f"blk{self.files - 1:05}.dat").exists():
            self.files += 1

    def withhold(self, count: int) -> None:
        """Mine blocks into a file that is hidden, as if these blocks arrived after later ones."""
        self.begin_file()
        self.mine(count)
        self.hide(self.files - 1)
        self.files += 1

    def hide(self, number: int) -> None:
        """Move the files with this number away."""
        away = self.folder.with_name("away")
        away.mkdir(exist_ok=True)
        for path in self.folder.glob(f"???{number:05}.dat"):
            path.rename(away / path.name)

    def reveal(self) -> None:
        """Move the hidden files back."""
        for path in self.folder.with_name("away").glob("*.dat"):
            path.rename(self.folder / path.name)

    def write_late_undo(self) -> None:
        """Write the undo records that were not written yet."""
        for number, undo in self._late:
            self._write_undo(number, undo)
        self._late.clear()

    def reorganize(self, depth: int, more: int = 1) -> None:
        """Disconnect `depth` blocks, and mine `more` blocks more than that on the new branch."""
        del self.chain[len(self.chain) - depth :]
        self.mine(depth + more)

    def _write_undo(self, number: int, undo: bytes) -> None:
        if self.has_undo:
            self._append("rev", number, framed(undo))

    def _append(self, name: str, number: int, raw: bytes) -> None:
        with (self.folder / f"{name}{number:05}.dat").open("ab") as file:
            file.write(raw)
