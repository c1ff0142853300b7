"""What the blocks spend that `spvfilter cfilter build` makes filters of, and the order and heights of these blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from spvfilter.errors import FormatError, SourceError
from spvfilter.kernel import txid, walk_block
from spvfilter.network import Network
from spvfilter.primitives import Reader, hash_to_hex
from spvfilter.scan.sources import BlockRef, BlockSource, Problem
from spvfilter.scan.undo import block_coins
from spvfilter.scan.undomode import UndoMode

_OP_RETURN = 0x6A


def chain_order(refs: Iterable[BlockRef]) -> tuple[list[BlockRef], int]:
    """The blocks without duplicates, parents first, and the number of blocks whose parent is missing."""
    known = {ref.hash: ref for ref in refs}
    children: dict[bytes, list[BlockRef]] = {}
    roots = []
    for ref in known.values():
        if ref.previous in known:
            children.setdefault(ref.previous, []).append(ref)
        else:
            roots.append(ref)
    order, waiting = [], roots[::-1]
    while waiting:
        order.append(ref := waiting.pop())
        waiting += reversed(children.get(ref.hash, []))
    return order, len(roots)


def chain_heights(order: Sequence[BlockRef], network: Network) -> list[int | None]:
    """The height of each block, parents first: counted from the genesis block, or from any block of its run that states
    its own.
    """
    depth: dict[bytes, tuple[bytes, int]] = {}  # the first block of the run, and the number of blocks after it
    base: dict[bytes, int] = {}  # height of the first block of a run
    for ref in order:
        root, above = depth.get(ref.previous, (ref.hash, -1))
        depth[ref.hash] = root, above + 1
        if ref.hash == network.genesis_hash:
            base[root] = 0
        elif ref.height is not None and ref.height > above:
            base.setdefault(root, ref.height - above - 1)
    places = [depth[ref.hash] for ref in order]
    return [base[root] + above if root in base else None for root, above in places]


class SpentScripts:
    """The scripts that blocks spend: as given, by their undo records, or by outputs seen before.

    Blocks are asked for parents first.
    """

    def __init__(self, source: BlockSource, order: Sequence[BlockRef], given: Sequence[bytes] | None) -> None:
        self._source = source
        self._order = order
        self._given = given
        lacking = [ref for ref in order if ref.transactions != 1 and source.find_undo(ref) is None]
        if source.mode is UndoMode.REQUIRE and lacking:
            raise SourceError(
                f"undo data is required, and {len(lacking):,} block(s) have none, the first"
                f" {hash_to_hex(lacking[0].hash)}"
            )
        self._outputs: SeenOutputs | None = None  # not needed if every block has its record
        if lacking and given is None:
            self._outputs = self._nothing_seen()

    def _nothing_seen(self) -> SeenOutputs:
        return SeenOutputs(forget=len({ref.previous for ref in self._order}) == len(self._order))

    def of(self, ref: BlockRef, raw: bytes, problems: list[str]) -> Sequence[bytes]:
        """The scripts in the order of the inputs; what is wrong with the block's undo record is added to the problems.

        Raises FormatError for a malformed block, SourceError if an output that it spends is unknown.
        """
        if self._given is not None:
            return self._given
        seen = None if self._outputs is None else self._outputs.add(raw)
        if (by_undo := self._by_undo(ref, raw, problems)) is not None:
            return by_undo
        if seen is None:
            self._outputs = self._seen_before(ref)
            seen = self._outputs.add(raw)
        scripts = [script for script in seen if script is not None]
        if len(scripts) < len(seen):
            missing = len(seen) - len(scripts)
            raise SourceError(
                f"{missing} of the {len(seen)} outputs it spends are in no block given before it: "
                "add that block or its rev*.dat, or --prevouts"
            )
        return scripts

    def _seen_before(self, ref: BlockRef) -> SeenOutputs:
        """The outputs of the blocks before this one, which are read again: a record on which we relied cannot be
        used.
        """
        outputs = self._nothing_seen()
        for earlier in takewhile(lambda each: each.hash != ref.hash, self._order):
            with suppress(FormatError, SourceError, OSError):  # said when its own filter was made
                outputs.add(self._source.read(earlier))
        return outputs

    def _by_undo(self, ref: BlockRef, raw: bytes, problems: list[str]) -> list[bytes] | None:
        while (place := self._source.find_undo(ref)) is not None:
            try:
                return [coin.script for coins in block_coins(raw, place.read()) for coin in coins]
            except (FormatError, SourceError, OSError) as error:
                more = self._source.pair_again(ref, place)
                if more is not None:
                    problems += [str(Problem.of(f"{self._source.name(ref)}: its undo record", error)), *map(str, more)]
        return None


class SeenOutputs:
    """The scriptPubKeys of outputs, kept for the blocks that spend them.

    With `forget` (no forks), spent outputs are dropped.
    """

    def __init__(self, forget: bool) -> None:
        self._forget = forget
        self._scripts: dict[bytes, bytes] = {}  # by outpoint, 36 bytes

    def add(self, raw_block: bytes) -> list[bytes | None]:
        """Keep a block's outputs and return the scripts that it spends, in order; None for an output that was never
        seen.
        """
        spans = list(walk_block(raw_block))
        for tx in spans:
            this_txid = txid(raw_block, tx)
            for index, (_, start, end) in enumerate(tx.outputs):
                if raw_block[start:end][:1] != bytes((_OP_RETURN,)):  # nothing can spend it
                    self._scripts[this_txid + index.to_bytes(4, "little")] = raw_block[start:end]
        spent = [raw_block[at : at + 36] for tx in spans[1:] for at, _, _ in tx.inputs]
        find = self._scripts.pop if self._forget else self._scripts.get
        return [find(outpoint, None) for outpoint in spent]


def read_prevouts(path: str) -> Sequence[bytes]:
    """The scripts of a file of spent outputs, each as in a transaction (CTxOut): value i64 LE, CompactSize, script.

    Raises SourceError for a file that is not such a list, OSError.
    """
    raw = Path(path).read_bytes()
    reader, scripts = Reader(raw), []
    try:
        while reader.at < len(raw):
            reader.take(8, "value")
            scripts.append(reader.take(reader.compact_size("script length"), "script"))
    except FormatError as error:
        raise SourceError(f"{path}: output {len(scripts)}: {error}") from None
    return scripts
