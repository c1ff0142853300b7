"""The user of a wallet with accounts: adds, renames and removes them, reveals addresses, and pays between them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from simulation import oracle
from simulation.accountbooks import AccountReaders, check_books
from simulation.accountscripts import (
    INDEXES,
    Account,
    Kind,
    address_of,
    branch_locks,
    draw_accounts,
    spare_lock,
)
from simulation.schedule import moment
from simulation.truth import START, Coin, Truth
from simulation.violation import Violation
from spvfilter.address import address_to_script
from spvfilter.errors import ParameterError, RefusedError
from spvfilter.light.engine.requests import (
    AddAccount,
    RemoveAccount,
    RenameAccount,
    Request,
    RevealAddress,
    SearchStart,
)
from spvfilter.light.events import Event
from spvfilter.network import REGTEST
from spvfilter.node.scripts import Lock
from spvfilter.primitives import OutPoint
from spvfilter.watch.keychain import GAP_LIMIT
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import STRANGER, build_tx
from support.wallets.storesqlite import sqlite_of

if TYPE_CHECKING:
    from simulation.host import Process
    from simulation.world import World

_SPARES = 3  # scripts that are watched without an account at first
_FARTHEST = 60  # index of a branch that may be paid
_MOST_REVEALED = INDEXES - 3 * GAP_LIMIT  # addresses of one branch
_FEE = 600  # satoshi
_LEAST = 1_000  # satoshi of an output


class Accounts:
    """The requests of this user, and the checks of the client's state after them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._spares = [spare_lock(number) for number in range(_SPARES)]
        self.all = draw_accounts(rng, self._spares)
        self._first = [each for each in self.all if rng.random() < 0.5]  # that the first run is given
        self._asked: dict[int, tuple[Account, int]] = {}  # requests by token, with the number of the account's changes
        self._names = 0
        self._owners = {script: each for each in self.all for script in each.scripts()}
        self._readers = AccountReaders()
        for each in self._first:
            each.name = each.planned = self._new_name(each)
        self._world: World | None = None

    def begin(self, truth: Truth) -> None:
        """The true chain may pay the scripts of all accounts."""
        for lock in self._spares:
            truth.learn(lock)
        locks = [lock for each in self.all for lock in (*each.locks(), *each.spare)]
        truth.learn_accounts({lock.script_pubkey: lock for lock in locks})

    def first_scripts(self) -> list[bytes]:
        """The scripts that the first run may watch."""
        return [script for each in self._first for script in each.scripts()]

    def enter(self, world: World) -> None:
        """The world is made."""
        self._world = world

    @property
    def _there(self) -> World:
        assert self._world is not None
        return self._world

    def owner(self, script: bytes) -> Account | None:
        """The account that may have a script, or None."""
        return self._owners.get(script)

    def has(self, script: bytes) -> bool:
        """Whether the script belongs to accounts alone."""
        owner = self._owners.get(script)
        return owner is not None and all(lock.script_pubkey != script for lock in owner.spare)

    # The watch list that each run is given

    def give(self, watch: WatchList, path: Path) -> None:
        """The user gives accounts to the client: at first some, later those of the database that need it."""
        if not path.exists():
            for each in self._first:
                watch.add_account(str(each.name), *each.sources(self._rng), lookahead=GAP_LIMIT)
            return
        for name in names_in(path):
            account = self._named(name)
            if account.kind is Kind.FUNCTION or self._rng.random() < 0.3:  # only the function can derive its scripts
                watch.add_account(name, *account.sources(self._rng), lookahead=GAP_LIMIT)

    def _named(self, name: str) -> Account:
        found = next((each for each in self.all if name in each.names), None)
        if found is None:
            raise Violation("true", f"the database has an account {name!r}, which nobody has added")
        return found

    def check_start(self, process: Process) -> None:
        """True: a restart watches every address that was revealed."""
        self._readers.keep(process.disk.store)
        self._check_revealed(process, "at the start")

    # The acts of the user

    def schedule(self, duration: float) -> None:
        """Schedule all acts of this user within a number of seconds."""
        rng, world = self._rng, self._there
        kinds = [
            *[self._transfer] * 6,
            *[self._receive] * 5,
            *[self._reveal] * 5,
            *[self._add] * 3,
            *[self._rename] * 2,
            *[self._remove] * 2,
            *[self._broadcast] * 2,
            *[self.audit] * 2,
            self._reveal_many,
            self._label,
        ]
        for _ in range(rng.randrange(20, 70)):
            kind = rng.choice(kinds)
            world.at(moment(rng, duration), f"accounts: {kind.__name__.strip('_').replace('_', ' ')}", kind)
        for _ in range(rng.randrange(4, 12)):
            world.at(moment(rng, duration), "accounts: a block", world.truth.mine)

    def farewell(self) -> None:
        """Faults have ended: a foreign wallet pays revealed addresses again, including the last ones."""
        truth = self._there.truth
        for each in self.all:
            locks = {lock.script_pubkey: lock for lock in each.locks()} if each.given else {}
            for script in list(each.given)[-2:]:
                truth.receive(locks[script])

    def _new_name(self, account: Account) -> str:
        self._names += 1
        name = f"account {account.number}.{self._names}"
        account.names.append(name)
        return name

    def _chosen(self, is_present: bool) -> Account | None:
        found = [each for each in self.all if (each.planned is not None) == is_present]
        return self._rng.choice(found) if found else None

    def _ask(self, account: Account, request: Request) -> None:
        account.requests += not isinstance(request, RevealAddress)
        world = self._there
        token = world.ask_for(request)
        self._asked[token] = account, account.requests

    def _add(self) -> None:
        """Add a missing account. Sometimes the wallet has the account already."""
        rng, world = self._rng, self._there
        account = self._chosen(rng.random() < 0.1)
        if account is None:
            return
        if account.planned is None:
            has_old = account.names and rng.random() < 0.5
            account.planned = rng.choice(account.names) if has_old else self._new_name(account)
        tip = world.truth.height
        height = rng.choice([None, None, 0, rng.randrange(1, 250), tip, 10_000])
        birthday = None
        if height is None and rng.random() < 0.5:
            birthday = int(START + world.timeline.now - rng.choice([0, 3_600, 86_400, 200 * 600]))
        request = AddAccount(
            WatchList.of_account(account.planned, [address_of(STRANGER)], REGTEST), SearchStart(height, birthday)
        )
        self._ask(account, request)

    def _rename(self) -> None:
        account = self._chosen(True)
        if account is not None and account.planned is not None:
            old, account.planned = account.planned, self._new_name(account)
            self._ask(account, RenameAccount(old, account.planned))

    def _remove(self) -> None:
        account = self._chosen(True)
        if account is not None and account.planned is not None:
            name, account.planned = account.planned, None
            gone = {lock.script_pubkey for lock in account.spare}
            world = self._there
            world.scripts = [script for script in world.scripts if script not in gone]
            self._ask(account, RemoveAccount(name))

    def _reveal(self) -> None:
        found = [
            each
            for each in self.all
            if each.kind is not Kind.ADDRESSES and each.planned is not None and len(each.given) < _MOST_REVEALED
        ]
        if found and self._there.process is not None:
            account = self._rng.choice(found)
            is_exclusive = account.is_exclusive and not account.has_lost and self._rng.random() < 0.9
            self._ask(account, RevealAddress(account.planned, is_exclusive))

    def _reveal_many(self) -> None:
        for _ in range(self._rng.choice([5, GAP_LIMIT, 30])):
            self._reveal()

    def _label(self) -> None:
        found = [each for each in self.all if each.kind is Kind.ADDRESSES and each.name is not None]
        if found:
            account = self._rng.choice(found)
            label = self._rng.choice([None, f"{account.number}: label"])
            self._there.relabel(self._rng.choice(account.locks()).script_pubkey, label)

    def _receive(self) -> None:
        """A foreign wallet pays an account, which the wallet may lack."""
        lock = self._rng.choice(self.all).payee(self._rng, _FARTHEST)
        if lock is not None:
            self._there.truth.receive(lock)

    def _transfer(self) -> None:
        """Accounts pay one another, by another program with the same keys."""
        if (raw := self._payment()) is not None:
            with suppress(RefusedError):
                self._there.truth.regtest.submit_tx(raw)

    def _broadcast(self) -> None:
        """Accounts pay one another, by this client."""
        if self._there.process is not None and (raw := self._payment()) is not None:
            self._there.broadcast(raw, is_private=self._rng.random() < 0.2)

    def _payment(self) -> bytes | None:
        """A transaction that spends coins of accounts, and pays accounts, the wallet and foreign scripts."""
        rng, truth = self._rng, self._there.truth
        owned = [coin for coin in truth.coins if coin.lock.script_pubkey in self._owners]
        coins = owned if owned and rng.random() < 0.8 else truth.coins
        if not coins:
            return None
        chosen = rng.sample(coins, min(len(coins), rng.choice([1, 1, 1, 2, 3])))
        payees = [self._payee() for _ in range(rng.choice([1, 2, 2, 3]))]
        value = (sum(coin.value for coin in chosen) - _FEE) // len(payees)
        if value < _LEAST:
            return None
        for coin in chosen:
            truth.coins.remove(coin)
        raw = build_tx([each.spend() for each in chosen], [each.pays(value) for each in payees])
        txid = oracle.txid(raw)
        truth.coins += (
            Coin(OutPoint(txid, index), value, lock) for index, lock in enumerate(payees) if lock is not STRANGER
        )
        return raw

    def _payee(self) -> Lock:
        chance = self._rng.random()
        lock = self._rng.choice(self.all).payee(self._rng, _FARTHEST) if chance < 0.75 else None
        return lock or (STRANGER if chance > 0.9 else self._rng.choice(self._there.truth.locks))

    # Requests and their answers

    def prepared(self, request: Request, process: Process) -> Request:
        """A request as the client makes it: an added account has its sources and its revealed indexes."""
        if not isinstance(request, AddAccount):
            return request
        (name,) = request.account.accounts
        account = self._named(name)
        more = WatchList.of_account(name, account.sources(self._rng), REGTEST, lookahead=GAP_LIMIT)
        for each in more.keychains:
            if revealed := process.disk.store.keychains.revealed_by(each.scripts(0)):
                each.reveal(revealed - 1)
        more.windows.grow()
        return request._replace(account=more)

    def answered(self, token: int, request: Request, value: object) -> None:
        """The client has done it, or has refused it because it was done before."""
        if token not in self._asked:
            return
        account, requests = self._asked[token]  # it may be asked again after a restore
        world = self._there
        match request:
            case AddAccount(more, start):
                (account.name,) = more.accounts
                world.wishes.watch(account.scripts(), self._first_height(start))
            case RenameAccount(_, new):
                account.name = new
            case RemoveAccount():
                account.name = None
                world.wishes.unwatch(account.scripts())
            case RevealAddress() if isinstance(value, ParameterError):
                is_same = account.requests == requests and account.name == account.planned == request.account
                if is_same:
                    raise Violation("alive", f"no address of {request.account} is revealed: {value!r}")
            case RevealAddress():
                self._revealed(account, str(value))
            case _:
                pass

    def _first_height(self, start: SearchStart) -> int | None:
        """The height from which an account must be searched at the latest; None for the start of the client."""
        if start.birthday is None:
            return start.from_height
        first = self._there.truth.height + 1
        for block in reversed(self._there.truth.regtest.chain.active):
            if int.from_bytes(block.raw[68:72], "little") < start.birthday:
                break
            first = block.height
        return first

    def _revealed(self, account: Account, address: str) -> None:
        """True: an address is of its account, is given once, is watched, and is in the database."""
        process, script = self._there.process, address_to_script(address, REGTEST)
        assert process is not None
        index = account.index_of(script)
        if index is None:
            raise Violation("true", f"the address {address} was revealed, and is not of account {account.number}")
        if script in account.given:
            raise Violation("true", f"index {index} of account {account.number} was revealed twice")
        account.given[script] = index
        firsts = (lock.script_pubkey for lock in branch_locks(account.kind, account.number, 0)[0])
        if process.disk.store.keychains.revealed_by(firsts) <= index:
            raise Violation("true", f"index {index} was revealed before the database had it")
        self._check_revealed(process, "after a reveal")

    def _check_revealed(self, process: Process, when: str) -> None:
        """True: every revealed address of an account of the wallet is watched, and is in the database."""
        present = set(process.watch.accounts)
        stored = {
            script for (script,) in sqlite_of(process.disk.store).execute("SELECT value FROM watch WHERE kind = 0")
        }
        for account in self.all:
            if account.name in present and account.name == account.planned:
                for script, index in account.given.items():
                    if script not in process.watch or script not in stored:
                        raise Violation(
                            "true", f"{when} index {index} of account {account.number}, revealed, is not watched"
                        )

    # Checks

    def told(self, event: Event) -> None:
        """True: an event names the account of its match."""
        match = getattr(event, "match", None)
        if match is None or match.script_pubkey is None:
            return
        owner = self._owners.get(match.script_pubkey)
        names = [] if owner is None else owner.names
        is_spare = owner is not None and not self.has(match.script_pubkey)
        if match.account not in names and not (match.account is None and (owner is None or is_spare)):
            raise Violation("true", f"an event of {names or 'no account'} names {match.account!r}: {match}")

    def audit(self) -> None:
        """The books of the database agree at any moment."""
        if self._there.process is not None:
            self.check_books(self._there.process)

    def check_books(self, process: Process) -> None:
        """True: balance, coins, history and events of each account in the database are those of its matches."""
        check_books(process.disk.store, self, self._readers)
        self._check_revealed(process, "in the database")

    def check_end(self, process: Process) -> None:
        """True: the wallet has the user's accounts, and each account has its coins of the chain."""
        store = process.disk.store
        self.check_books(process)
        wanted = {each.name for each in self.all if each.name is not None}
        if process.disk.waiting:
            return
        if set(store.views.accounts()) != wanted or set(process.watch.accounts) != wanted:
            raise Violation(
                "true", f"the accounts are {store.views.accounts()} and {process.watch.accounts}, not {wanted}"
            )
        if (synced := process.books.synced) is None or self._there.doubted(synced) or self._there.may_miss():
            return
        ranges = process.ranges_stored(script for script in self._owners if script in process.watch)
        there: dict[str, int] = {}
        for coin in self._there.truth.regtest.chain.coins.values():
            owner = self._owners.get(coin.script_pubkey)
            if owner is not None and owner.name is not None and coin.script_pubkey in ranges:
                there[owner.name] = there.get(owner.name, 0) + coin.value
        for account in self.all:
            watched = [ranges[script] for script in account.scripts() if script in ranges]
            if account.name is not None and all(each == ((0, store.tip),) for each in watched):
                balance = store.views.balance(account=account.name)
                if balance.confirmed + balance.immature != there.get(account.name, 0):
                    raise Violation(
                        "true", f"the chain has {there.get(account.name, 0)} for {account.name}, the views {balance}"
                    )

    # Copies of the database

    def copy(self) -> list[Account]:
        """The present knowledge of the user."""
        return [copy_of(each) for each in self.all]

    def return_to(self, before: Sequence[Account]) -> None:
        """Return to an earlier copy of the database. The client may give later addresses again."""
        for account, earlier in zip(self.all, before, strict=True):
            account.has_lost = account.has_lost or account.given != earlier.given
            account.name, account.given = earlier.name, dict(earlier.given)
            account.requests += 1
        self._readers = AccountReaders()


def copy_of(account: Account) -> Account:
    """An independent copy."""
    made = copy(account)
    made.given = dict(account.given)
    return made


def names_in(path: Path) -> list[str]:
    """The names of the accounts of a database."""
    with closing(sqlite3.connect(path)) as db:
        return [name for (name,) in db.execute("SELECT name FROM accounts ORDER BY id")]
