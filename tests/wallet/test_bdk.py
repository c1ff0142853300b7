"""BDK as judge: its wallet, given the same chain and the same unconfirmed transactions, has the same balance, coins and
history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spvfilter._public import deferred
from spvfilter.hashes import sha256d
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import txid
from support.oracles.ledger import matches_of
from support.vectors import effort
from wallet import test_books
from wallet.test_books import Model

pytestmark = pytest.mark.kyoto
if TYPE_CHECKING:
    bdk: Any
else:
    bdk = deferred("bdkpython")

_WORDS = "abandon " * 11 + "about"
_OTHER_WORDS = "zoo " * 11 + "wrong"
_OWN = 1_000_000
"""Added to the rank of own transactions: they outrank foreign ones. BDK ranks by observation alone."""
_STEPS = [
    "announce",
    "announce",
    "announce",
    "repeat",
    "mine",
    "mine",
    "search",
    "search",
    "reorg",
    "broadcast",
    "broadcast",
    "again",
    "abandon",
    "crash",
]


def descriptor(words: str = _WORDS) -> Any:
    """A descriptor of one keychain: BDK then counts every unconfirmed output as untrusted."""
    secret = bdk.DescriptorSecretKey(bdk.NetworkKind.TEST, bdk.Mnemonic.from_string(words), None)
    return bdk.Descriptor.new_bip84(secret, bdk.KeychainKind.EXTERNAL, bdk.NetworkKind.TEST)


def scripts(words: str = _WORDS) -> list[bytes]:
    """The first scripts of the descriptor."""
    made = bdk.Wallet.create_single(descriptor(words), bdk.Network.REGTEST, bdk.Persister.new_in_memory())
    return [
        made.peek_address(bdk.KeychainKind.EXTERNAL, number).address.script_pubkey().to_bytes() for number in range(3)
    ]


class Judged(Model):
    """A model whose transactions BDK gets, in the order in which the books last saw them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        # once: from words it takes 2,048 rounds of SHA-512; by account, None for the wallet
        self.descriptors: dict[str | None, Any] = {None: descriptor()}

    def make(self) -> bytes:
        """A transaction that pays us: of others a BDK wallet keeps none."""
        while True:
            raw = super().make()
            if any(script in raw for script in test_books.OURS):
                return raw

    def graph(self) -> tuple[list[Any], list[Any], dict[Any, int]]:
        """Transactions, where the chain has them, and when each of the others was seen last."""
        raws: dict[bytes, bytes] = {}
        anchors = []
        for height, (header, txs) in enumerate(self.chain):
            block = bdk.BlockId(height=height, hash=bdk.BlockHash.from_bytes(sha256d(header)))
            for raw in txs:
                raws[txid(raw)] = raw
                time = bdk.ConfirmationBlockTime(block_id=block, confirmation_time=height)
                anchors.append(bdk.Anchor(confirmation_block_time=time, txid=bdk.Txid.from_bytes(txid(raw))))
        seen: dict[bytes, int] = {}
        records = {each.txid: each for each in self.books.facts.unconfirmed()}
        gone = {each.txid for each in records.values() if each.active_drop is not None or each.fault is not None}
        while more := {each.txid for each in records.values() if {point[:32] for point in each.inputs} & gone} - gone:
            gone |= more
        for each in records.values():
            if each.txid not in gone:  # BDK knows no dropped transactions and no disconnected coinbases
                raws[each.txid] = each.raw
                seen[each.txid] = each.last_seen if each.broadcast_seq is None else _OWN + each.broadcast_seq
        return (
            [bdk.Transaction(raw) for raw in raws.values()],
            anchors,
            {bdk.Txid.from_bytes(each): at for each, at in seen.items()},
        )

    def judge(self, own: Any) -> Any:
        """BDK's wallet of a descriptor, of the same facts."""
        changes = [
            bdk.ChainChange(height=at, hash=bdk.BlockHash.from_bytes(sha256d(raw)))
            for at, (raw, _) in enumerate(self.chain)
        ]
        txs, anchors, seen = self.graph()
        facts = bdk.ChangeSet.from_aggregate(
            own,
            None,
            bdk.Network.REGTEST,
            bdk.LocalChainChangeSet(changes=changes),
            bdk.TxGraphChangeSet(txs=txs, txouts={}, anchors=anchors, last_seen=seen, first_seen={}, last_evicted={}),
            bdk.IndexerChangeSet(last_revealed={}),
        )

        class Facts(bdk.Persistence):  # type: ignore[misc]  # without types
            def initialize(self) -> Any:
                return facts

            def persist(self, changeset: Any) -> None:
                raise AssertionError("nothing is to be written")

        return bdk.Wallet.load_single(own, bdk.Persister.custom(Facts()))

    def compare(self) -> None:
        """Compare balance, coins and history of the wallet, or of each account."""
        for account, own in self.descriptors.items():
            self.compare_account(account, self.judge(own))

    def compare_account(self, account: str | None, judge: Any) -> None:
        views = self.store.views
        ours, theirs = views.balance(account=account), judge.balance()
        coins = views.coins(account=account)
        young = [
            coin for coin in coins if coin.is_coinbase and len(self.chain) - (coin.height or 0) < COINBASE_MATURITY
        ]
        held = sum(coin.value for coin in young if coin.spent_by is not None)  # which BDK does not count
        assert theirs.immature.to_sat() == ours.immature - held
        assert theirs.confirmed.to_sat() == ours.confirmed + held - ours.pending_out
        assert theirs.trusted_pending.to_sat() + theirs.untrusted_pending.to_sat() == ours.pending_in
        assert theirs.total.to_sat() == ours.total
        unspent = {
            (each.outpoint.txid.serialize(), each.outpoint.vout): each.txout.value.to_sat()
            for each in judge.list_unspent()
        }
        assert {
            (coin.outpoint.txid, coin.outpoint.index): coin.value for coin in coins if coin.spent_by is None
        } == unspent
        mine = {each.hit.txid for each in matches_of(self.store, account)}
        found = views.history(account=account, limit=None)
        history = {entry.txid: entry for entry in found if entry.status.counts and entry.txid in mine}
        listed = {each.transaction.compute_txid().serialize(): each for each in judge.transactions()}
        assert history.keys() == listed.keys()
        for digest, entry in history.items():
            moved = judge.sent_and_received(listed[digest].transaction)
            assert entry.net == moved.received.to_sat() - moved.sent.to_sat()
            position = listed[digest].chain_position
            if entry.height is None:
                assert position.is_unconfirmed()
            else:
                assert position.confirmation_block_time.block_id.height == entry.height


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(3, 6, 150)))
def test_bdk_has_the_same_balance_coins_and_history(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_books, "OURS", scripts())
    model = Judged(seed)
    for _ in range(60):
        getattr(model, model.rng.choice(_STEPS))()
        while model.books.cursor < len(model.chain) - 1:
            model.search()
        model.compare()
    model.store.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(2, 4, 100)))
def test_bdk_has_the_same_books_of_each_account(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two accounts pay one another. BDK has a wallet for each of them."""
    words = {"alice": _WORDS, "bob": _OTHER_WORDS}
    owned = {name: scripts(each) for name, each in words.items()}
    monkeypatch.setattr(test_books, "OURS", [script for each in zip(*owned.values(), strict=True) for script in each])
    model = Judged(seed)
    model.descriptors = {name: descriptor(each) for name, each in words.items()}
    for name, mine in owned.items():
        more = WatchList(model.books.watch.network)
        with more.within_account(name):
            for script in mine:
                more.add_script(script)
        plan = model.books.watch.plan_account(more.index)
        model.books.store_account(plan)
        model.tell(())
        model.books.watch.take_account(plan)
    for _ in range(60):
        getattr(model, model.rng.choice(_STEPS))()
        while model.books.cursor < len(model.chain) - 1:
            model.search()
        model.compare()
    model.store.close()
