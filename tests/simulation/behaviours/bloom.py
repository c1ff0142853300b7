"""Behaviours of nodes that lie about filtered blocks (BIP-37)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulation.behaviours.base import Behaviour
from spvfilter.filters.bip37 import MatchedTx
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.responder import Responder
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import Tx


class Liar(Behaviour):
    """A node that lies. The client may ban it."""

    is_honest = False
    is_full = False


def _chosen(block: TreeBlock, one_in: int) -> bool:
    """Choose the same blocks for every liar of a class, so that they agree."""
    return block.hash[3] % one_in == 0


class _OmittingResponder(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        super().send_merkleblock(block, [] if _chosen(block, 2) else matched)


class OmitsTxs(Liar):
    """Leaves transactions out of filtered blocks. All nodes of this class leave out the same ones."""

    omits = True
    responder = _OmittingResponder


class _OmittingAllResponder(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        super().send_merkleblock(block, [])


class OmitsAll(Liar):
    """Reports no matches in any block."""

    omits = True
    responder = _OmittingAllResponder


class _WithholdingResponder(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        self.send(MerkleBlock.from_txids(block.header, block.txids, [match.position for match in matched]))
        for match in matched[1:] if _chosen(block, 2) else matched:
            self.send(Tx(match.stripped))


class WithholdsTxs(Liar):
    """Proves transactions, but does not send them."""

    responder = _WithholdingResponder


class _ForgingResponder(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        if not _chosen(block, 3):
            super().send_merkleblock(block, matched)
            return
        proof = MerkleBlock.from_txids(block.header, block.txids, [match.position for match in matched])
        match block.hash[4] % 4:
            case 0:
                proof = replace(proof, hashes=(bytes(32), *proof.hashes[1:]))
            case 1:
                proof = replace(proof, total=proof.total + 1)
            case 2:
                proof = replace(proof, hashes=(*proof.hashes, proof.hashes[-1]))
            case _:
                proof = replace(proof, flags=proof.flags + b"\x00")
        self.send(proof)
        for each in matched:
            self.send(Tx(each.stripped))


class ForgesProofs(Liar):
    """Invents merkle proofs."""

    responder = _ForgingResponder


class _PaddingResponder(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        known = {match.position for match in matched}
        txs = self.regtest.chain.txs(block)
        added = [MatchedTx(at, tx.txid, tx.stripped) for at, tx in enumerate(txs) if at not in known]
        super().send_merkleblock(block, sorted([*matched, *added], key=lambda match: match.position))


class PadsBlocks(Liar):
    """Proves and sends transactions that the filter does not match."""

    responder = _PaddingResponder
