"""The accounts that a simulated wallet may have: their scripts, and the sources from which a client gets these."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from hashlib import sha256

from spvfilter.address import script_to_address
from spvfilter.network import REGTEST
from spvfilter.node.scripts import Lock, p2pkh, p2sh, p2tr, p2wpkh
from spvfilter.watch.descriptor.keyexpression import wally as library
from spvfilter.watch.keychain import GAP_LIMIT, Keychain
from support.blocks.locks import key, public_key

INDEXES = 160
"""Indexes of a branch whose scripts are known."""
_HARDENED = 1 << 31
_BRANCHES = 2


class Kind(Enum):
    """The kind of sources that an account has."""

    ADDRESSES = "addresses"
    """A set of addresses."""
    FUNCTION = "function"
    """Keychains whose scripts a function of the user derives."""
    DESCRIPTOR = "descriptor"
    """Ranged descriptors."""


@cache
def has_library() -> bool:
    """True if libwally is installed. It derives the scripts of descriptors."""
    try:
        library()
    except Exception:
        return False
    return True


@cache
def _account_key(number: int) -> tuple[bytes, str]:
    """An account's extended private key, serialised, and the public one with its origin as descriptors have it."""
    wally = library()
    master = wally.bip32_key_from_seed(sha256(b"account %d" % number).digest(), wally.BIP32_VER_TEST_PRIVATE, 0)
    path = [84 + _HARDENED, 1 + _HARDENED, number + _HARDENED]
    account = wally.bip32_key_from_parent_path(master, path, wally.BIP32_FLAG_KEY_PRIVATE)
    fingerprint = bytes(wally.bip32_key_get_fingerprint(master)).hex()
    public = wally.bip32_key_to_base58(account, wally.BIP32_FLAG_KEY_PUBLIC)
    raw = bytes(wally.bip32_key_serialize(account, wally.BIP32_FLAG_KEY_PRIVATE))
    return raw, f"[{fingerprint}/84h/1h/{number}h]{public}"


@cache
def branch_locks(kind: Kind, number: int, branch: int) -> tuple[tuple[Lock, ...], ...]:
    """The locks of each index of one branch of an account."""
    if kind is Kind.DESCRIPTOR:
        wally = library()
        parent = wally.bip32_key_unserialize(_account_key(number)[0])
        flag = wally.BIP32_FLAG_KEY_PRIVATE
        derived = (wally.bip32_key_from_parent_path(parent, [branch, index], flag) for index in range(INDEXES))
        return tuple((p2wpkh(public_key(bytes(wally.bip32_key_get_priv_key(each)))),) for each in derived)
    keys = [key(100_000 + (number * _BRANCHES + branch) * 1_000 + index) for index in range(INDEXES)]
    if kind is Kind.ADDRESSES:
        makers = (p2wpkh, p2pkh, lambda each: p2sh(p2wpkh(each)), lambda each: p2tr(each[1:]))
        return tuple((makers[index % 4](each),) for index, each in enumerate(keys))
    has_two = number % 3 == 0
    return tuple((p2wpkh(each), p2pkh(each)) if has_two else (p2wpkh(each),) for each in keys)


def _scripts_at(number: int, branch: int, index: int) -> tuple[bytes, ...]:
    return tuple(lock.script_pubkey for lock in branch_locks(Kind.FUNCTION, number, branch)[index])


@dataclass(slots=True)
class Account:
    """An account that the user may add, with the user's knowledge of it."""

    number: int
    """Its number, which determines its scripts."""
    kind: Kind
    """Kind of its sources."""
    branches: int
    """Number of its keychains: external, or external and internal."""
    size: int
    """Number of its addresses, if it is a set of addresses."""
    is_exclusive: bool
    """True if all external addresses are revealed by the client, and nobody pays another one."""
    spare: tuple[Lock, ...] = ()
    """Locks whose scripts the wallet watches before the account has them."""
    names: list[str] = field(default_factory=list)
    """Every name that it has had or that was asked for."""
    planned: str | None = None
    """Its name once all requests are answered; None if it then is not in the wallet."""
    name: str | None = None
    """Its name, as far as requests are answered; None if it is not in the wallet."""
    given: dict[bytes, int] = field(default_factory=dict)
    """Index of each script whose address was revealed."""
    has_lost: bool = False
    """True if a restored copy of the database lacks revealed addresses. The user then states nothing any more."""
    requests: int = 0
    """Number of requests that add, rename or remove it."""

    def locks(self) -> list[Lock]:
        """Every lock that it may have, except spare ones."""
        if self.kind is Kind.ADDRESSES:
            return [lock for locks in branch_locks(self.kind, self.number, 0)[: self.size] for lock in locks]
        branches = (branch_locks(self.kind, self.number, branch) for branch in range(self.branches))
        return [lock for branch in branches for locks in branch for lock in locks]

    def scripts(self) -> list[bytes]:
        """Every script that it may have."""
        return [lock.script_pubkey for lock in (*self.locks(), *self.spare)]

    def index_of(self, script: bytes) -> int | None:
        """The index of a script of its external branch, or None."""
        if self.kind is Kind.ADDRESSES:
            return None
        found = (
            index
            for index, locks in enumerate(branch_locks(self.kind, self.number, 0))
            if any(lock.script_pubkey == script for lock in locks)
        )
        return next(found, None)

    def payee(self, rng: random.Random, farthest: int) -> Lock | None:
        """A lock to be paid, or None. Nobody pays an address of an exclusive account before it is revealed."""
        if self.kind is Kind.ADDRESSES:
            return rng.choice([*self.locks(), *self.spare])
        if self.given and rng.random() < 0.5:
            return branch_locks(self.kind, self.number, 0)[rng.choice(sorted(self.given.values()))][0]
        branch = rng.randrange(self.branches)
        if self.is_exclusive and branch == 0:
            return None
        index = rng.randrange(rng.choice((3, GAP_LIMIT, farthest)))
        return rng.choice(branch_locks(self.kind, self.number, branch)[index])

    def sources(self, rng: random.Random) -> list[str | Keychain]:
        """The sources that the user gives to the client. A descriptor has one of its spellings."""
        spare = [address_of(lock) for lock in self.spare]
        if self.kind is Kind.ADDRESSES:
            return [*(address_of(lock) for lock in self.locks()), *spare]
        if self.kind is Kind.FUNCTION:
            return [
                *(
                    Keychain(name, partial(_scripts_at, self.number, branch), lookahead=GAP_LIMIT, size=INDEXES)
                    for branch, name in enumerate(self.keychains())
                ),
                *spare,
            ]
        text = _account_key(self.number)[1]
        if rng.random() < 0.5:
            text = text.replace("h", "'", 3)
        if self.branches == 1:
            return [f"wpkh({text}/0/*)", *spare]
        if rng.random() < 0.5:
            return [f"wpkh({text}/<0;1>/*)", *spare]
        return [f"wpkh({text}/0/*)", f"wpkh({text}/1/*)", *spare]

    def keychains(self) -> list[str]:
        """Names of its keychains, if functions derive them."""
        return [f"chain {self.number}/{branch}" for branch in range(self.branches)]


def address_of(lock: Lock) -> str:
    found = script_to_address(lock.script_pubkey, REGTEST)
    assert found is not None
    return found


def spare_lock(number: int) -> Lock:
    """A lock whose script is watched without an account, until an account gets it."""
    return p2wpkh(key(90_000 + number))


def draw_accounts(rng: random.Random, spares: Sequence[Lock]) -> list[Account]:
    """One to fifty accounts, of which large numbers are mostly sets of addresses."""
    count = rng.choice([1, 2, 3, 5, 8, 12, 50])
    left, made = list(spares), []
    for number in range(count):
        chance = rng.random()
        kind = rng.choice([Kind.FUNCTION, Kind.DESCRIPTOR]) if chance < min(0.7, 6 / count) else Kind.ADDRESSES
        if kind is Kind.DESCRIPTOR and not has_library():
            kind = Kind.FUNCTION
        account = Account(number, kind, rng.choice([1, 2]), rng.randint(1, 4), rng.random() < 0.5)
        if left and rng.random() < 0.3:
            account.spare = (left.pop(),)
        made.append(account)
    return made
