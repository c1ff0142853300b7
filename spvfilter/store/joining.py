"""Merge the keychains of a watch list and a database: each gets the keychains that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any  # rows are as SQLite gives them

from spvfilter.errors import DescriptorError, KeychainError, KeychainMismatchError, ParameterError, StoreCorruptError
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.silent import curve
from spvfilter.store.keychains import KeychainChange, KeychainRows, NewKeychain, SilentKeys, StoredKeychain
from spvfilter.store.searched import Searched
from spvfilter.watch import silentkeychain
from spvfilter.watch.descriptor import silent
from spvfilter.watch.descriptor.descriptor import LazyDescriptor, parse_descriptor, warn_of_problems
from spvfilter.watch.keychain import Keychain, origins_in
from spvfilter.watch.watchlist import WatchList
from spvfilter.watch.windows import is_silent


def take_keychains(
    watch: WatchList, stored: Sequence[StoredKeychain], numbers: Mapping[int, int], accounts: Mapping[int, str]
) -> None:
    """Give a watch list the windows and used indexes of stored keychains.

    Keychains that the watch list lacks are added. If they have a descriptor, they can derive more scripts; otherwise
    their windows stay as they are.

    Args:
        watch: The watch list.
        stored: Keychains in the database.
        numbers: Numbers of the watch list's entries, keyed by row id.
        accounts: Names of the accounts, keyed by row id.

    Raises:
        KeychainMismatchError: A keychain has a different descriptor or different scripts.
        ParameterError: A keychain has a different account, or an sp() keychain would have too many labels.
        KeychainError: Scripts cannot be derived.
    """
    for each in stored:
        known = watch.windows.get(each.name)
        if is_silent(known):  # its name is the address, however the descriptor is spelled
            _take_silent(known, each, watch.network)
            known.check_labels()
        elif known is not None and known.descriptor != each.descriptor:
            raise KeychainMismatchError(
                f"keychain {each.name[:80]!r} {_made(each.descriptor)} in the database, but {_made(known.descriptor)}"
                " in the watch list: use a different name, or a different database"
            )
        if each.silent is not None:
            _check_anchor(watch, each, numbers)
        window, account = _window(each, numbers), None if each.account is None else accounts[each.account]
        if known is None:
            watch.windows.restore(_without_owner(each, watch.network, account), window, each.used)
        else:
            check_account(account, known.account, "keychain")
            watch.windows.assign(known, known.account or account)
            if not is_silent(known):
                _check_scripts(watch, known, window)
            known.label = known.label or each.label
            watch.windows.restore(known, window, each.used)


def take_spellings(
    watch: WatchList, stored: Sequence[StoredKeychain], entries: Iterable[Sequence[Any]]
) -> dict[str, str]:
    """Rename keychains with a descriptor after the stored keychains that derive the same scripts.

    A descriptor can be spelled in several ways. The spelling that was first stored in the database names the keychain,
    unless the watch list's spelling includes more key origins.

    Args:
        watch: The watch list.
        stored: Keychains in the database.
        entries: Rows of entries: id, kind, value and more.

    Returns:
        The watch list's better spellings, keyed by the names of the stored keychains.
    """
    better: dict[str, str] = {}
    names = {each.name for each in stored}
    chains = (
        each
        for each in watch.keychains
        if not is_silent(each) and (each.account is not None or each.descriptor is not None) and not each.is_dormant
    )
    unknown = [each for each in chains if each.name not in names]
    if not unknown or not stored:
        return better
    scripts = {row: value for row, _, value, *_ in entries}
    firsts: dict[tuple[int, frozenset[bytes]], StoredKeychain] = {}
    for each in stored:
        rows = [row for run in each.runs if run.first == 0 for row in range(run.entry, run.entry + run.scripts)]
        firsts.setdefault((each.size, frozenset(scripts[row] for row in rows)), each)
    for chain in unknown:
        same = firsts.get((chain.size, frozenset(chain.scripts(0))))
        if same is None or watch.windows.get(same.name) is not None:
            continue
        if chain.descriptor and same.descriptor and origins_in(chain.descriptor) > origins_in(same.descriptor):
            better[same.name] = chain.name
        else:
            watch.windows.rename(chain.name, same.name, same.descriptor)
    return better


def check_descriptors(watch: WatchList, stored: Sequence[StoredKeychain], accounts: Mapping[int, str]) -> None:
    """Raise ParameterError if an account of the watch list has a different descriptor in the database."""
    known: dict[str, set[str]] = {}
    for each in stored:
        if each.account is not None:
            known.setdefault(accounts[each.account], set()).add(each.name)
    for chain in watch.keychains:
        if chain.account in known and chain.name not in known[chain.account]:
            raise ParameterError(
                f"account {chain.account[:80]!r} has a different descriptor in the database than in the watch list:"
                " use a different name"
            )


def start_of(stored: StoredKeychain, searched: Searched) -> int:
    """Return the lowest block to search for all scripts of a stored keychain.

    This is the start of the wallet, or a lower block that was searched for the keychain, whose account may be older.
    """
    ranges = searched.ranges_of(stored.runs[0].entry) if stored.runs else ()
    return min([searched.start or 0, *(each.first for each in ranges)])


def check_account(stored: str | None, given: str | None, what: str) -> None:
    """Raise ParameterError unless the watch list and the database name the same account."""
    if stored is not None and given not in (None, stored):
        raise ParameterError(
            f"a {what} belongs to account {stored[:80]!r} in the database, but to account {str(given)[:80]!r} in the"
            " watch list. Use the same name in both, or remove the account from the database first"
        )


def add_keychains(
    watch: WatchList, stored: Sequence[StoredKeychain], numbers: Mapping[int, int], accounts: Mapping[int, str]
) -> None:
    """Like `take_keychains`, but for a watch list without keychains. Unknown accounts are ignored."""
    for each in stored:
        made = _without_owner(each, watch.network, accounts.get(each.account or 0))
        watch.windows.restore(made, _window(each, numbers), each.used)


def _window(stored: StoredKeychain, numbers: Mapping[int, int]) -> list[tuple[int, ...]]:
    """Return, for each index of a stored window, the numbers of its entries."""
    return [tuple(map(numbers.__getitem__, rows)) for rows in stored.rows()]


def inherited(stored: Sequence[StoredKeychain]) -> tuple[dict[int, str], dict[int, int]]:
    """Return the labels, and the accounts, that entries inherit from their keychains, both keyed by row id."""
    labels: dict[int, str] = {}
    accounts: dict[int, int] = {}
    for each in reversed(stored):  # the first keychain of an entry counts
        for run in each.runs:
            rows = range(run.entry, run.entry + run.indexes * run.scripts)
            if each.label is not None:
                labels.update(dict.fromkeys(rows, each.label))
            if each.account is not None:
                accounts.update(dict.fromkeys(rows, each.account))
    return labels, accounts


def keep_keychains(
    rows: KeychainRows,
    watch: WatchList,
    stored: Sequence[StoredKeychain],
    ids: Sequence[int],
    accounts: Mapping[str, int],
) -> None:
    """Store the keychains of a watch list, their used indexes, and the new parts of their windows.

    Args:
        rows: The tables of keychains.
        watch: The watch list.
        stored: Keychains in the database.
        ids: Row ids of the watch list's entries, indexed by entry number.
        accounts: Ids of the accounts, keyed by name.
    """
    known = {each.name: each for each in stored}
    windows = {each.name: 0 if (there := known.get(each.name)) is None else there.window for each in watch.keychains}
    longer = {
        each.name: windows[each.name]
        for each in watch.keychains
        if each.end > windows[each.name] and not is_silent(each)
    }
    gained = watch.windows.entries_beyond(longer) if longer else {}
    for each in watch.keychains:
        there = known.get(each.name)
        if is_silent(each):
            _keep_silent(rows, watch, each, there, ids, accounts)
            continue
        new = NewKeychain(each.name, each.label, each.descriptor, each.lookahead, each.size)
        account = None if each.account is None else accounts[each.account]
        if there is None or (*new, account) != (*there[1:6], there.account):
            rows.put(new, account)
        if (
            there is None
            or each.name in longer
            or each.revealed > there.revealed
            or not there.used.issuperset(each.used)
        ):
            places = [(index, ids[entry]) for index, entry in gained.get(each.name, ())]
            rows.change(KeychainChange(each.name, sorted(each.used), each.end, places, each.revealed or None))
    watch.windows.take_fresh()


def take_outputs(
    watch: WatchList,
    stored: Sequence[StoredKeychain],
    numbers: Mapping[int, int],
    outputs: Mapping[int, tuple[int | None, bytes]],
) -> None:
    """Give the sp() keychains the payments that are in the database.

    Args:
        watch: The watch list that contains the keychains.
        stored: Keychains in the database.
        numbers: Numbers of the watch list's entries, keyed by row id.
        outputs: Label and tweak of each payment, keyed by the row id of its script.
    """
    for each in stored:
        if is_silent(keychain := watch.windows.get(each.name)):
            rows = [row for run in each.runs for index, row in run.places() if index]
            found = {
                numbers[row]: silentkeychain.Found(*outputs.get(row, (None, b""))) for row in rows if row in numbers
            }
            watch.windows.restore_found(keychain, found)


def wider(watch: WatchList, stored: Sequence[StoredKeychain]) -> list[StoredKeychain]:
    """Return the sp() keychains with labels that are new in the watch list, so no block has been searched for them.

    Labels that were only revealed need no search, because nobody knew their addresses before.
    """
    found: list[StoredKeychain] = []
    for each in stored:
        if is_silent(keychain := watch.windows.get(each.name)) and each.silent is not None:
            below = max(each.silent.depth + 1, each.revealed)
            declared = (number for number in keychain.labels if number >= below)
            if keychain.depth >= below or not each.silent.labels.keys() >= set(declared):
                found.append(each)
    return found


def _take_silent(keychain: silentkeychain.SilentKeychain, stored: StoredKeychain, network: Network) -> None:
    """Give an sp() keychain the labels of a stored one, and the stored descriptor if it includes more key origins."""
    assert stored.silent is not None
    if origins_in(stored.descriptor) > origins_in(keychain.descriptor):
        keychain.silent = _parsed(stored.silent, network)
        keychain.descriptor = keychain.silent.text
    for number, text in stored.silent.labels.items():
        keychain.labels[number] = keychain.labels.get(number) or text
    keychain.depth = max(keychain.depth, stored.silent.depth)
    if stored.revealed:
        keychain.reveal(stored.revealed - 1)


def _keep_silent(
    rows: KeychainRows,
    watch: WatchList,
    keychain: silentkeychain.SilentKeychain,
    stored: StoredKeychain | None,
    ids: Sequence[int],
    accounts: Mapping[str, int],
) -> None:
    """Write an sp() keychain with its labels and its payments. The arguments are those of `keep_keychains`."""
    account = None if keychain.account is None else accounts[keychain.account]
    new = NewKeychain(keychain.name, keychain.label, keychain.descriptor, keychain.lookahead, keychain.size)
    rows.put(new, account)
    keys = SilentKeys(keychain.silent.secret, keychain.labels, keychain.depth)
    if stored is None or stored.silent != keys:
        rows.put_silent(keychain.name, keys)
    known = set[int]() if stored is None else stored.entries
    find, outputs = watch.table.find, rows.outputs()
    places = []
    for index, script in [(0, keychain.anchor), *((1, script) for script in keychain.found)]:
        row = ids[find(EntryKind.SCRIPT, script)]
        if row not in known:
            places.append((index, row))
        if index and outputs.get(row) != (found := keychain.found[script]):
            rows.put_output(row, found.label, found.tweak)
    revealed = keychain.revealed or None
    rows.change(KeychainChange(keychain.name, window=keychain.end, places=places, revealed=revealed))


def take_revealed(stored: Iterable[StoredKeychain], watch: WatchList) -> None:
    """Give the keychains of a watch list their revealed indexes, which the database stores by keychain identity.

    A keychain is exclusive only if the database contains its flag.
    """
    for each in stored:
        keychain = watch.windows.get(each.name)
        if keychain is not None:
            keychain.is_exclusive = each.exclusive
            if each.revealed:
                keychain.reveal(each.revealed - 1)


def _made(descriptor: str | None) -> str:
    return "derives its scripts with a function" if descriptor is None else "has a descriptor"


def _check_scripts(watch: WatchList, known: Keychain, window: Sequence[tuple[int, ...]]) -> None:
    """Check that a keychain derives the scripts of a stored window. Raises KeychainMismatchError.

    The check covers all scripts that the keychain has already derived, and three of the others. `window` contains the
    entries of each index.
    """
    both, entry = min(known.end, len(window)), watch.table.entry
    wrong = watch.windows.first_foreign(known.name, window[:both])
    if wrong is None and both < len(window):  # checking all scripts would take as long as deriving the window
        others = {both, (both + len(window)) // 2, len(window) - 1}
        scripts = {index: {entry(each)[1] for each in window[index]} for index in others}
        wrong = next((index for index in sorted(others) if set(known.scripts(index)) != scripts[index]), None)
    if wrong is not None:
        how = "the function" if known.descriptor is None else "the installed libwally"
        raise KeychainMismatchError(
            f"keychain {known.name[:80]!r}: {how} derives a script for index {wrong} that differs from the one in the"
            " database: the database belongs to a different wallet, or the derivation has changed"
        )


def _without_owner(stored: StoredKeychain, network: Network, account: str | None) -> Keychain:
    """Return a stored keychain that the watch list lacks. Raises StoreCorruptError for malformed values."""
    name, descriptor = stored.name, stored.descriptor
    if stored.silent is not None:
        return _silent_without_owner(stored, stored.silent, network, account)
    derive: Callable[[int], tuple[bytes, ...]] = partial(
        _underivable, f"call add_keychain({name[:80]!r}, …) with the function that derives its scripts"
    )
    is_dormant = True
    lazy = LazyDescriptor.find(name, network) if descriptor == name else None
    if lazy is not None:
        derive, is_dormant = lazy.scripts, False
    elif descriptor is not None:
        try:
            found = parse_descriptor(descriptor, network, is_stored=True)
            mine = next(each for each in found if each.text == name)
            warn_of_problems(mine)
            derive, is_dormant = mine.scripts, False
        except DescriptorError as error:
            derive = partial(_underivable, str(error))
        except StopIteration:
            raise StoreCorruptError(f"the database has a different descriptor for keychain {name[:80]!r}") from None
    try:
        made = Keychain(
            name, derive, label=stored.label, lookahead=stored.lookahead, size=stored.size, descriptor=descriptor
        )
    except ParameterError as error:
        raise StoreCorruptError(f"the database contains a malformed keychain: {error}") from error
    made.is_dormant, made.account = is_dormant, account
    return made


def _parsed(keys: SilentKeys, network: Network) -> silent.SilentDescriptor:
    """Parse a stored sp() descriptor. Raises StoreCorruptError, or ParameterError if the `silent` extra is missing."""
    curve.library()
    try:
        return silent.parse_silent(keys.secret, network)
    except ParameterError as error:
        raise StoreCorruptError(f"the database contains a malformed keychain: {error}") from None


def _check_anchor(watch: WatchList, stored: StoredKeychain, numbers: Mapping[int, int]) -> None:
    """Check that the first entry of a stored sp() keychain is its anchor. Raises StoreCorruptError."""
    assert stored.silent is not None
    anchor = silentkeychain.anchor_of(_parsed(stored.silent, watch.network))
    first = [numbers.get(row) for run in stored.runs for index, row in run.places() if index == 0]
    if first != [watch.table.find(EntryKind.SCRIPT, anchor)]:
        raise StoreCorruptError("the database contains a different entry for a keychain of silent payments")


def _silent_without_owner(
    stored: StoredKeychain, keys: SilentKeys, network: Network, account: str | None
) -> silentkeychain.SilentKeychain:
    made = silentkeychain.SilentKeychain(_parsed(keys, network), label=stored.label)
    if made.name != stored.name:
        raise StoreCorruptError(f"the database has a different descriptor for keychain {stored.name[:80]!r}")
    made.account = account
    _take_silent(made, stored, network)
    return made


def _underivable(what: str, index: int) -> tuple[bytes, ...]:
    raise KeychainError(f"cannot derive the script at index {index}, which the window must contain: {what}")
