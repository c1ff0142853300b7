"""Books with their database, driven by facts: observations, broadcasts, blocks, reorganizations and restarts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredTx
from spvfilter.store.place import MEMORY
from spvfilter.store.store import Store
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import WalletEvent
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.saved import SavedBooks
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, coinbase, header, p2wpkh, sha256d, tx, txid
from support.client.lightworld import Books as Told
from support.oracles.ledger import check_ledger
from support.wallets.stores import opened

OURS, THEIRS = p2wpkh(b"\x01" * 20), p2wpkh(b"\xee" * 20)


def saved(store: Store, transactions: Mapping[bytes, StoredTx] | None = None) -> SavedBooks:
    """The state with which the books begin; by default with all transactions."""
    return SavedBooks(
        matches=list(store.matches()),
        transactions=store.transactions(-1) if transactions is None else transactions,
        cursor=store.cursor,
        searched=store.searched,
        blocks=store.searched_blocks,
        ids=store.ids,
    )


class Wallet:
    """Books with their database, which hear of transactions and blocks."""

    def __init__(self, limits: PendingLimits | None = None, *, scripts: Iterable[bytes] = (OURS,)) -> None:
        self.scripts: dict[bytes, str | None] = {script: f"label {n}" for n, script in enumerate(scripts)}
        self.limits = limits
        self.store = opened(MEMORY)
        self.store.commit(Batch(headers=REGTEST.genesis, cursor=0))
        self.told = Told()
        self.chain = [REGTEST.genesis]
        self.blocks: list[list[bytes]] = [[]]
        self.now = 1_700_000_000
        self.restart()
        self.books.searches.skip_to(0)
        self.tell(())

    def watch_list(self) -> WatchList:
        watch = WatchList(REGTEST)
        for script, label in self.scripts.items():
            watch.add_script(script, label)
        return watch

    def restart(self) -> None:
        watch = self.watch_list()
        self.store.attach(watch)
        self.books = Books(watch, saved(self.store), self.limits)

    def tell(self, events: Iterable[WalletEvent]) -> list[WalletEvent]:
        """Commit the changes, replay the events, and check the database."""
        known = list(events)
        self.store.commit(*self.books.take_batches())
        for event in known:
            self.told.take(event)
        check_ledger(self.store)
        return known

    def observe(self, raw: bytes, *groups: str, quorum: int = 1) -> list[WalletEvent]:
        self.now += 1
        return self.tell(self.books.observe(raw, self.now, groups=groups, quorum=quorum))

    def broadcast(self, raw: bytes) -> list[WalletEvent]:
        self.now += 1
        return self.tell(self.books.broadcast(raw, self.now))

    def mine(self, *raws: bytes, reward: bytes | None = None) -> list[WalletEvent]:
        height = len(self.chain)
        first = reward or coinbase(height, [TxOut(5, THEIRS)], b"c")
        raws = (first, *raws)
        self.chain.append(header(sha256d(self.chain[-1]), sha256d(b"".join(raws) + height.to_bytes(4, "big"))))
        self.blocks.append(list(raws))
        self.books.extend(self.chain[-1])
        return self.search(height)

    def search(self, height: int) -> list[WalletEvent]:
        """Search the block at a height, which must follow the cursor."""
        txs = [FoundTx(at, raw) for at, raw in enumerate(self.blocks[height])]
        block = ScannedBlock(height, sha256d(self.chain[height]), txs)
        return self.tell(self.books.connect(block, block.hits(self.books.watch.table)))

    def reorganize(self, depth: int = 1) -> list[WalletEvent]:
        """Disconnect the last blocks. `mine` connects their replacements."""
        fork = len(self.chain) - 1 - depth
        lost = [sha256d(each) for each in self.chain[fork + 1 :]]
        del self.chain[fork + 1 :], self.blocks[fork + 1 :]
        return self.tell(self.books.disconnect(fork, lost, b"", self.now))

    def statuses(self) -> dict[bytes, str]:
        return {entry.txid: str(entry.status) for entry in self.store.views.history(limit=None)}

    @property
    def pending(self) -> int:
        return self.store.views.balance().pending_in


def pay(value: int, *spends: bytes, to: bytes = OURS) -> bytes:
    """A transaction that spends these outpoints."""
    return tx(
        [TxIn(each[:32], int.from_bytes(each[32:], "little")) for each in spends], [TxOut(value, to), TxOut(7, THEIRS)]
    )


def announceable(books: Books) -> list[tuple[bytes, bytes]]:
    """The own transactions to announce (txid, raw), parents first."""
    own = books.judgement.own_records()
    return [(record.txid, record.raw) for record in own if books.judgement.is_announceable(record.txid)]


def coin(number: int) -> bytes:
    """An outpoint of an unknown transaction."""
    return bytes([number]) * 32 + bytes(4)


def out(raw: bytes, index: int = 0) -> bytes:
    """The outpoint of an output."""
    return txid(raw) + index.to_bytes(4, "little")
