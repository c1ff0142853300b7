"""The books of accounts, computed from raw transactions and the owners of scripts, and compared with the views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from simulation import oracle
from simulation.accountscripts import Account
from simulation.books import Books, Identity
from simulation.violation import Violation
from spvfilter.address import address_to_script
from spvfilter.errors import ParameterError
from spvfilter.network import REGTEST
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.store.ledger import TxStatus
from spvfilter.wallet.events import BlockConnected, BlockDisconnected, RunStarted
from spvfilter.wallet.journal import decode
from spvfilter.watch.match import Completeness
from support.wallets.storesqlite import sqlite_of

if TYPE_CHECKING:
    from simulation.accounts import Accounts
    from spvfilter.store.store import Store
    from spvfilter.store.views import Balance, Coin, HistoryEntry

_LIVE = (TxStatus.CONFIRMED, TxStatus.PENDING)
_PAGE = 30  # events that a reader takes at once


class _Output(NamedTuple):
    """An output of the wallet in its books."""

    owner: str | None
    """Name of its account."""
    value: int
    height: int | None
    is_coinbase: bool


@dataclass
class _Sums:
    """The sums of the matches of one account."""

    nets: dict[bytes, int] = field(default_factory=dict)
    """Net effect of each transaction in satoshi, by txid."""
    spent: dict[bytes, int] = field(default_factory=dict)
    """Number of inputs that spend coins of the account, by txid."""
    coins: dict[bytes, tuple[int, bool]] = field(default_factory=dict)
    """Value of each coin that no block spends, and whether a pending transaction spends it; by outpoint."""
    confirmed: int = 0
    immature: int = 0
    pending_in: int = 0
    pending_out: int = 0

    def add(self, outpoint: bytes, output: _Output, spender: tuple[bool, bool], tip: int) -> None:
        """Count an output. `spender` says whether a block, and whether a pending transaction spends it."""
        is_spent, is_pending = spender
        if is_spent:
            return
        self.coins[outpoint] = output.value, is_pending
        if output.height is None:
            self.pending_in += 0 if is_pending else output.value
        elif output.is_coinbase and tip + 1 - output.height < COINBASE_MATURITY:
            self.immature += output.value
        else:
            self.confirmed += output.value
        self.pending_out += output.value if output.height is not None and is_pending else 0

    def balance(self) -> tuple[int, int, int, int]:
        return self.confirmed, self.immature, self.pending_in, self.pending_out


def _sums(store: Store, raws: Mapping[bytes, oracle.Tx], name_of: Callable[[bytes], str | None]) -> dict[str, _Sums]:
    """The sums of each account, and of the wallet under the name "", from the matches of the database."""
    tip, found, outputs = store.tip, dict[str, _Sums](), dict[bytes, _Output]()
    spends: dict[bytes, tuple[bool, bool]] = {}
    matches = list(store.matches())
    for hit, _, height, *_ in matches:
        if not hit.spend:
            tx = raws[hit.txid]
            outpoint = hit.txid + hit.n.to_bytes(4, "little")
            is_coinbase = tx.spends == (_NO_OUTPOINT,)
            outputs[outpoint] = _Output(name_of(tx.pays[hit.n]), tx.values[hit.n], height, is_coinbase)

    def count(output: _Output, txid: bytes, value: int) -> None:
        for name in {"", output.owner or ""}:
            sums = found.setdefault(name, _Sums())
            sums.nets[txid] = sums.nets.get(txid, 0) + value
            sums.spent[txid] = sums.spent.get(txid, 0) + (value < 0)

    for hit, _, height, *_ in matches:
        outpoint = raws[hit.txid].spends[hit.n] if hit.spend else hit.txid + hit.n.to_bytes(4, "little")
        if outpoint not in outputs:
            raise Violation("true", f"a spend of an output that the wallet does not have: {hit}")
        if hit.spend:
            before = spends.get(outpoint, (False, False))
            spends[outpoint] = before[0] or height is not None, before[1] or height is None
        count(outputs[outpoint], hit.txid, outputs[outpoint].value * (-1 if hit.spend else 1))
    for outpoint, output in outputs.items():
        for name in {"", output.owner or ""}:
            found.setdefault(name, _Sums()).add(outpoint, output, spends.get(outpoint, (False, False)), tip)
    return found


def check_books(store: Store, accounts: Accounts, readers: AccountReaders) -> None:
    """True: the views of each account are what follows from the owner of each script. Raises Violation."""
    readers.keep(store)
    with store.views.moment():
        names = store.views.accounts()
        owned = {name: _owner(accounts, name) for name in names}
        owners = _check_owners(store, accounts, owned)
        history = store.views.history(limit=None)
        raws = {entry.txid: oracle.parse(entry.raw) for entry in history}
        for entry in store.transactions(-1).values():
            raws.setdefault(oracle.txid(entry.raw), oracle.parse(entry.raw))
        sums = _sums(store, raws, owners.get)
        balances = {name: store.views.balance(account=name) for name in names}
        for name in names:
            mine = sums.get(name, _Sums())
            _check_balance(name, balances[name], mine)
            _check_coins(name, store.views.coins(account=name), mine)
            _check_history(name, owned[name], store.views.history(account=name, limit=None), mine, raws)
            _check_keychains(store, name, owned[name], owners)
            readers.check(store, name, owned[name], {script for script, each in owners.items() if each == name})
        _check_whole(store, sums.get("", _Sums()), balances)


def _owner(accounts: Accounts, name: str) -> Account:
    found = next((each for each in accounts.all if name in each.names), None)
    if found is None:
        raise Violation("true", f"the database has an account {name!r}, which nobody has added")
    return found


def _check_owners(store: Store, accounts: Accounts, owned: Mapping[str, Account]) -> dict[bytes, str | None]:
    """True: each script of the database belongs to the account that has it. Returns the name of each account."""
    query = (
        "SELECT watch.value, accounts.name FROM watch LEFT JOIN accounts ON accounts.id = watch.account"
        " WHERE watch.kind = 0"
    )
    numbers = {account.number: name for name, account in owned.items()}
    if len(numbers) < len(owned):
        raise Violation("true", f"the database has an account under two names: {list(owned)}")
    found: dict[bytes, str | None] = {}
    for script, name in sqlite_of(store).execute(query):
        owner = accounts.owner(script)
        there = None if owner is None else numbers.get(owner.number)
        is_alone = accounts.has(script)
        if name != there and (name is not None or is_alone):
            raise Violation("true", f"the database has script {script.hex()} in account {name!r}, not {there!r}")
        found[script] = name
    return found


def _check_balance(name: str, balance: Balance, sums: _Sums) -> None:
    there = balance.confirmed, balance.immature, balance.pending_in, balance.pending_out
    if there != sums.balance():
        raise Violation("true", f"the balance of {name} is {balance}, its matches add up to {sums.balance()}")
    if balance.total != (net := sum(sums.nets.values())):
        raise Violation("true", f"the total of {name} is {balance.total}, the nets add up to {net}")


def _check_coins(name: str, coins: list[Coin], sums: _Sums) -> None:
    if foreign := [coin for coin in coins if coin.account != name]:
        raise Violation("true", f"the coins of {name} have one of {foreign[0].account!r}")
    there = {bytes(coin.outpoint): (coin.value, coin.spent_by is not None) for coin in coins}
    if there != sums.coins:
        raise Violation("true", f"the coins of {name} are {len(there)} and not the {len(sums.coins)} of its matches")


def _check_history(
    name: str, account: Account, history: list[HistoryEntry], sums: _Sums, raws: Mapping[bytes, oracle.Tx]
) -> None:
    live = {entry.txid: entry for entry in history if entry.status in _LIVE}
    if {txid: entry.net for txid, entry in live.items()} != sums.nets:
        every = live.keys() | sums.nets.keys()
        txid = min(each for each in every if each not in live or live[each].net != sums.nets.get(each))
        told = live[txid].net if txid in live else None
        raise Violation("true", f"{name} has the net {told} of {txid[::-1].hex()}, and not {sums.nets.get(txid)}")
    for txid, entry in live.items():
        tx, fee = raws[txid], None
        if sums.spent.get(txid) == len(tx.spends):
            fee = _spent_value(tx, raws) - sum(tx.values)
        if entry.fee != fee:
            raise Violation("true", f"{name} has the fee {entry.fee} of {txid[::-1].hex()}, and not {fee}")
        # a label of the user has no number of an account
        if foreign := [each for each in entry.labels if ":" in each and not each.startswith(f"{account.number}:")]:
            raise Violation("true", f"the history of {name} has the label {foreign[0]!r} of another account")


def _spent_value(tx: oracle.Tx, raws: Mapping[bytes, oracle.Tx]) -> int:
    return sum(raws[point[:32]].values[int.from_bytes(point[32:], "little")] for point in tx.spends)


def _check_keychains(store: Store, name: str, account: Account, owners: Mapping[bytes, str | None]) -> None:
    for each in store.views.keychains(account=name):
        if each.account != name:
            raise Violation("true", f"the keychains of {name} have one of {each.account!r}")
    try:
        script = address_to_script(store.views.next_address(account=name), REGTEST)
    except ParameterError:
        return  # a set of addresses, or all are used
    if account.index_of(script) is None or owners.get(script) != name:
        raise Violation("true", f"the next address of {name} is of {owners.get(script)!r}")


def _check_whole(store: Store, sums: _Sums, balances: Mapping[str, Balance]) -> None:
    """True: the accounts and the coins without an account are the wallet."""
    whole = store.views.balance()
    _check_balance("the wallet", whole, sums)
    rest = [coin for coin in store.views.coins() if coin.account is None]
    total = sum(coin.value for coin in rest if coin.spent_by is None)
    if whole.total != total + sum(each.total for each in balances.values()):
        raise Violation("true", f"the accounts add up to {sum(each.total for each in balances.values())} + {total}")
    trusted = sum(each.trusted_pending for each in balances.values())
    if not 0 <= trusted <= whole.trusted_pending:
        raise Violation("true", f"the accounts have {trusted} trusted, the wallet {whole.trusted_pending}")


@dataclass
class _Reader:
    """A program that follows one account, and believes its events."""

    books: Books = field(default_factory=Books)
    read: int = 0
    """Number of the last event that it has read."""


class AccountReaders:
    """A reader of each account by its row, from the first event on, or from a snapshot."""

    def __init__(self) -> None:
        self._readers: dict[int, _Reader] = {}

    def keep(self, store: Store) -> None:
        """Forget the readers of removed accounts. In another run, an account without events may leave its row's id."""
        rows = {store.account_id(name) for name in store.views.accounts()}
        self._readers = {row: reader for row, reader in self._readers.items() if row in rows}

    def check(self, store: Store, name: str, account: Account, scripts: set[bytes]) -> None:
        """True: the events of an account give the matches that the database has of its scripts. Raises Violation."""
        row = store.account_id(name)
        reader = self._readers.get(row)
        there = _matches_of(store, scripts)
        if reader is None:
            reader = self._readers[row] = _Reader()
            if account.spare or store.events.log.base != 0:  # no event tells that payments move into an account
                reader.read = store.events.log.last
                reader.books.matches = {mark: (*place, Completeness.UNPROVEN) for mark, place in there.items()}
                return
        last, own = reader.read, set(account.scripts())
        while page := store.events.read(last, _PAGE, row):
            for stored in page:
                event = decode(stored)
                last = event.sequence
                match = getattr(event, "match", None)
                if match is None and not isinstance(event, BlockConnected | BlockDisconnected | RunStarted):
                    raise Violation("true", f"the events of {name} have {event}")
                is_foreign = match is not None and match.script_pubkey not in own
                if match is not None and (match.account != name or is_foreign):
                    raise Violation("true", f"the events of {name} have one of {match.account!r}: {event}")
                reader.books.take(event)
        reader.read = last
        told = {mark: place[:2] for mark, place in reader.books.matches.items()}
        if told != there:
            wrong = min(mark for mark in told.keys() | there.keys() if told.get(mark) != there.get(mark))
            raise Violation(
                "true", f"the events of {name} give {told.get(wrong)} for {wrong}, the database {there.get(wrong)}"
            )


def _matches_of(store: Store, scripts: set[bytes]) -> dict[Identity, tuple[int | None, bytes | None]]:
    """Height and block of each match of some scripts in the database: outputs, and the inputs that spend these."""
    found: dict[Identity, tuple[int | None, bytes | None]] = {}
    matches = list(store.matches())
    outpoints = {
        each.hit.txid + each.hit.n.to_bytes(4, "little")
        for each in matches
        if not each.hit.spend and each.hit.script in scripts
    }
    for hit, block, height, *_ in matches:
        outpoint = hit.outpoint if hit.spend else hit.txid + hit.n.to_bytes(4, "little")
        if outpoint in outpoints:
            found["input" if hit.spend else "output", hit.txid, hit.n] = height, block
    return found


_NO_OUTPOINT = bytes(32) + b"\xff" * 4
