"""Random lives with accounts that pay one another: balance, history, events and a scan of the blocks agree."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from spvfilter.errors import ParameterError
from spvfilter.kernel import NO_VALUE
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, WalletEvent
from spvfilter.wallet.journal import Journal, decode
from spvfilter.wallet.refusals import check_broadcast
from spvfilter.watch.keychain import GAP_LIMIT, Budget, Keychain
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, coinbase, p2wpkh, tx, txid
from support.oracles.ledger import matches_of, recomputed
from support.vectors import effort, first_of
from support.wallets.walletbooks import THEIRS, Wallet, coin, out

Place = tuple[bool, bytes, int]


def script(owner: int, index: int) -> bytes:
    return p2wpkh(owner.to_bytes(10, "big") + index.to_bytes(10, "big"))


def place(match: Match) -> Place:
    return match.kind is MatchKind.INPUT, match.txid, match.index


class Life(Wallet):
    """A wallet whose accounts pay one another, and are added, renamed and removed."""

    def __init__(self, seed: int, accounts: int) -> None:
        self.rng = Random(seed)
        self.most = accounts
        self.owners = 0  # number of accounts that were ever added
        self.chains: dict[str, Keychain] = {}
        self.journal = Journal()
        self.since: dict[str, tuple[int, set[Place]]] = {}  # number of an event, and the matches at that time
        self.made: list[bytes] = []
        self.known: set[bytes] = set()  # txids of all transactions and coinbases that were ever made
        self.value = 1_000_000
        super().__init__(scripts=[script(0, index) for index in range(3)])
        for _ in range(min(accounts, 5)):
            self.add()

    # The wallet

    def watch_list(self) -> WatchList:
        watch = super().watch_list()
        # the database knows the account of each keychain
        watch.watch_keychains([chain.without_window() for chain in self.chains.values()], Budget(1_000_000))
        return watch

    def tell(self, events: Iterable[WalletEvent]) -> list[WalletEvent]:
        numbered = [each for event in events for each in self.journal.put(event, self.books.batch)]
        return super().tell(numbered)

    def emit(self, *events: WalletEvent) -> None:
        """Number events that belong into the present batch."""
        for event in events:
            for each in self.journal.put(event, self.books.batch):
                self.told.take(each)

    def scripts_of(self, account: str | None) -> list[bytes]:
        watch = self.books.watch
        found = [
            value
            for number, (kind, value, _) in enumerate(watch.entries())
            if kind == 0 and watch.account(number) == account
        ]
        return found[:8]

    # Accounts

    def add(self) -> None:
        """Add an account: addresses, a keychain, or addresses that are watched without an account."""
        names = self.books.watch.accounts
        if len(names) >= self.most:
            return
        self.owners += 1
        owner, name, chance = self.owners, f"account {self.owners}", self.rng.random()
        more = WatchList(self.books.watch.network)
        with more.within_account(name):
            if chance < 0.5:
                for index in range(self.rng.randint(1, 3)):
                    more.add_script(script(owner, index), self.rng.choice((None, f"label {index}")))
            elif chance < 0.9:
                self.chains[name] = chain = Keychain(name, lambda index: (script(owner, index),), lookahead=GAP_LIMIT)
                more.watch_keychains([chain.without_window()], Budget(1_000_000))
            if chance > 0.8:
                more.add_script(script(0, self.rng.randrange(3)))
            if not len(more):
                more.add_script(script(0, self.rng.randrange(3)))
        try:
            plan = self.books.watch.plan_account(more.index)
        except ParameterError:  # another account has the address
            self.chains.pop(name, None)
            return
        self.books.store_account(plan)
        self.books.searches.search_again(0)
        self.tell(())
        self.books.watch.take_account(plan)
        self.since[name] = (
            self.journal.sequence,
            {(bool(each.hit.spend), each.hit.txid, each.hit.n) for each in matches_of(self.store, name)},
        )
        self.books.entries_added()
        self.search_all()

    def rename(self) -> None:
        if names := self.books.watch.accounts:
            old = self.rng.choice(names)
            new = f"{old.split(' (')[0]} ({self.journal.sequence} {self.rng.randrange(10**6)})"
            self.books.entries.rename_account(old, new)
            self.tell(())
            self.since[new] = self.since.pop(old)

    def remove(self) -> None:
        if names := self.books.watch.accounts:
            name = self.rng.choice(names)
            for chain in self.books.watch.keychains:
                if chain.account == name:
                    del self.chains[chain.name]
            before = set(self.told.matches)
            self.books.remove_entries(Renumbering.of_account(self.books.watch, name), self.emit)
            self.tell(())
            del self.since[name]
            assert before >= set(self.told.matches)
            for index in range(3):  # the list that the program gives has no removed addresses
                if script(0, index) not in self.books.watch:
                    self.scripts.pop(script(0, index), None)
            if not self.scripts:
                self.scripts[script(0, 9)] = None
                self.restart()

    # Transactions

    def new(self) -> bytes:
        """A transaction that spends coins of any account, or foreign coins, and pays up to three accounts."""
        self.value -= 7
        places = [coin(self.rng.randint(1, 9)), *(bytes(each.outpoint) for each in self.store.views.coins(limit=12))]
        spends = self.rng.sample(places, min(len(places), self.rng.choice((1, 1, 2, 3))))
        accounts = [*self.books.watch.accounts, None]
        outputs = []
        for _ in range(self.rng.randint(1, 3)):
            mine = self.scripts_of(self.rng.choice(accounts))
            outputs.append(TxOut(self.value - self.rng.randrange(100), self.rng.choice(mine or [THEIRS])))
        raw = tx([TxIn(each[:32], int.from_bytes(each[32:], "little")) for each in spends], outputs)
        self.made.append(raw)
        self.known.add(txid(raw))
        return raw

    def send(self, raw: bytes) -> None:
        try:
            check_broadcast(self.books, Transaction.parse(raw))
        except ValueError:
            return
        self.broadcast(raw)

    def mine_some(self) -> None:
        there = {txid(raw) for block in self.blocks for raw in block}
        spent = {each for block in self.blocks for raw in block for each in Transaction.parse(raw).inputs}
        chosen = []
        for raw in self.made:
            inputs = set(Transaction.parse(raw).inputs)
            parents = {each[:32] for each in inputs} & self.known
            if self.rng.random() < 0.5 and txid(raw) not in there and not inputs & spent and parents <= there:
                chosen.append(raw)
                there.add(txid(raw))
                spent |= inputs
        mine = self.scripts_of(self.rng.choice([*self.books.watch.accounts, None]))
        is_ours = mine and self.rng.random() < 0.3
        reward = coinbase(len(self.chain), [TxOut(5, mine[0])], self.rng.randbytes(4)) if is_ours else None
        self.known |= {txid(reward)} if reward else set()
        self.mine(*chosen, reward=reward)

    def search_all(self) -> None:
        while self.books.cursor < len(self.chain) - 1:
            self.search(self.books.cursor + 1)
        while self.books.is_match_due:
            self.tell(self.books.match_some())

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.25:
            self.observe(self.new(), "a", "b")
        elif chance < 0.50:
            self.send(self.new())
        elif chance < 0.68:
            self.mine_some()
        elif chance < 0.74 and len(self.chain) > 3:
            self.reorganize(self.rng.choice((1, 1, 2)))
        elif chance < 0.86:
            self.add()
        elif chance < 0.90:
            self.rename()
        elif chance < 0.94:
            self.remove()
        else:
            self.restart()

    # Checks

    def check(self) -> None:
        views, watch = self.store.views, self.books.watch
        assert views.accounts() == watch.accounts
        totals = 0
        for account in watch.accounts:
            balance = views.balance(account=account)
            totals += balance.total
            live = [
                entry
                for entry in views.history(account=account, limit=None)
                if entry.status in (TxStatus.CONFIRMED, TxStatus.PENDING)
            ]
            assert sum(entry.net for entry in live) == balance.total
            assert balance.confirmed + balance.immature == self.scanned(account)
            self.check_events(account)
        owned = {bytes(each.outpoint) for name in watch.accounts for each in views.coins(account=name)}
        rest = [each for each in views.coins() if bytes(each.outpoint) not in owned]
        assert {each.account for each in rest} <= {None}
        unspent = sum(each.value for each in rest if each.spent_by is None)
        balance, _ = recomputed(self.store, None, views.history(limit=None))
        assert totals + unspent == views.balance().total == balance.total

    def scanned(self, account: str) -> int:
        """The value of unspent outputs in blocks that pay the account, by a scan of all blocks."""
        watch = self.books.watch
        coins: dict[bytes, int] = {}
        for block in self.blocks:
            for raw in block:
                parsed = Transaction.parse(raw)
                for outpoint in parsed.inputs:
                    coins.pop(outpoint, None)
                for index, output in enumerate(parsed.outputs):
                    entry = watch.table.match_script(output.script_pubkey)
                    if entry < len(watch) and watch.account(entry) == account:
                        coins[out(raw, index)] = output.value
        return sum(coins.values())

    def check_events(self, account: str) -> None:
        """The events of an account, applied to its first state, give its matches of today."""
        number, found = self.since[account]
        found = set(found)
        row = self.store.account_id(account)
        for stored in self.store.events.read(number, 1 << 30, row):
            event = decode(stored)
            if isinstance(event, (MatchFound, MatchWithdrawn)):
                assert event.match.account == account
                (found.add if isinstance(event, MatchFound) else found.remove)(place(event.match))
        today = matches_of(self.store, account)
        assert found == {(bool(each.hit.spend), each.hit.txid, each.hit.n) for each in today}
        assert all(each.hit.value != NO_VALUE for each in today)


@pytest.mark.few(1)
@pytest.mark.parametrize("accounts", first_of(3, 1, 2, 5, 50))
@pytest.mark.parametrize("seed", range(effort(1, 4, 100)))
def test_balance_history_events_and_scan_of_each_account_agree(seed: int, accounts: int) -> None:
    life = Life(seed, accounts)
    for _ in range(effort(40, 60, 150)):
        life.step()
        life.check()
    life.restart()
    life.check()
