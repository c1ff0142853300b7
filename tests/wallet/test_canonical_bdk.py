"""BDK as judge of canonical transactions: from the same random facts it finds the same ones."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from spvfilter._public import deferred
from spvfilter.wallet.canonical import Status
from spvfilter.wallet.txgraph import Anchor, Signatures, TxRecord
from support.vectors import effort
from support.wallets.facts import Facts, naive_statuses, random_facts

if TYPE_CHECKING:
    bdk: Any
else:
    bdk = deferred("bdkpython")


class Judge:
    """BDK's wallet, made from facts. Every transaction pays one of its scripts, so that it lists all canonical ones."""

    def __init__(self) -> None:
        words = "abandon " * 11 + "about"
        secret = bdk.DescriptorSecretKey(bdk.NetworkKind.TEST, bdk.Mnemonic.from_string(words), None)
        self.descriptor = bdk.Descriptor.new_bip84(secret, bdk.KeychainKind.EXTERNAL, bdk.NetworkKind.TEST)
        wallet = bdk.Wallet.create_single(self.descriptor, bdk.Network.REGTEST, bdk.Persister.new_in_memory())
        self.genesis = wallet.latest_checkpoint().hash
        self.script = bytes(wallet.peek_address(bdk.KeychainKind.EXTERNAL, 0).address.script_pubkey().to_bytes())

    def statuses(self, facts: Facts) -> dict[bytes, Status]:
        """The transactions that BDK finds confirmed or canonical."""
        wallet = self._wallet(facts)
        found = {}
        for each in wallet.transactions():
            digest = each.transaction.compute_txid().serialize()
            found[digest] = Status.CANONICAL if each.chain_position.is_unconfirmed() else Status.CONFIRMED
        return found

    def _wallet(self, facts: Facts) -> Any:
        records = facts.records
        statuses = naive_statuses(facts)
        inactive = {digest for digest, status in statuses.items() if status is None}
        inactive |= {each for each, status in statuses.items() if status is Status.WAITING and not records[each].is_own}
        anchors = [
            bdk.Anchor(
                confirmation_block_time=bdk.ConfirmationBlockTime(block_id=_block(each), confirmation_time=each.height),
                txid=bdk.Txid.from_bytes(digest),
            )
            for digest, record in records.items()
            if digest not in inactive  # a stale anchor makes an evicted transaction canonical there
            for each in sorted(record.anchors)
        ]
        blocks = [bdk.ChainChange(height=0, hash=self.genesis)]
        blocks += [bdk.ChainChange(height=each.height, hash=_block(each).hash) for each in sorted(facts.chain)]
        ranked = sorted(records.values(), key=_order)
        seen, last = dict[Any, int](), 0
        for number, record in enumerate(ranked, 1):
            if record.is_own or record.last_seen:
                is_equal = not record.is_own and number > 1 and _order(record) == _order(ranked[number - 2])
                last = last if is_equal else number
                seen[bdk.Txid.from_bytes(record.txid)] = last
        ledger = bdk.TxGraphChangeSet(
            txs=[bdk.Transaction(record.raw) for record in records.values()],
            txouts={},
            anchors=anchors,
            last_seen=seen,
            first_seen={},
            last_evicted={bdk.Txid.from_bytes(digest): 1_000 for digest in inactive},
        )
        changes = bdk.ChangeSet.from_aggregate(
            self.descriptor,
            None,
            bdk.Network.REGTEST,
            bdk.LocalChainChangeSet(changes=blocks),
            ledger,
            bdk.IndexerChangeSet(last_revealed={}),
        )

        class Aggregate(bdk.Persistence):  # type: ignore[misc]  # without types
            def initialize(self) -> Any:
                return changes

            def persist(self, changeset: Any) -> None:
                raise AssertionError("a wallet made from facts writes nothing")

        return bdk.Wallet.load_single(self.descriptor, bdk.Persister.custom(Aggregate()))


def _order(record: TxRecord) -> tuple[bool, bool, int]:
    """The rank of a transaction. BDK ranks by observation alone."""
    if record.is_own:
        return True, record.was_requested, record.broadcast_seq or 0
    return False, record.signatures is Signatures.VALID, record.last_seen


def _block(anchor: Anchor) -> Any:
    return bdk.BlockId(height=anchor.height, hash=bdk.BlockHash.from_bytes(anchor.block_hash))


@pytest.mark.slow
@pytest.mark.kyoto
@pytest.mark.parametrize("seed", range(effort(1, 2, 40)))
def test_bdk_finds_the_same_canonical_transactions(seed: int) -> None:
    """BDK gets the rank as `last_seen`, and inactive transactions as evicted. It checks no amounts and no coinbases."""
    judge, rng = Judge(), Random(seed)
    for _ in range(100):
        facts = random_facts(rng, script=judge.script, has_faults=False)
        verdicts = facts.verdicts()
        counted = {Status.CONFIRMED, Status.CANONICAL}
        ours = {digest: verdict.status for digest, verdict in verdicts.items() if verdict.status in counted}
        assert judge.statuses(facts) == ours
