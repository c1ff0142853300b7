"""Bitcoin Core's validation engine (libbitcoinkernel): a chain of regtest, and a check of scripts. No assertions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from spvfilter._public import deferred
from spvfilter.primitives import TxOut

if TYPE_CHECKING:
    pbk: Any
else:
    pbk = deferred("pbk")


class Movement(NamedTuple):
    """An output that a block of the best chain creates or spends, as Core reads it from its files."""

    is_spend: bool
    height: int
    txid: bytes
    """Txid of the transaction that pays or spends the output."""
    position: int
    """Index of the output or of the input in this transaction."""
    outpoint: bytes
    """The output, 36 bytes."""
    value: int
    """Value in satoshi."""
    script: bytes


class CoreEngine:
    """Core's chain of blocks in a folder.

    The files are complete only after the engine is closed. Another engine can then go on in the same folder.

    Args:
        folder: The folder, with `blocks` for the block files and undo files.
    """

    def __init__(self, folder: Path) -> None:
        self.blocks = folder / "blocks"
        (folder / "data").mkdir(parents=True, exist_ok=True)
        self._verdicts: dict[bytes, bool] = {}  # by the hash of a block that Core tried to connect
        options = pbk.ContextOptions()
        options.set_chainparams(pbk.ChainParameters(pbk.ChainType.REGTEST))
        options.set_validation_interface(pbk.ValidationInterfaceCallbacks(block_checked=self._checked))
        context = pbk.Context(options)
        self._manager = pbk.ChainstateManager(
            pbk.ChainstateManagerOptions(context, str(folder / "data"), str(self.blocks))
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del self._manager  # writes the files

    def _checked(self, _: object, block: Any, state: Any) -> None:
        self._verdicts[bytes(block.block_hash)] = state.validation_mode == pbk.ValidationMode.VALID

    def accepts(self, raw: bytes) -> bool:
        """Give a new block to Core. False if Core finds it malformed or invalid.

        A block with less work than the best chain is not validated further than its transactions by themselves.
        """
        try:
            block = pbk.Block(raw)
            self._manager.process_block(block)
        except (RuntimeError, pbk.ProcessBlockException):
            return False
        return self._verdicts.get(bytes(block.block_hash), True)

    @property
    def tip(self) -> bytes:
        """Hash of the last block of the best chain."""
        return bytes(self._manager.get_active_chain().block_tree_entries[-1].block_hash)

    def movements(self) -> Iterator[Movement]:
        """Yield the outputs that the best chain creates and spends, in order, without the genesis block."""
        for entry in self._manager.get_active_chain().block_tree_entries:
            if entry.height == 0:
                continue
            undo = self._manager.block_spent_outputs[entry].transactions
            for number, tx in enumerate(self._manager.blocks[entry].transactions):
                spent = [coin.output for coin in undo[number - 1].coins] if number else []
                places = [bytes(each.out_point.txid) + _u32(each.out_point.index) for each in tx.inputs][: len(spent)]
                txid = bytes(tx.txid)
                for at, (place, out) in enumerate(zip(places, spent, strict=True)):
                    yield Movement(True, entry.height, txid, at, place, out.amount, bytes(out.script_pubkey))
                for at, out in enumerate(tx.outputs):
                    place = txid + _u32(at)
                    yield Movement(False, entry.height, txid, at, place, out.amount, bytes(out.script_pubkey))

    def coins(self) -> dict[bytes, tuple[int, bytes]]:
        """Return the values and scripts of the outputs of these blocks that are unspent, without OP_RETURN."""
        coins: dict[bytes, tuple[int, bytes]] = {}
        for each in self.movements():
            if each.is_spend:
                del coins[each.outpoint]
            elif not each.script.startswith(b"\x6a"):
                coins[each.outpoint] = (each.value, each.script)
        return coins


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def satisfies(raw: bytes, spent: Sequence[TxOut]) -> bool:
    """True if each input of a transaction satisfies the script of the output that it spends, by all rules of today.

    Args:
        raw: The serialized transaction.
        spent: The outputs that its inputs spend, in order.
    """
    tx = pbk.Transaction(raw)
    outputs = [pbk.TransactionOutput(pbk.ScriptPubkey(each.script_pubkey), each.value) for each in spent]
    data = pbk.script.PrecomputedTransactionData(tx, outputs)
    try:
        return all(
            out.script_pubkey.verify(out.amount, tx, data, at, pbk.ScriptVerificationFlags.ALL)
            for at, out in enumerate(outputs)
        )
    except pbk.ScriptVerifyException:
        return False


def satisfies_input(raw: bytes, spent: Sequence[TxOut], index: int) -> bool:
    """True if one input of a transaction satisfies the script of the output that it spends, by all rules of today."""
    tx = pbk.Transaction(raw)
    outputs = [pbk.TransactionOutput(pbk.ScriptPubkey(each.script_pubkey), each.value) for each in spent]
    data = pbk.script.PrecomputedTransactionData(tx, outputs)
    coin = outputs[index]
    try:
        return bool(coin.script_pubkey.verify(coin.amount, tx, data, index, pbk.ScriptVerificationFlags.ALL))
    except pbk.ScriptVerifyException:
        return False
