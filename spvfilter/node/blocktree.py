"""Block tree of the embedded node: all branches, the branch with the most work, and its unspent outputs.

Scripts are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.chain import HeaderChain, Tip
from spvfilter.chain.difficulty import work
from spvfilter.errors import RefusedError, UnconnectedHeadersError
from spvfilter.kernel import check_block, walk_block
from spvfilter.network import REGTEST
from spvfilter.node.build import height_push
from spvfilter.node.consensus import UnspentOutput, check_transaction, fee, is_final, refused, unspent_outputs
from spvfilter.primitives import Header, OutPoint, TxOut, compact_size, hash_to_hex
from spvfilter.protocol import COMMITMENT_PREFIX, HEADER_SIZE, MAX_BLOCK_WEIGHT
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn

HALVING_INTERVAL = 150  # blocks (Core kernel/chainparams.cpp, regtest)
# Seconds. Blocks outside the best chain that are older than this are not served (Core net_processing.cpp).
STALE_AGE_LIMIT_S = 30 * 24 * 3600
_BLOCK_INTERVAL_S = 600


def subsidy(height: int) -> int:
    """Return the subsidy of a regtest block in satoshi (Core GetBlockSubsidy)."""
    return 50 * 100_000_000 >> height // HALVING_INTERVAL


@public
@dataclass(slots=True, eq=False)
class TreeBlock:
    """A block in the tree."""

    raw: bytes
    """The serialized block."""
    header: Header
    """The parsed header of this block."""
    rules: Tip
    """Header rules that apply to a child of this block."""
    previous: TreeBlock | None
    """The parent block, or None for the genesis block."""
    txids: tuple[bytes, ...]
    """Txids of the block's transactions, coinbase first, 32 bytes each in wire order."""
    spent: dict[bytes, UnspentOutput] | None = None
    """Outputs that the block spends, keyed by outpoint, in the order of the block's inputs.

    None if the block has never been in the best chain.
    """

    @property
    def hash_hex(self) -> str:
        """The field `hash` in hex, as block explorers show it."""
        return hash_to_hex(self.hash)

    @property
    def hash(self) -> bytes:
        """Block hash, 32 bytes in wire order."""
        return self.rules.hash

    @property
    def height(self) -> int:
        """Height of the block, or 0 for the genesis block."""
        return self.rules.height

    @property
    def median_time(self) -> int:
        """Median time of this block and its 10 ancestors (Unix time) (BIP-113)."""
        return self.rules.median_time


@public
@dataclass(frozen=True, slots=True)
class TipChange:
    """A change to the best chain. Both fields are empty if the best chain did not change."""

    disconnected: Sequence[TreeBlock] = ()
    """Blocks that have left the best chain, old tip first."""
    connected: Sequence[TreeBlock] = ()
    """Blocks that have joined the best chain, new tip last."""


def _genesis() -> TreeBlock:
    key = bytes.fromhex(
        "04678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5f"
    )
    title = b"The Times 03/Jan/2009 Chancellor on brink of second bailout for banks"
    txin = TxIn(
        OutPoint(bytes(32), 0xFFFFFFFF), bytes.fromhex("04ffff001d0104") + bytes((len(title),)) + title, (), 0xFFFFFFFF
    )
    coinbase = build_tx([txin], [TxOut(subsidy(0), b"\x41" + key + b"\xac")], version=1)
    header = Header.parse(REGTEST.genesis)
    assert Transaction.parse(coinbase).txid == header.merkle_root
    return TreeBlock(
        REGTEST.genesis + compact_size(1) + coinbase,
        header,
        HeaderChain(REGTEST).tip(),
        None,
        (header.merkle_root,),
        {},
    )


@public
class BlockTree:
    """Regtest's block tree, starting at the genesis block, with the unspent outputs of the best chain.

    The best chain is the branch with the most work; if there is a tie, the first branch that was seen. `clock` is a
    function that returns the Unix time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        genesis = _genesis()
        self.blocks: dict[bytes, TreeBlock] = {genesis.hash: genesis}
        self.active: list[TreeBlock] = [genesis]  # blocks of the best chain, indexed by height
        # unspent outputs, keyed by outpoint, without the genesis coinbase, as in Core
        self.coins: dict[bytes, UnspentOutput] = {}
        self._clock = clock
        self._parsed: tuple[bytes, list[Transaction]] = (b"", [])  # hash and transactions of the last parsed block
        self._invalid: set[bytes] = set()  # hashes of blocks that break a rule but have valid proof of work

    @property
    def tip(self) -> TreeBlock:
        """The last block of the best chain."""
        return self.active[-1]

    def is_active(self, block: TreeBlock) -> bool:
        """Return True if a block is in the best chain."""
        return block.height < len(self.active) and self.active[block.height] is block

    def ancestor(self, block: TreeBlock, height: int) -> TreeBlock:
        """Return the block at `height` in the branch that ends with `block`."""
        while block.height > height and not self.is_active(block):
            assert block.previous is not None
            block = block.previous
        return self.active[height] if self.is_active(block) else block

    def fork_height(self, locator: Sequence[bytes]) -> int:
        """Return the height of the first locator entry that is in the best chain (Core FindForkInGlobalIndex).

        The result is 0 if no entry is in the best chain.
        """
        known = (self.blocks.get(block_hash) for block_hash in locator)
        return next((block.height for block in known if block and self.is_active(block)), 0)

    def locator(self) -> list[bytes]:
        """Return a block locator of the best chain: eleven hashes from the tip, then exponentially spaced ones."""
        heights, step = [len(self.active) - 1], 1
        while heights[-1] > 0:
            step *= 2 if len(heights) > 10 else 1
            heights.append(max(heights[-1] - step, 0))
        return [self.active[height].hash for height in heights]

    def is_requestable(self, block: TreeBlock) -> bool:
        """Return True if the node serves the block to peers (Core BlockRequestAllowed).

        It serves the blocks of the best chain, and recent stale blocks. A stale block must be less than 30 days older
        than the tip, and its chain less than 30 days' worth of work behind.
        """
        if self.is_active(block):
            return True
        tip = self.tip
        by_work_s = (tip.rules.work - block.rules.work) * _BLOCK_INTERVAL_S // work(tip.header.bits)
        return max(tip.header.time - block.header.time, by_work_s) < STALE_AGE_LIMIT_S

    def txs(self, block: TreeBlock) -> list[Transaction]:
        """Return the transactions of a block, coinbase first."""
        return self._parse_txs(block.raw, block.hash)

    def _parse_txs(self, raw: bytes, block_hash: bytes) -> list[Transaction]:
        if self._parsed[0] != block_hash:  # callers mostly need the tip, repeatedly
            self._parsed = (block_hash, [Transaction.parse(raw[span.start : span.end]) for span in walk_block(raw)])
        return self._parsed[1]

    def accept(self, raw: bytes) -> TipChange:
        """Add a block to the tree. Its branch becomes the best chain if it has the most work.

        Raises:
            FormatError: The block is malformed, or its header does not commit to its transactions.
            HeaderError: The header breaks a consensus rule.
            RefusedError: The transactions break a consensus rule.
        """
        header = Header.parse(raw[:HEADER_SIZE])
        previous = self._find_previous(header)
        rules = previous.rules.copy()
        rules.advance(raw[:HEADER_SIZE], header.hash, int(self._clock()))
        check_block(raw)
        txs = self._parse_txs(raw, rules.hash)
        block = TreeBlock(raw, header, rules, previous, tuple(tx.txid for tx in txs))
        self._check_body(block, txs)
        self.blocks[block.hash] = block
        return self._activate(block) if rules.work > self.tip.rules.work else TipChange()

    def _find_previous(self, header: Header) -> TreeBlock:
        block_hash = header.hash
        if block_hash in self.blocks or block_hash in self._invalid:
            reason = "duplicate" if block_hash in self.blocks else "duplicate-invalid"
            raise RefusedError(reason, f"block {hash_to_hex(block_hash)}: this node already has it")
        if header.previous in self._invalid:
            raise RefusedError(
                "bad-prevblk",
                f"block {hash_to_hex(block_hash)}: its parent {hash_to_hex(header.previous)} is invalid",
            )
        try:
            return self.blocks[header.previous]
        except KeyError:
            raise UnconnectedHeadersError(
                f"block {hash_to_hex(block_hash)}: its parent {hash_to_hex(header.previous)} is unknown"
            ) from None

    def _check_body(self, block: TreeBlock, txs: Sequence[Transaction]) -> None:
        """Check the rules that do not depend on unspent outputs (Core CheckBlock, ContextualCheckBlock)."""
        coinbase, *others = txs
        if not coinbase.is_coinbase:
            raise refused(coinbase, "bad-cb-missing", "the first transaction of the block is not a coinbase")
        assert block.previous is not None
        median_time = block.previous.median_time
        for tx in txs:
            check_transaction(tx)
            if not is_final(tx, block.height, median_time):
                raise refused(
                    tx, "bad-txns-nonfinal", f"lock time {tx.lock_time} has not been reached at height {block.height}"
                )
        for tx in others:
            if tx.is_coinbase:
                raise refused(tx, "bad-cb-multiple", "a second coinbase")
        if not coinbase.stripped[42:].startswith(height_push(block.height)):
            raise refused(
                coinbase, "bad-cb-height", f"its scriptSig must start with the height {block.height} (BIP-34)"
            )
        committed = any(
            len(out.script_pubkey) >= 38 and out.script_pubkey.startswith(COMMITMENT_PREFIX) for out in coinbase.outputs
        )
        if committed and coinbase.raw == coinbase.stripped:
            raise refused(coinbase, "bad-witness-nonce-size", "it commits to witnesses, but lacks the witness nonce")
        weight = 4 * (HEADER_SIZE + len(compact_size(len(txs)))) + sum(tx.weight for tx in txs)
        if weight > MAX_BLOCK_WEIGHT:
            raise RefusedError(
                "bad-blk-weight",
                f"block {hash_to_hex(block.hash)}: its weight must be at most {MAX_BLOCK_WEIGHT}, not {weight}",
            )

    def branch(self, block: TreeBlock) -> list[TreeBlock]:
        """Return the blocks from the fork with the best chain up to `block`.

        The result is empty if `block` is in the best chain.
        """
        found = []
        while not self.is_active(block):
            found.append(block)
            assert block.previous is not None  # the genesis block is always active
            block = block.previous
        return found[::-1]

    def _activate(self, block: TreeBlock) -> TipChange:
        """Make `block` the tip of the best chain.

        If its branch turns out to be invalid, restore the previous best chain and raise RefusedError.
        """
        joining = self.branch(block)
        fork = joining[0].height - 1
        leaving = self.active[:fork:-1]
        for left in leaving:
            self._disconnect(left)
        for number, joined in enumerate(joining):
            try:
                self._connect(joined)
            except RefusedError:
                self._forget(joining[number:])
                for undone in reversed(joining[:number]):
                    self._disconnect(undone)
                for left in reversed(leaving):
                    self._connect(left)
                raise
        return TipChange(leaving, joining)

    def _connect(self, block: TreeBlock) -> None:
        created: dict[bytes, UnspentOutput] = {}
        spent: dict[bytes, UnspentOutput] = {}

        def coin(outpoint: bytes) -> UnspentOutput | None:
            return None if outpoint in spent else created.get(outpoint) or self.coins.get(outpoint)

        fees = 0
        coinbase, *others = self.txs(block)
        created.update(unspent_outputs(coinbase, block.height))
        for tx in others:
            fees += fee(tx, coin, block.height)
            for outpoint in tx.inputs:
                found = coin(outpoint)
                assert found is not None  # fee() found it
                spent[outpoint] = found
            created.update(unspent_outputs(tx, block.height))
        most, paid = subsidy(block.height) + fees, sum(out.value for out in coinbase.outputs)
        if paid > most:
            raise refused(coinbase, "bad-cb-amount", f"pays {paid} satoshi, but at most {most} are allowed")
        self.coins.update(created)
        for outpoint in spent:
            del self.coins[outpoint]
        block.spent = spent
        self.active.append(block)

    def _disconnect(self, block: TreeBlock) -> None:
        assert self.tip is block and block.spent is not None
        self.active.pop()
        self.coins.update(block.spent)
        for tx in self.txs(block):
            for outpoint in unspent_outputs(tx, block.height):
                del self.coins[outpoint]

    def _forget(self, blocks: Sequence[TreeBlock]) -> None:
        """Mark the blocks of one branch, and all their descendants, as invalid."""
        gone = {block.hash for block in blocks}
        for block in list(self.blocks.values()):  # in order of arrival: parents first
            if block.hash in gone or block.header.previous in gone:
                gone.add(block.hash)
                del self.blocks[block.hash]
        self._invalid |= gone
