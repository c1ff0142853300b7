"""Memory that the filtered blocks of one peer may take until their request is complete."""

from __future__ import annotations

import pytest

from spvfilter.errors import UselessPeerError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.light.engine.bloomlink import MAX_DOUBTFUL_SIZE, BloomLink, Flight
from spvfilter.network import REGTEST
from spvfilter.primitives import Header
from spvfilter.transaction import Transaction
from spvfilter.wallet.scanned import ScannedBlock
from spvfilter.wire.messages.merkleblock import MerkleBlock
from support.blocks import build
from support.blocks.build import TxIn, TxOut, p2wpkh, sha256d, tx

OURS, THEIRS = p2wpkh(b"\x01" * 20), p2wpkh(b"\xee" * 20)


class Link:
    """A link whose filter has an own script, and blocks that a peer sends."""

    def __init__(self) -> None:
        made = Bip37Filter(10, 1e-9, tweak=1)
        made.insert(OURS[2:])
        self.link = BloomLink()
        self.link.load(made, 0, -1, {})
        self.landed: list[ScannedBlock] = []

    def send(self, *blocks: list[bytes]) -> None:
        """Send the requested blocks with these transactions, all of them matched."""
        headers = [
            Header.parse(build.block(sha256d(REGTEST.genesis), [build.coinbase(1), *txs])[:80]) for txs in blocks
        ]
        flight = Flight(
            [(height, header.hash) for height, header in enumerate(headers)],
            lambda blocks, _: self.landed.extend(blocks),
        )
        self.link.begin(flight)
        for header, txs in zip(headers, blocks, strict=True):
            txids = [Transaction.parse(each).txid for each in (build.coinbase(1), *txs)]
            self.link.merkleblock(MerkleBlock.from_txids(header, txids, range(1, len(txids))))
            for each in txs:
                assert self.link.tx(Transaction.parse(each))
        self.link.land(flight)


def test_witnesses_that_a_peer_may_have_forged_are_not_kept() -> None:
    """Each requested block could have had four megabytes of them, with eight open requests of 125 blocks."""
    peer = Link()
    raws = [tx([TxIn(bytes((n,)) * 32, 0, witness=(bytes(1_000_000),))], [TxOut(n, OURS)]) for n in range(1, 4)]
    peer.send(raws)
    assert [each.raw for each in peer.landed[0].txs] == [Transaction.parse(raw).stripped for raw in raws]


def test_a_bounded_size_of_unmatched_transactions_is_taken_on_trust() -> None:
    """A peer that withholds an announced transaction could send all transactions of a thousand blocks."""
    peer = Link()
    padding = [tx([TxIn(bytes((n,)) * 32, 0, bytes(MAX_DOUBTFUL_SIZE // 4))], [TxOut(n, THEIRS)]) for n in range(1, 6)]
    peer.link.misses_txs = True
    peer.send(*([raw] for raw in padding[:3]))
    assert len(peer.landed) == 3
    assert peer.link.is_in_doubt
    with pytest.raises(UselessPeerError, match="does not match"):
        peer.send(*([raw] for raw in padding[3:]))


@pytest.mark.parametrize("is_loading", [False, True])
def test_a_filter_learns_no_transaction_that_was_requested_without_it(is_loading: bool) -> None:
    """The peer's copy of the filter was not extended. An honest peer that omits a spend would be banned."""
    link, ours = Link().link, tx([TxIn(b"\x01" * 32, 0)], [TxOut(1, OURS)])
    assert link.filter is not None
    before = bytes(link.filter)
    link.loading = 0
    if is_loading:  # the peer may have announced it before it got the filter
        link.load(link.filter, 0, -1, {})
    link.announced([Transaction.parse(ours).txid])
    if not is_loading:
        link.load(link.filter, 0, -1, {})
    link.loading = 0
    other = tx([TxIn(b"\x02" * 32, 0)], [TxOut(2, OURS)])
    link.came(Transaction.parse(other))
    link.came(Transaction.parse(ours))
    assert bytes(link.filter) == before
    third = tx([TxIn(b"\x03" * 32, 0)], [TxOut(3, OURS)])
    link.announced([Transaction.parse(third).txid])
    link.came(Transaction.parse(third))
    assert bytes(link.filter) != before
