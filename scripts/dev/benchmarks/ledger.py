"""A wallet of many transactions: costs of its balance, of a page of its history, and of a row of its database."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from measure import Row, best_of

from spvfilter.hashes import sha256d
from spvfilter.kernel import Hit
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredMatch, StoredTx, TxStatus
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.match import Completeness
from spvfilter.watch.watchlist import WatchList

_TXS = 1_000_000
_PER_BLOCK = 200
# A transaction with one input and one output.
_RAW = bytes(4) + b"\x01" + bytes(41) + b"\x01" + bytes(8) + b"\x16" + b"\x00\x14" + bytes(20) + bytes(4)
_ADDRESSES = 1_000
_GOAL_BALANCE_MS = 1
_GOAL_PAGE_MS = 10


def ledger(folder: Path, rounds: int) -> list[Row]:
    """Measure views of a million transactions: half of them receive coins, and the other half spend these."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "wallet.db"
        fill(path, _TXS)
        size = path.stat().st_size
        with WalletStore.open(path) as wallet:
            deep = wallet.history(limit=1, before=f"{(_TXS // _PER_BLOCK // 2) << 32:x}-")[0].cursor
            asked = {
                "balance": (wallet.balance, _GOAL_BALANCE_MS),
                "a page of the history, 100 transactions": (partial(wallet.history, limit=100), _GOAL_PAGE_MS),
                "a page half way down": (partial(wallet.history, limit=100, before=deep), _GOAL_PAGE_MS),
                "a page of a label that one in ten has": (
                    partial(wallet.history, limit=100, label="label 3"),
                    _GOAL_PAGE_MS,
                ),
                "a page of coins": (partial(wallet.coins, limit=100), _GOAL_PAGE_MS),
                "one transaction": (partial(wallet.transaction, txid_of(77)), _GOAL_BALANCE_MS),
            }
            rows = [
                Row(f"{_TXS:,} transactions: {name}, ms", best_of(rounds, call, int)[0], goal, "goal", 1.0)
                for name, (call, goal) in asked.items()
            ]
        rows.append(
            Row(f"{_TXS:,} transactions: bytes of the database per transaction", size / _TXS, len(_RAW), "bytes of one")
        )
    return rows


def txid_of(number: int) -> bytes:
    """Return a txid for each number."""
    return sha256d(number.to_bytes(8, "little"))


def fill(path: Path, count: int) -> None:
    """Fill a database with `count` transactions: payments, each followed by its spend, some with a label."""
    watch = WatchList(REGTEST)
    scripts = [b"\x00\x14" + number.to_bytes(20, "big") for number in range(_ADDRESSES)]
    for number, script in enumerate(scripts):
        watch.add_script(script, f"label {number % 10}")
    with Store.open(path, REGTEST) as store:
        store.attach(watch)
        store._db.execute("PRAGMA synchronous = OFF")
        header, height = REGTEST.genesis, 0
        store.commit(Batch(headers=header))
        for first in range(0, count, _PER_BLOCK):
            header, height = header[:4] + sha256d(header) + header[36:], height + 1
            batch, block = Batch(headers=header, cursor=height), sha256d(header)
            for number in range(first, first + _PER_BLOCK):
                made = number // 2  # the next transaction spends it, except one in a hundred
                txid, script = txid_of(number), scripts[made % _ADDRESSES]
                if number % 2 and number % 100 != 1:
                    hit = Hit(
                        True,
                        1 + number - first,
                        txid,
                        0,
                        txid_of(number - 1) + bytes(4),
                        1_000 + made,
                        script,
                        made % _ADDRESSES,
                    )
                else:
                    hit = Hit(
                        False, 1 + number - first, txid, 0, txid + bytes(4), 1_000 + made, script, made % _ADDRESSES
                    )
                    watch.table.learn([hit])
                batch.matches.append(StoredMatch(hit, block, height, Completeness.PROVEN))
                batch.transactions[txid] = StoredTx(
                    _RAW, TxStatus.CONFIRMED, None, block_hash=block, height=height, position=hit.position
                )
            store.commit(batch)
