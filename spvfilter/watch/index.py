"""TxOutIndex: the entries of a watch list, with their labels, accounts, windows and known outpoints.

A WatchList is a program's interface to such an index. A wallet's books start with a copy of the program's index and
change it in two phases. A thread may compute a change, which takes effect only once it has been stored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import compress, islice, starmap

from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError
from spvfilter.kernel import NO_ENTRY, NO_VALUE, EntryKind, Hit, WatchedCoin, WatchTable
from spvfilter.network import Network
from spvfilter.primitives import OutPoint
from spvfilter.watch.accounts import AccountPlan, Accounts, normalized, same_elsewhere
from spvfilter.watch.arguments import checked_label
from spvfilter.watch.descriptor import keys, silent
from spvfilter.watch.descriptor.descriptor import (
    Descriptor,
    check_wildcard,
    is_descriptor,
    is_silent_text,
    parse_descriptor,
)
from spvfilter.watch.elements import bloom_elements, gcs_elements, refuse_silent
from spvfilter.watch.entrytexts import EntryLabels
from spvfilter.watch.keychain import GAP_LIMIT, Keychain
from spvfilter.watch.match import Completeness, Match, MatchKind
from spvfilter.watch.silentkeychain import Found
from spvfilter.watch.windows import STEP, Windows, is_silent

_INPUT, _OUTPUT = MatchKind.INPUT, MatchKind.OUTPUT
_NOWHERE = -1  # a position that no transaction has


def keychain_from(descriptor: Descriptor, label: str | None, lookahead: int) -> Keychain:
    """Return a keychain that derives the scripts of a descriptor. Raises ParameterError."""
    return Keychain(
        descriptor.text,
        descriptor.scripts,
        label=checked_label(label),
        lookahead=lookahead,
        size=descriptor.size,
        descriptor=descriptor.text,
        keys=descriptor.keys,
    )


class TxOutIndex:
    """The entries of a watch list, and the outpoints that pay them. An index parses no text, and no client locks it.

    Args:
        network: Network of the entries.
    """

    def __init__(self, network: Network) -> None:
        self.network: Network = network
        """Network of the entries."""
        self.table: WatchTable = WatchTable()
        """The kernel's table of the entries and outpoints."""
        self.own_labels: dict[int, str] | EntryLabels = {}
        """Labels of entries, by their numbers in the table. They do not include the labels of keychains."""
        self.windows: Windows = Windows(self.table)
        """The keychains and their windows."""
        self.owners: Accounts = Accounts()
        """The accounts, and the entries outside keychains that belong to them."""

    def __len__(self) -> int:
        """Return the number of entries in the list. Learned outpoints do not count."""
        return len(self.table)

    def __contains__(self, script_pubkey: bytes) -> bool:
        """Return True if an output with this scriptPubKey matches an entry of the list."""
        return self.table.match_script(script_pubkey) != NO_ENTRY

    def label(self, entry: int) -> str | None:
        """Return the label of an entry, or else of its keychain. See `WatchList.label`."""
        label = self.own_labels.get(entry)
        if label is None and (place := self.windows.at(entry)):
            label = place[0].label
        return label

    def labels_by_entry(self) -> list[str | None]:
        """Return the label of each entry, as `label` would."""
        found = self.windows.by_entry(lambda keychain: keychain.label)
        for entry, label in self.own_labels.items():
            found[entry] = label
        return found

    def accounts_by_entry(self) -> list[str | None]:
        """Return the account of each entry, as `account` would."""
        found = self.windows.by_entry(lambda keychain: keychain.account)
        for entry in self.windows.shared:
            found[entry] = self.account(entry)
        for entry, account in self.owners.entries.items():
            found[entry] = account
        return found

    def own_label(self, entry: int) -> str | None:
        """Return the label of an entry, ignoring that of its keychain. See `WatchList.own_label`."""
        return self.own_labels.get(entry)

    def keychain_of(self, entry: int) -> tuple[Keychain, int] | None:
        """Return the keychain and the index of the entry with this number, or None if the entry is in no keychain."""
        return self.windows.at(entry)

    @property
    def keychains(self) -> tuple[Keychain, ...]:
        """The keychains, in the order in which they were added."""
        return tuple(self.windows)

    def entries(self) -> Iterator[tuple[EntryKind, bytes, str | None]]:
        """Yield every entry as (kind, bytes, label), in the order in which they were added."""
        return ((kind, value, self.label(number)) for number, (kind, value) in enumerate(self.table.entries()))

    @property
    def accounts(self) -> tuple[str, ...]:
        """Names of the accounts, in the order in which they were added."""
        return tuple(self.owners.names)

    def has_account(self, name: str) -> bool:
        """Return True if the list has an account with this name."""
        return normalized(name) in self.owners.names

    def chosen_keychain(self, name: str | None) -> Keychain:
        """Return the keychain that `Windows.chosen` returns. Raises the same errors."""
        account = None if name is None else normalized(name)
        return self.windows.chosen(account if account in self.owners.names else name, self.owners.names.keys())

    def keychains_named(self, text: str) -> tuple[str, ...]:
        """Return the names of the keychains that a name, a descriptor or an extended public key refers to.

        The result is empty if the text is something else, such as an address.

        Raises:
            ParameterError: The list does not contain the descriptor's keychains.
            DescriptorError: The descriptor is malformed.
        """
        if self.windows.get(text) is not None:
            return (text,)
        if not (is_descriptor(text) or keys.is_extended_key(text)):
            return ()
        if is_silent_text(text):
            name = str(silent.parse_silent(text, self.network).address)
            if self.windows.get(name) is None:
                raise ParameterError(f"the silent payment address {name[:40]}… is not watched")
            return (name,)
        descriptors = parse_descriptor(text, self.network)
        check_wildcard(descriptors, require_ranged=False)
        made = [keychain_from(each, None, GAP_LIMIT) for each in descriptors]
        found = [self.windows.get(each.name) or self.same_keychain(each) for each in made]
        names = tuple(each.name for each in found if each is not None)
        if len(names) < len(found):
            raise ParameterError(f"the keychain {text[:80]!r} is not watched")
        return names

    def account(self, entry: int) -> str | None:
        """Return the account of the entry with this number in the table, or None if the entry belongs to no account."""
        return self.owners.entries.get(entry) or self.windows.account_at(entry)

    def account_of(self, entry: int, script: bytes | None) -> str | None:
        """Return the account of a match: the account of its script, or else of its entry.

        Args:
            entry: Number of the entry that matched.
            script: Script of the output, or None if it is unknown.
        """
        if not self.owners.names:
            return None
        owner = self.account(entry)
        if script and self.table.entry(entry)[0] == EntryKind.OUTPOINT:
            watched = self.table.find(EntryKind.SCRIPT, script)
            owner = owner if watched == NO_ENTRY else self.account(watched)
        return owner

    def entries_of_account(self, name: str) -> tuple[list[int], list[int]]:
        """Return the numbers of an account's entries, as two lists: entries to remove with it, and entries to keep.

        An entry is kept if another account contains it, or if a keychain outside the account also derives it. Both
        lists are in ascending order.

        Raises:
            UnknownAccountError: The list has no such account.
        """
        self.owners.check(name)
        alone, shared = self.windows.entries_of(name)
        mine = {entry for entry, account in self.owners.entries.items() if account == name}
        stay = {entry for entry in mine if (place := self.windows.at(entry)) and place[0].account != name}
        stay |= {entry for entry in shared if self.account(entry) == name}
        stay |= {entry for entry in alone if self.account(entry) != name}
        return sorted({*alone, *mine} - stay - set(shared)), sorted(stay)

    def matches(
        self,
        hits: Iterable[Hit],
        *,
        block_hash: bytes | None = None,
        height: int | None = None,
        time: int | None = None,
        completeness: Completeness | None = None,
        is_coinbase: bool | None = None,
    ) -> list[Match]:
        """Convert hits of a scan into matches. See `WatchList.matches`."""
        coinbase = 0 if (is_coinbase if is_coinbase is not None else block_hash is not None) else _NOWHERE
        network, label_of, parse = self.network, self.label, OutPoint.parse
        place_of, account_of = self.windows.place, self.account_of
        found_at = self.windows.found_at if self.windows.silent else None
        return [
            Match(
                _INPUT if spend else _OUTPUT,
                txid,
                index,
                parse(outpoint),
                None if value == NO_VALUE else value,
                script,
                script_to_address(script, network) if script else None,
                label_of(entry),
                block_hash,
                height,
                time,
                position == coinbase,
                completeness,
                *place_of(entry, script),
                None if fee == NO_VALUE else fee,
                account_of(entry, script),
                None if found_at is None or (found := found_at(entry, script)) is None else found.label,
            )
            for spend, position, txid, index, outpoint, value, script, entry, fee in hits
        ]

    def bloom_elements(self) -> list[bytes]:
        """Return the elements of a BIP-37 filter. See `WatchList.bloom_elements`."""
        refuse_silent([each.name for each in self.windows.silent])
        return bloom_elements(self.table)

    def gcs_elements(self, first: int = 0) -> list[bytes]:
        """Return the scriptPubKeys to look up in a BIP-158 filter. See `WatchList.gcs_elements`."""
        refuse_silent([each.name for each in self.windows.silent])
        return gcs_elements(self.table, first)

    def gcs_scripts(self, first: int = 0) -> list[bytes]:
        """Return the same scripts as `gcs_elements`, even if the list contains sp() descriptors."""
        return gcs_elements(self.table, first)

    def add_payment(self, name: str, script: bytes, found: Found) -> int | None:
        """Watch the script of a silent payment to a keychain, and return the number of its entry.

        Returns None if the keychain has already found the script, or if the list has no such keychain.
        """
        keychain = self.windows.get(name)
        if not is_silent(keychain):
            return None
        entry = self.windows.add_found(keychain, script, found)
        text = keychain.text_of(found.label)
        if entry is not None and text is not None and self.own_labels.get(entry) is None:
            self.own_labels[entry] = text
        return entry

    def note_label(self, entry: int, label: str | None) -> None:
        """Record the label and the account of a new entry."""
        if label := checked_label(label):
            self.own_labels[entry] = label
        if (account := self.owners.current) is not None and (known := self.account(entry)) != account:
            self.check_owner(known, account)
            self.owners.entries[entry] = account

    def relabel(self, number: int, label: str | None) -> None:
        """Replace the label of an entry. See `WatchList.relabel`."""
        self.table.entry(number)
        checked = checked_label(label)
        self.own_labels.pop(number, None)
        self.note_label(number, checked)

    def relabel_keychains(self, names: Sequence[str], label: str | None) -> list[int]:
        """Replace the label of keychains. Scripts with a label of their own keep it.

        Args:
            names: Names of the keychains.
            label: The new label, or None to remove the old one.

        Returns:
            The numbers of the entries in the keychains' windows whose label therefore changes.

        Raises:
            ParameterError: The label is invalid, or the list has no such keychain.
        """
        checked = checked_label(label)
        for name in names:
            if self.windows.get(name) is None:
                raise ParameterError(f"the watch list has no keychain {name[:80]!r}")
        entries = [entry for entry in self._derived(names) if self.own_label(entry) is None]
        before = [self.label(entry) for entry in entries]
        for name in names:
            chain = self.windows.get(name)
            assert chain is not None
            chain.label = checked
        return [entry for entry, old in zip(entries, before, strict=True) if self.label(entry) != old]

    def disown(self, entry: int) -> None:
        """Remove the label and the account of the entry with this number, but keep those of its keychain."""
        self.own_labels.pop(entry, None)
        self.owners.entries.pop(entry, None)

    def plan_account(self, more: TxOutIndex, *, extend: bool = True) -> AccountPlan:
        """Return the changes that add an account to this list, given a list that `of_account` made.

        Args:
            more: The list with the account.
            extend: False to refuse to add sources to an existing account.

        Raises:
            ParameterError: An entry belongs to another account, or the account exists with different sources.
        """
        (name,) = more.accounts
        adopted, fresh, same = list[str](), list[Keychain](), set[str]()
        for chain in more.keychains:
            known = self.windows.get(chain.name) or self.same_keychain(chain)
            if known is None:
                fresh.append(chain)
                continue
            self.check_owner(known.account, name)
            same.add(chain.name)
            if known.account is None:
                adopted.append(known.name)
        is_known = name in self.owners.names
        if is_known and (fresh or adopted) and any(each.account == name for each in self.keychains):
            raise ParameterError(
                f"account {name[:80]!r} has a different descriptor: choose another name, or remove the account first"
            )
        entries, claimed = list[tuple[EntryKind, bytes, str | None]](), list[int]()
        for number, (kind, value, label) in enumerate(more.entries()):
            place, there = more.keychain_of(number), self.table.find(kind, value)
            if place is not None and place[0].name in same:
                continue
            if there == NO_ENTRY:
                if place is None:
                    entries.append((kind, value, label))
                continue
            owner = self.account(there)
            self.check_owner(owner, name)
            if owner is None and ((mine := self.keychain_of(there)) is None or mine[0].name not in adopted):
                claimed.append(there)
        if is_known and not extend and (fresh or adopted or entries or claimed):
            raise ParameterError(
                f"there is already an account {name[:80]!r} with different sources: choose another name, or pass "
                "extend=True to add addresses to it"
            )
        keychains = [(chain.without_window(), more.windows.scripts_by_index(chain.name)) for chain in fresh]
        labels = tuple(self._missing_labels(more))
        return AccountPlan(name, tuple(keychains), tuple(entries), tuple(claimed), tuple(adopted), labels)

    def _missing_labels(self, more: TxOutIndex) -> Iterator[tuple[bytes, str]]:
        """Yield the scripts that have a label of their own in another list but not in this one, with that label."""
        for number, (kind, script, _) in enumerate(more.entries()):
            label = more.own_label(number)
            if label is not None and kind == EntryKind.SCRIPT and self.own_label(self.table.find(kind, script)) is None:
                yield script, label

    def same_keychain(self, chain: Keychain) -> Keychain | None:
        """Return the keychain in this list that derives the same scripts under another name, or None."""
        if is_silent(chain):
            return None
        scripts = chain.scripts(0)
        found = same_elsewhere([self.windows.at(self.table.find(EntryKind.SCRIPT, script)) for script in scripts])
        return None if found is None or found.size != chain.size else found

    def adopted_entries(self, plan: AccountPlan) -> list[int]:
        """Return the numbers of the entries that a plan moves from no account into its account."""
        entries = dict.fromkeys((*plan.claimed, *self._derived(plan.adopted)))
        return [entry for entry in entries if self.account(entry) is None]

    def _derived(self, keychains: Sequence[str]) -> list[int]:
        """Return the numbers of the entries in the windows of keychains."""
        places = self.windows.entries_beyond(dict.fromkeys(keychains, 0)) if keychains else {}
        return [entry for chain in places.values() for _, entry in chain]

    def take_account(self, plan: AccountPlan) -> bool:
        """Watch the account that `plan_account` planned, even while a client is using the list.

        The new keychains get the windows in the plan. Returns True if a window must move now.
        """
        name, accounts = plan.name, self.owners
        accounts.names.setdefault(name)
        owned = {entry: self.account(entry) for entry in self._derived(plan.adopted)}
        accounts.entries.update((entry, owner) for entry, owner in owned.items() if owner not in (None, name))
        for adopted in plan.adopted:
            if (known := self.windows.get(adopted)) is not None:
                self.windows.assign(known, name)
        add, kind = self.table.add, EntryKind.SCRIPT
        for keychain, window in plan.keychains:
            self.windows.restore(keychain, [tuple(add(kind, script) for script in each) for each in window], ())
        for kind, value, label in plan.entries:
            number = self.table.add(kind, value)
            accounts.entries[number] = name
            if label is not None:
                self.own_labels[number] = label
        accounts.entries.update((number, name) for number in plan.claimed if self.account(number) != name)
        for script, text in plan.labels:
            self.own_labels.setdefault(self.table.find(EntryKind.SCRIPT, script), text)
        return bool(plan.keychains) and (self.windows.note() or self.windows.is_due)

    def check_owner(self, owner: str | None, account: str) -> None:
        if owner is not None and owner != account:
            raise ParameterError(
                f"this source belongs to account {owner[:80]!r}, so it cannot also belong to {account[:80]!r}: use "
                "the account that it belongs to, or remove that account first"
            )

    def rename_account(self, old: str, new: str) -> None:
        """Rename an account. Raises the same errors as `WatchList.rename_account`."""
        old, new = normalized(old), normalized(new)
        self.owners.rename(old, new)
        self.windows.rename_account(old, new)

    def without_account(self, name: str) -> TxOutIndex:
        """Return a copy of the list, for `replace_with`, that leaves out an account with its keychains and entries.

        Raises:
            UnknownAccountError: The list has no such account.
        """
        return self.without_entries(self.entries_of_account(name)[0], name)

    def without_entries(self, numbers: Collection[int], account: str | None = None) -> TxOutIndex:
        """Return a copy of the list, for `replace_with`, that leaves out some entries.

        Outpoints that only these entries matched are also left out. The copy shares the keychains of this list. Do not
        leave out their scripts: a keychain assumes that all scripts in its window are watched.

        Args:
            numbers: Numbers, in the table, of the entries to leave out.
            account: Account to leave out with its keychains. If given, `numbers` must include its entries.
        """
        left = self.without_coins(numbers, account)
        left.take_coins(self, numbers)
        return left

    def without_coins(self, numbers: Collection[int], account: str | None = None) -> TxOutIndex:
        """Do the same as `without_entries`, but leave out all outpoints. `take_coins` adds them later.

        Another thread may call this while no entry, label or window changes.
        """
        steps = self.without_coins_in_steps(numbers, account)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                left: TxOutIndex = end.value
                return left

    def without_coins_in_steps(
        self, numbers: Collection[int], account: str | None = None
    ) -> Generator[None, None, TxOutIndex]:
        """Do the work of `without_coins` in steps of about two milliseconds, between which no entry may come or go."""
        left, gone, removed = TxOutIndex(self.network), sorted(numbers), frozenset(numbers)
        kept = bytearray(b"\1") * len(self.table)
        for number in gone:
            kept[number] = 0
        entries = compress(self.table.entries(), kept)
        while batch := tuple(islice(entries, STEP)):  # other threads run between the steps
            deque(starmap(left.table.add, batch), maxlen=0)
            yield
        left.own_labels = {
            number - bisect_left(gone, number): label
            for number, label in self.own_labels.items()
            if number not in removed
        }
        left.windows = self.windows.without(left.table, gone, account)
        left.owners = self.owners.without(gone, account)
        return left

    def take_coins(self, before: TxOutIndex, numbers: Collection[int]) -> list[bytes]:
        """Take over the outpoints of `before`. This list was made from it by `without_coins`, leaving out `numbers`.

        Returns the scripts of outpoints that only these entries matched.
        """
        gone, removed = sorted(numbers), frozenset(numbers)
        lost = (self.take_coin(outpoint, coin, gone, removed) for outpoint, coin in before.table.coins())
        return [script for script in lost if script is not None]

    def take_coin(
        self, outpoint: bytes, coin: WatchedCoin, gone: Sequence[int], removed: Collection[int]
    ) -> bytes | None:
        """Take over one outpoint of the list from which `without_coins` made this list.

        Args:
            outpoint: The outpoint.
            coin: The facts about the outpoint.
            gone: Numbers of the removed entries, in ascending order.
            removed: The same numbers as a set.

        Returns:
            The script of the outpoint if only removed entries matched it, else None.
        """
        entry = NO_ENTRY
        if coin.entry not in removed:
            entry = coin.entry - bisect_left(gone, coin.entry)
        elif coin.script is not None:
            entry = self.table.match_script(coin.script)
        if entry == NO_ENTRY:
            return coin.script
        self.table.set_coin(outpoint, entry, coin.value, coin.script)
        return None

    def replace_with(self, other: TxOutIndex) -> None:
        """Replace the entries, labels and outpoints of this list with those of `other`.

        `other` is a list that `without_entries` returned. Do not use it afterwards. The keychains of this list remain
        the same objects.
        """
        self.table, self.own_labels, self.owners = other.table, other.own_labels, other.owners
        self.windows.become(other.windows)

    def take_uses(self, other: TxOutIndex) -> Iterator[None]:
        """Take over the used indexes and longer windows of the keychains in `other`, a copy of this list, in steps.

        The generator yields between steps of about two milliseconds. It derives no scripts. A script in several
        keychains gets the account that it has in `other`.
        """
        yield from self.windows.take_uses(other.windows)
        for keychain in self.windows.silent:
            for script in keychain.found:
                entry, there = (each.table.find(EntryKind.SCRIPT, script) for each in (self, other))
                label = None if NO_ENTRY in (entry, there) else other.own_label(there)
                if label is not None and self.own_labels.get(entry) is None:
                    self.own_labels[entry] = label
            yield
        for entry in self.windows.shared:
            there = other.table.find(*self.table.entry(entry))
            account = None if there == NO_ENTRY else other.account(there)
            if account in self.owners.names and account not in (None, self.account(entry)):
                self.owners.entries[entry] = account

    def copy(self) -> TxOutIndex:
        """Return an independent index with the same entries, labels, outpoints and keychains."""
        twin = TxOutIndex(self.network)
        twin.table = self.table.copy()
        twin.own_labels = self.own_labels.copy()
        twin.windows = self.windows.copy(twin.table)
        twin.owners = self.owners.copy()
        return twin
