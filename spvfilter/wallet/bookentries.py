"""Entries of the watch list and their accounts, as the books store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spvfilter.kernel import NO_ENTRY, EntryKind
from spvfilter.store.batch import AccountChange, NewEntry
from spvfilter.store.keychains import KeychainChange, NewKeychain
from spvfilter.wallet.changes import Changes
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.searches import Searches
from spvfilter.watch.accounts import AccountPlan
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.silentkeychain import Found
from spvfilter.watch.windows import is_silent


class Entries:
    """Row ids of the watch list's entries. This class also writes changes to entries and accounts."""

    def __init__(self, watch: TxOutIndex, changes: Changes, searches: Searches, ids: Sequence[int]) -> None:
        self.ids: list[int] = list(ids)
        """Row ids of the entries in the database, indexed by the entry's number."""
        self._watch = watch
        self._changes = changes
        self._searches = searches

    def store(
        self,
        entries: Sequence[tuple[EntryKind, bytes, str | None]],
        accounts: Mapping[bytes, str | None] | None = None,
        like: int | None = None,
    ) -> range:
        """Store new entries, and return their row ids. Add them to the watch list only once they have been stored.

        Args:
            entries: The entries, each with its label.
            accounts: Accounts of the entries, keyed by the entry's script.
            like: Row id of another entry. Blocks that were searched for that entry also count for the new ones.
        """
        first = self._searches.add_entries(len(entries), like)
        owners = accounts or {}
        self._changes.add_entries(NewEntry(row, *each, owners.get(each[1])) for row, each in enumerate(entries, first))
        self.ids += (ids := range(first, first + len(entries)))
        return ids

    def store_payment(self, name: str, script: bytes, found: Found) -> bytes | None:
        """Store a silent payment to a keychain, and watch its script. Returns the script if it is new to the keychain.

        Blocks that were searched for the keychain also count for the script.
        """
        windows, keychain = self._watch.windows, self._watch.windows.get(name)
        if not is_silent(keychain):
            return None
        known = keychain.found.get(script)
        number = self._find(script)
        if known is not None:
            if not known.tweak and found.tweak:
                keychain.found[script] = found
                self._changes.put_output(self.ids[number], found)
            return None
        if number == NO_ENTRY:
            label, owner = keychain.text_of(found.label) or keychain.label, {script: keychain.account}
            (row,) = self.store([(EntryKind.SCRIPT, script, label)], owner, self.ids[self._find(keychain.anchor)])
        else:
            row = self.ids[number]
            if keychain.account is not None and self._watch.account(number) is None:
                self._changes.change_account(AccountChange(keychain.account, claimed=[number]))
        self._watch.add_payment(name, script, found)
        self._changes.put_output(row, found)
        self._changes.move_window(KeychainChange(name, window=keychain.end, places=[(1, row)]))
        if number == NO_ENTRY:  # stored with its label; a label that was imported for it earlier keeps waiting
            number = self._find(script)
        else:
            self._changes.relabel({number: self._watch.label(number)})
        assert windows.at(number) is not None
        assert self.ids[number] == row
        return script

    def store_account(self, plan: AccountPlan) -> tuple[dict[int, str | None], list[int]]:
        """Store an account. Returns the new labels of known entries, and the known entries that the account claims."""
        scripts, own = plan.scripts(), dict(plan.labels)
        there = {script: self._find(script) for script in scripts | own}
        fresh = [script for script in scripts if there[script] == NO_ENTRY]
        entries = [*((EntryKind.SCRIPT, script, scripts[script]) for script in fresh), *plan.entries]
        labels = {
            number: own.get(script) or (scripts[script] if self._watch.keychain_of(number) is None else None)
            for script, number in there.items()
            if number != NO_ENTRY and self._watch.own_label(number) is None
        }
        labels = {number: label for number, label in labels.items() if label is not None}
        self._changes.relabel(labels)
        ids = self.store(entries, {value: plan.name for _, value, _ in entries})
        rows = dict(zip(fresh, ids, strict=False))
        for keychain, window in plan.keychains:
            places = [
                (index, rows.get(script) or self.ids[self._find(script)])
                for index, scripts in enumerate(window)
                for script in scripts
            ]
            self._changes.move_window(KeychainChange(keychain.name, window=len(window), places=places))
        new = [NewKeychain(each.name, each.label, each.descriptor, each.lookahead, each.size) for each in plan.chains]
        claimed = list(self._watch.adopted_entries(plan))
        self._changes.change_account(AccountChange(plan.name, None, new, plan.adopted, claimed))
        for keychain in filter(is_silent, plan.chains):
            self._changes.put_silent(keychain)
        return labels, claimed

    def rename_account(self, old: str, new: str) -> None:
        """Rename an account. Raises UnknownAccountError and ParameterError."""
        self._changes.seal()
        self._watch.rename_account(old, new)
        self._changes.change_account(AccountChange(old, new))
        self._changes.seal()

    def remove(self, change: Renumbering) -> None:
        """Remove entries from the database, together with their account if `change` names one.

        The watch list still contains the entries afterwards.
        """
        if change.name is not None:
            owners = [(number, change.account(number)) for number in change.stay]
            self._changes.change_account(AccountChange(change.name, is_removed=True, left=owners))
            labels = {number: change.label(number) for number in change.stay}
            self._changes.relabel(
                {number: label for number, label in labels.items() if label != self._watch.label(number)}
            )
        self._changes.remove_entries(change.removed)
        self.ids = change.ids(self.ids)
        self._searches.keep_entries(self.ids)

    def _find(self, script: bytes) -> int:
        return self._watch.table.find(EntryKind.SCRIPT, script)
