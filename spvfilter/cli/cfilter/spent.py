"""Input of `spvfilter cfilter build`: the scripts that blocks spend, and the order and heights of the blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from spvfilter.errors import FormatError, SourceError, counted
from spvfilter.kernel import txid, walk_block
from spvfilter.network import Network
from spvfilter.primitives import Reader, hash_to_hex
from spvfilter.scan.sources import BlockRef, BlockSource, Problem
from spvfilter.scan.undo import block_coins
from spvfilter.scan.undomode import UndoMode

_OP_RETURN = 0x6A


def chain_order(refs: Iterable[BlockRef]) -> tuple[list[BlockRef], int]:
    """Return the blocks without duplicates, parents first, and the number of blocks whose parent is missing."""
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
    """Return the height of each block, or None if it is unknown. `order` lists parents first.

    Heights are counted from the genesis block, or from a block of the same run that contains its height.
    """
    depth: dict[bytes, tuple[bytes, int]] = {}  # block → first block of its run, and its distance from that block
    base: dict[bytes, int] = {}  # first block of a run → its height
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
    """The scripts that blocks spend, from a file, from undo records, or from the outputs of earlier blocks.

    Pass parent blocks before their children.
    """

    def __init__(self, source: BlockSource, order: Sequence[BlockRef], given: Sequence[bytes] | None) -> None:
        self._source = source
        self._order = order
        self._given = given
        lacking = [ref for ref in order if ref.transactions != 1 and source.find_undo(ref) is None]
        if source.mode is UndoMode.REQUIRE and lacking:
            raise SourceError(
                f"no undo data for {counted(len(lacking), 'block')}, but it is required; the first is"
                f" {hash_to_hex(lacking[0].hash)}"
            )
        self._outputs: SeenOutputs | None = None  # None while every block has an undo record
        if lacking and given is None:
            self._outputs = self._nothing_seen()

    def _nothing_seen(self) -> SeenOutputs:
        return SeenOutputs(forget=len({ref.previous for ref in self._order}) == len(self._order))

    def of(self, ref: BlockRef, raw: bytes, problems: list[str]) -> Sequence[bytes]:
        """Return the scripts in the order of the inputs, and append problems with the undo record to `problems`.

        Raises FormatError if the block is malformed, and SourceError if a spent output is unknown.
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
            missing = counted(len(seen) - len(scripts), "output")
            raise SourceError(
                f"the earlier blocks that were given lack {missing} that it spends: add the missing blocks, or its"
                " rev*.dat, or --prevouts"
            )
        return scripts

    def _seen_before(self, ref: BlockRef) -> SeenOutputs:
        """Read the earlier blocks again and return their outputs, because this block's undo record is unusable."""
        outputs = self._nothing_seen()
        for earlier in takewhile(lambda each: each.hash != ref.hash, self._order):
            with suppress(FormatError, SourceError, OSError):  # reported when its own filter was made
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
    """The scriptPubKeys of outputs, kept in memory for the blocks that spend them.

    If `forget` is True, spent outputs are dropped, which is correct only if the blocks have no forks.
    """

    def __init__(self, forget: bool) -> None:
        self._forget = forget
        self._scripts: dict[bytes, bytes] = {}  # by outpoint (36 bytes)

    def add(self, raw_block: bytes) -> list[bytes | None]:
        """Store a block's outputs, and return the scripts of the outputs that it spends, in order.

        None means unknown.
        """
        spans = list(walk_block(raw_block))
        for tx in spans:
            this_txid = txid(raw_block, tx)
            for index, (_, start, end) in enumerate(tx.outputs):
                if raw_block[start:end][:1] != bytes((_OP_RETURN,)):  # OP_RETURN outputs cannot be spent
                    self._scripts[this_txid + index.to_bytes(4, "little")] = raw_block[start:end]
        spent = [raw_block[at : at + 36] for tx in spans[1:] for at, _, _ in tx.inputs]
        find = self._scripts.pop if self._forget else self._scripts.get
        return [find(outpoint, None) for outpoint in spent]


def read_prevouts(path: str) -> Sequence[bytes]:
    """Read the scripts in a file of spent outputs. Each output is serialized as in a transaction (CTxOut).

    An output is its value as i64 LE, the length of the script as CompactSize, and the script. Raises SourceError if the
    file is malformed, and OSError if it cannot be read.
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
