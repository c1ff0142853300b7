"""An oracle for the Electrum server: a full scan of a chain by python-bitcoinlib. It shares no code with spvfilter."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import Any

from bitcoin.core import CBlock, CTransaction

Place = tuple[int, int]
Outpoint = tuple[bytes, int]


def double(data: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def shown(digest: bytes) -> str:
    return digest[::-1].hex()


def hash_of_script(script: bytes) -> str:
    return shown(hashlib.sha256(script).digest())


def tree(leaves: list[bytes], position: int) -> tuple[list[str], str]:
    """Branch of a leaf and root of a merkle tree, level by level."""
    level, branch = list(leaves), []
    while len(level) > 1:
        if len(level) % 2:
            level.append(level[-1])
        branch.append(shown(level[position ^ 1]))
        level = [double(level[at] + level[at + 1]) for at in range(0, len(level), 2)]
        position //= 2
    return branch, shown(level[0])


class Oracle:
    """A chain and a mempool, with the scripts that a wallet watches."""

    def __init__(self, blocks: Iterable[bytes], mempool: Iterable[bytes], scripts: Iterable[bytes]) -> None:
        self.headers: list[bytes] = []
        self.ids: list[list[bytes]] = []
        self.watched = set(scripts)
        self.confirmed: dict[bytes, tuple[CTransaction, Place]] = {}
        for height, raw in enumerate(blocks):
            block = CBlock.deserialize(raw)
            self.headers.append(raw[:80])
            self.ids.append([tx.GetTxid() for tx in block.vtx])
            for position, tx in enumerate(block.vtx if height else ()):
                self.confirmed[tx.GetTxid()] = tx, (height, position)
        self.pending = {tx.GetTxid(): tx for tx in map(CTransaction.deserialize, mempool)}
        self.outputs: dict[Outpoint, tuple[bytes, int]] = {}
        for txid, tx in self.all().items():
            for index, output in enumerate(tx.vout):
                self.outputs[txid, index] = bytes(output.scriptPubKey), output.nValue
        self.own = {txid for txid, tx in self.all().items() if self.touched(txid, tx) & self.watched}

    def all(self) -> dict[bytes, CTransaction]:
        return {**{txid: tx for txid, (tx, _) in self.confirmed.items()}, **self.pending}

    def spent_by(self, tx: CTransaction) -> list[Outpoint]:
        return [(each.prevout.hash, each.prevout.n) for each in tx.vin]

    def touched(self, txid: bytes, tx: CTransaction) -> set[bytes]:
        paid = {bytes(output.scriptPubKey) for output in tx.vout}
        return paid | {self.outputs[point][0] for point in self.spent_by(tx) if point in self.outputs}

    # Answers

    def mempool(self, script: bytes) -> list[dict[str, Any]]:
        rows = []
        for txid, tx in self.pending.items():
            if txid not in self.own or script not in self.touched(txid, tx):
                continue
            points = self.spent_by(tx)
            has_parent = any(parent in self.pending and parent in self.own for parent, _ in points)
            is_known = all(
                point[0] in self.own or (point in self.outputs and self.outputs[point][0] in self.watched)
                for point in points
            )
            values = sum(self.outputs[point][1] for point in points) if is_known else 0
            fee = values - sum(output.nValue for output in tx.vout) if is_known else 0
            rows.append({"tx_hash": shown(txid), "height": -1 if has_parent else 0, "fee": fee})
        return sorted(rows, key=lambda row: (-row["height"], row["tx_hash"]))

    def history(self, script: bytes) -> list[dict[str, Any]]:
        found = sorted(
            (place, txid) for txid, (tx, place) in self.confirmed.items() if script in self.touched(txid, tx)
        )
        return [{"tx_hash": shown(txid), "height": height} for (height, _), txid in found] + self.mempool(script)

    def status(self, script: bytes) -> str | None:
        text = "".join(f"{row['tx_hash']}:{row['height']}:" for row in self.history(script))
        return hashlib.sha256(text.encode()).hexdigest() if text else None

    def balance(self, script: bytes) -> dict[str, int]:
        def change(txid: bytes, tx: CTransaction) -> int:
            paid: int = sum(output.nValue for output in tx.vout if bytes(output.scriptPubKey) == script)
            spent = [self.outputs.get(point, (b"", 0)) for point in self.spent_by(tx)]
            return paid - sum(value for owner, value in spent if owner == script)

        return {
            "confirmed": sum(change(txid, tx) for txid, (tx, _) in self.confirmed.items()),
            "unconfirmed": sum(change(txid, tx) for txid, tx in self.pending.items()),
        }

    def unspent(self, script: bytes, verified: Collection[Outpoint] | None = None) -> list[dict[str, Any]]:
        """Unspent outputs. A pending spend removes those in `verified`; by default every pending spend does."""
        spent = {point for tx, _ in self.confirmed.values() for point in self.spent_by(tx)}
        pending = {point for tx in self.pending.values() for point in self.spent_by(tx)}
        spent |= pending if verified is None else pending.intersection(verified)
        heights = {shown(txid): place for txid, (_, place) in self.confirmed.items()}
        order = {row["tx_hash"]: at for at, row in enumerate(self.mempool(script))}
        rows = [
            {"tx_hash": shown(txid), "tx_pos": index, "value": value, "height": heights.get(shown(txid), (0, 0))[0]}
            for (txid, index), (owner, value) in self.outputs.items()
            if owner == script and (txid, index) not in spent
        ]

        def place(row: dict[str, Any]) -> tuple[int, ...]:
            at = heights.get(row["tx_hash"])
            return (1, order[row["tx_hash"]], 0, row["tx_pos"]) if at is None else (0, *at, row["tx_pos"])

        return sorted(rows, key=place)

    def merkle(self, height: int, position: int) -> list[str]:
        return tree(self.ids[height], position)[0]

    def proof(self, height: int, checkpoint: int) -> dict[str, Any]:
        branch, root = tree([double(header) for header in self.headers[: checkpoint + 1]], height)
        return {"branch": branch, "root": root}
