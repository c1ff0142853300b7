"""Pickles of watch lists. Unpickling preserves the number of each entry."""

from __future__ import annotations

from collections.abc import Callable

from spvfilter.kernel import EntryKind, WatchedCoin, WatchTable
from spvfilter.network import Network
from spvfilter.watch.accounts import Accounts
from spvfilter.watch.descriptor.descriptor import parse_descriptor
from spvfilter.watch.keychain import Keychain
from spvfilter.watch.windows import Places, Windows

ScriptsAt = Callable[[int], tuple[bytes, ...]]
KeychainState = tuple[str, ScriptsAt | None, str | None, int, int, str | None, int, list[int], str | None]
"""A keychain in a pickle: name, function, label, lookahead, size, descriptor, end of the window, used indexes, account.
"""
AccountState = tuple[list[str], dict[int, str]]
"""The names of the accounts, and the accounts of entries."""
State = tuple[
    list[tuple[EntryKind, bytes]],
    dict[int, str],
    list[tuple[bytes, WatchedCoin]],
    list[KeychainState],
    Places,
    AccountState,
]


def state_of(table: WatchTable, labels: dict[int, str], windows: Windows, accounts: Accounts) -> State:
    """Return the contents of a watch list's pickle, except for the network."""
    keychains, named = [_state(each) for each in windows], (list(accounts.names), dict(accounts.entries))
    return list(table.entries()), labels, list(table.coins()), keychains, windows.places, named


def _state(keychain: Keychain) -> KeychainState:
    """Return the contents of a keychain for a pickle.

    They include its descriptor or, if it has none, the caller's function, which must then be picklable.
    """
    scripts_at = keychain.scripts_at if keychain.descriptor is None else None
    made = keychain.name, scripts_at, keychain.label, keychain.lookahead, keychain.size, keychain.descriptor
    return *made, keychain.end, sorted(keychain.used), keychain.account


def restored(network: Network, state: State) -> tuple[WatchTable, dict[int, str], Windows, Accounts]:
    """Return the table, labels, windows and accounts of a pickled watch list.

    `state` is the result of `state_of`.

    Raises DescriptorError if the list contains descriptors but the `descriptors` extra is not installed.
    """
    entries, labels, coins, keychains, places, (names, owned) = state
    table = WatchTable()
    for kind, value in entries:
        table.add(kind, value)
    for outpoint, coin in coins:
        table.set_coin(outpoint, coin.entry, coin.value, coin.script)
    windows = Windows.with_places(table, [_keychain(network, *each) for each in keychains], places)
    return table, labels, windows, Accounts(dict.fromkeys(names), owned)


def _keychain(
    network: Network,
    name: str,
    own: ScriptsAt | None,
    label: str | None,
    lookahead: int,
    size: int,
    descriptor: str | None,
    end: int,
    used: list[int],
    account: str | None,
) -> Keychain:
    scripts_at = own or next(
        each.scripts for each in parse_descriptor(descriptor or "", network, is_stored=True) if each.text == name
    )
    made = Keychain(name, scripts_at, label=label, lookahead=lookahead, size=size, descriptor=descriptor)
    made.account = account
    made.reach(end)
    made.grow()
    for index in used:
        made.use(index)
    return made
