"""A database of a wallet with headers, matches, a transaction and the parameters of a filter. No assertions."""

from __future__ import annotations

from pathlib import Path

from spvfilter.hashes import sha256d
from spvfilter.kernel import Hit
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch, Bip37Parameters
from spvfilter.store.ledger import StoredMatch, StoredTx, TxStatus
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction
from spvfilter.watch.match import Completeness
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, tx

SCRIPT = b"\x00\x14" + b"\x01" * 20
OTHER = b"\x00\x14" + b"\x02" * 20
GENESIS = REGTEST.genesis
PAYMENT = tx([TxIn(bytes(32), 0)], [TxOut(1_030, SCRIPT)])
PAID = Transaction.parse(PAYMENT).txid


def headers(count: int, seed: bytes = b"a") -> bytes:
    raw, previous = b"", sha256d(GENESIS)
    for number in range(count):
        header = bytes(4) + previous + sha256d(seed + bytes([number % 256])) + bytes(12)
        raw, previous = raw + header, sha256d(header)
    return raw


def watch_list(*scripts: bytes) -> WatchList:
    watch = WatchList(REGTEST)
    for script in scripts or (SCRIPT,):
        watch.add_script(script, "mine")
    return watch


def found(number: int, height: int | None, *, spend: bool = False) -> StoredMatch:
    digest = bytes([number]) * 32
    hit = Hit(spend, 0, digest, number, digest + bytes(4), 1_000 + number, SCRIPT, 0)
    return StoredMatch(hit, None if height is None else bytes([height]) * 32, height, Completeness.UNPROVEN)


def filled(path: Path) -> Store:
    store = Store.open(path, REGTEST)
    watch = watch_list()
    store.attach(watch)
    store.commit(Batch(headers=GENESIS + headers(20)))
    for height in range(20):
        each = found(height, height)
        watch.table.learn([each.hit])
        store.commit(Batch(matches=[each], cursor=height))
    pending = found(30, None)
    hit = pending.hit._replace(txid=PAID, n=0, outpoint=PAID + bytes(4))
    payment = StoredTx(PAYMENT, TxStatus.PENDING, 1, 7)
    store.commit(Batch(matches=[pending._replace(hit=hit)], transactions={PAID: payment}))
    store.commit(Batch(bip37_parameters=Bip37Parameters(3, 256, 0.0001, b"k" * 32)))
    return store


def everything(store: Store) -> list[object]:
    return [
        store.tip,
        store.cursor,
        store.searched,
        store.secret,
        store.bip37_parameters,
        b"".join(store.headers()),
        list(store.matches()),
        store.transactions(store.tip),
    ]
