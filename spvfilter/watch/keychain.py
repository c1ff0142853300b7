"""Keychain: the scripts of one branch of a wallet, by index, and the window of indexes that are watched."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import ClassVar

from spvfilter._public import public
from spvfilter.errors import KeychainError, ParameterError
from spvfilter.hashes import sha256d

GAP_LIMIT = 20
"""Smallest lookahead, in indexes (BIP-44 § Address gap limit)."""
LOOKAHEAD = 1_000
"""Default lookahead of a keychain: the number of indexes to watch after the last used index (our choice)."""
MAX_LOOKAHEAD = 10_000_000
"""Largest lookahead of a keychain, in indexes (our choice)."""
MAX_WINDOW = 2 * MAX_LOOKAHEAD
"""Largest window that a saved watch list may give a keychain, in indexes (our choice)."""
MAX_REVEALED = 10_000_000
"""Largest number of indexes that a keychain reveals (our choice)."""
MAX_INDEXES = 1 << 31
"""Number of indexes of a ranged descriptor: all unhardened indexes (BIP-32 § Extended keys)."""
MAX_DERIVATIONS = 1_000_000
"""Default limit on key derivations for the descriptors of one file: less than a minute (our choice)."""
_PER_SECOND = 25_000
"""Key derivations that one processor makes in a second, for the estimate in an error message."""
MAX_LISTED = 5
"""Largest number of keychains that an error lists (our choice)."""
_MAX_SHOWN = 200
"""Length in characters up to which an error shows a name in full (our choice). Descriptors with one key are shorter."""
_MAX_SCRIPT = 4_000_000
"""Largest size of a script in bytes: the largest size of a block."""
_MAX_NAME = 200_000
"""Largest length of a keychain's name in characters (our choice). A descriptor with 999 keys takes 150,000 of them."""


class WindowSource(ABC):
    """A source of a keychain's scripts, which derives one index or many in one call."""

    __slots__ = ()

    @abstractmethod
    def scripts(self, index: int) -> tuple[bytes, ...]:
        """Return the scripts of an index."""

    @abstractmethod
    def window(self, indexes: range) -> list[tuple[bytes, ...]]:
        """Return the scripts of each index. It may raise any error."""


@public
class Keychain:
    """The scripts of one branch of a wallet, such as its receiving addresses, by index from 0.

    The window consists of the indexes below `end`, whose scripts are watched. The window ends at least `lookahead`
    indexes after the last used index and after the last revealed index, and it never shrinks.

    An index becomes used when an output pays one of its scripts. It stays used even if the output is later spent or its
    block disconnected. An index is revealed when `LightClient.reveal_address` gives its address to the program.

    Each keychain belongs to one WatchList, which watches its scripts.
    """

    finds_scripts: ClassVar[bool] = False
    """True if the keychain's scripts are found in transactions, as those of sp() are."""

    def __init__(
        self,
        name: str,
        scripts_at: Callable[[int], tuple[bytes, ...]],
        *,
        label: str | None = None,
        lookahead: int = LOOKAHEAD,
        size: int = MAX_INDEXES,
        descriptor: str | None = None,
        keys: int = 1,
    ) -> None:
        """Create a keychain with an empty window.

        Args:
            name: Name of the keychain within the watch list, 1 to 200,000 printable characters.
            scripts_at: Function that returns the scriptPubKeys of an index. It must always return the same scripts for
                the same index.
            label: Label of the scripts that have no label of their own.
            lookahead: Number of indexes to watch after the last used index, from 20 (the gap limit) to 10,000,000.
            size: Number of indexes that the keychain has.
            descriptor: Descriptor from which a file or a database can restore the keychain, or None if there is none.
            keys: Number of keys that each index derives.

        Raises:
            ParameterError: The name is invalid, or the lookahead is out of range.
        """
        if not name.strip() or not name.isprintable() or len(name) > _MAX_NAME:
            raise ParameterError(
                f"the name of a keychain must be 1 to {_MAX_NAME:,} printable characters, not {name[:80]!r}"
            )
        if not GAP_LIMIT <= lookahead <= MAX_LOOKAHEAD:
            raise ParameterError(
                f"a lookahead must be from {GAP_LIMIT}, the gap limit, to {MAX_LOOKAHEAD:,}, not {lookahead}"
            )
        self.name = name
        """Name of the keychain within the watch list."""
        self.label = label
        """Label of the keychain's scripts that have no label of their own, or None if the keychain has no label."""
        self.lookahead = lookahead
        """Number of indexes to watch after the last used index."""
        self.size = size
        """Number of indexes that the keychain has."""
        self.descriptor = descriptor
        """The keychain's output descriptor, or None if a function derives the scripts."""
        self.keys = keys
        """Number of keys that each index derives."""
        self.scripts_at = scripts_at
        """Function that returns the scriptPubKeys of an index."""
        self.account: str | None = None
        """Name of the account that the keychain belongs to, or None if it belongs to no account."""
        self.is_dormant = False
        """True if the window cannot grow, because no function derives more scripts."""
        self._end = 0
        self._used: set[int] = set()
        self._last_used = -1
        self._seen: set[int] = set()  # indexes that unconfirmed transactions pay
        self.is_exclusive = False
        """True if a program has promised that all addresses are revealed through this one database."""
        self._revealed = 0
        """First index after all indexes that calls have revealed or skipped."""
        self._next = 0  # all lower indexes are used, seen or revealed
        self._floor = 0  # end of the window in an earlier run
        self._known: tuple[bytes, ...] = ()  # scripts of the window's last index, to notice if the function changes

    def __repr__(self) -> str:
        shown = self.name if len(self.name) <= 40 else f"{self.name[:24]}…{self.name[-15:]}"
        return f"<Keychain {shown!r} window={self._end} used={len(self._used)}>"

    @property
    def end(self) -> int:
        """The first index after the window. The scripts of all lower indexes are watched."""
        return self._end

    @property
    def last_used(self) -> int:
        """The highest used index, or -1 if no index is used."""
        return self._last_used

    @property
    def used(self) -> Collection[int]:
        """The indexes whose scripts have been paid."""
        return self._used

    @property
    def next_index(self) -> int | None:
        """The lowest index that is not revealed and not paid by any transaction, not even an unconfirmed one.

        None if there is no such index, which is possible for a descriptor without '*'.
        """
        self._next = max(self._next, self._revealed)
        while self._next in self._used or self._next in self._seen:
            self._next += 1
        return self._next if self._next < self.size else None

    @property
    def floor(self) -> int:
        """The end of the window in an earlier run. The window never ends before this index."""
        return self._floor

    @property
    def revealed(self) -> int:
        """The first index after the highest revealed index, or 0 if no index is revealed."""
        return self._revealed

    @property
    def index_to_reveal(self) -> int | None:
        """The index to reveal next: the first one above all revealed and used indexes.

        It skips indexes that an unconfirmed transaction pays. None if there are no more indexes.
        """
        index = max(self._revealed, self._last_used + 1)
        while index in self._seen:
            index += 1
        return index if index < min(self.size, MAX_REVEALED) else None

    @property
    def required(self) -> int:
        """The required end of the window: `lookahead` indexes beyond the last used and the last revealed index."""
        return min(self.size, max(self._floor, max(self._last_used + 1, self._revealed) + self.lookahead))

    def missing(self, margin: int = 0, most: int = MAX_WINDOW) -> range:
        """Return the indexes of the scripts that `ahead` returns for the same arguments."""
        return range(self._end, min(self.size, self.required + margin, self._end + most))

    def derivations(self, margin: int = 0) -> int:
        """Return how many keys `grow` would derive to extend the window."""
        return self.keys * max(0, min(self.size, self.required + margin) - self._end)

    def see(self, index: int) -> None:
        """Record that an unconfirmed transaction pays an index. `next_index` skips it, but the window does not move."""
        self._seen.add(index)

    def reveal(self, index: int) -> bool:
        """Mark an index and all lower ones as revealed, and return True if the window must move now."""
        self._revealed = max(self._revealed, index + 1)
        return self._end < self.required

    def use(self, index: int) -> bool:
        """Mark an index in the window as used, and return True if the window must move now.

        Raises:
            ParameterError: The index is not in the window.
        """
        if not 0 <= index < self._end:
            raise ParameterError(
                f"index {index} is not in the window of keychain {self.name[:80]!r}, which ends at {self._end}"
            )
        self._used.add(index)
        self._last_used = max(self._last_used, index)
        return self._end < self.required

    def grow(self, margin: int = 0, derived: list[tuple[bytes, ...]] | None = None) -> list[tuple[bytes, ...]]:
        """Extend the window `margin` indexes beyond its required end, and return the scripts of each new index.

        Args:
            margin: Number of indexes to add beyond the required end of the window.
            derived: The scripts of each new index, if another process has derived them.

        Raises:
            KeychainError: The scripts cannot be derived. The window is unchanged.
        """
        new = self.ahead(margin, derived=derived)
        self.move(new)
        return new

    def move(self, new: list[tuple[bytes, ...]]) -> None:
        """Extend the window by the scripts that `ahead` returned."""
        if new:
            self._end, self._known = self._end + len(new), new[-1]

    def restore(self, count: int, last: tuple[bytes, ...]) -> None:
        """Extend the window by `count` indexes that an earlier run derived. `last` contains the last one's scripts."""
        self._end += count
        self._known = last if len(last) == 1 else ()  # the order in which several were derived is unknown

    def ahead(
        self, margin: int = 0, most: int = MAX_WINDOW, derived: list[tuple[bytes, ...]] | None = None
    ) -> list[tuple[bytes, ...]]:
        """Return the scripts of each index that `grow` would add, without changing anything. Any thread may call this.

        Args:
            margin: Number of indexes to add beyond the required end of the window.
            most: Largest number of indexes to return.
            derived: The scripts of each of these indexes, if another process has derived them.

        Raises:
            KeychainError: The scripts cannot be derived.
        """
        if not (missing := self.missing(margin, most)):
            return []
        if self._known and self._derived(self._end - 1) != self._known:
            raise KeychainError(
                f"{self._shown}: the script at index {self._end - 1} has changed: the function must always return the"
                " same script for an index"
            )
        new = derived if derived is not None and len(derived) == len(missing) else self._window(missing)
        self._check(new)
        return new

    def _window(self, indexes: range) -> list[tuple[bytes, ...]]:
        """Derive the scripts of each index. Raises KeychainError if that fails."""
        source = getattr(self.scripts_at, "__self__", None)
        if isinstance(source, WindowSource):
            with suppress(Exception):  # one by one, the error names the index
                return source.window(indexes)
        return [self._derived(index) for index in indexes]

    def _check(self, new: list[tuple[bytes, ...]]) -> None:
        """Raise KeychainError if an index has two different scripts, or if two indexes have the same scripts.

        `new` contains the scripts of each new index after the window.
        """
        if self._derived(self._end) != new[0]:
            raise KeychainError(
                f"{self._shown}: index {self._end} gave two different scripts: the function must always return the same"
                " script for an index"
            )
        if len(set(new)) < len(new):
            first: dict[tuple[bytes, ...], int] = {}
            for index, scripts in enumerate(new, self._end):
                if (before := first.setdefault(scripts, index)) != index:
                    raise KeychainError(
                        f"{self._shown}: indexes {before} and {index} have the same script, but they must differ"
                    )

    @property
    def _shown(self) -> str:
        return f"keychain {self.name[:80]!r}"

    def scripts(self, index: int) -> tuple[bytes, ...]:
        """Derive the scriptPubKeys of an index, in the window or after it.

        Raises:
            KeychainError: The scripts cannot be derived.
            ParameterError: The keychain has no such index.
        """
        if not 0 <= index < self.size:
            raise ParameterError(f"{self._shown}: an index must be from 0 to {self.size - 1}, not {index}")
        return self._derived(index)

    def _derived(self, index: int) -> tuple[bytes, ...]:
        try:
            scripts = self.scripts_at(index)
        except KeychainError:
            raise
        except Exception as error:  # the caller's function may raise any error
            raise KeychainError(f"{self._shown}: {type(error).__name__} while deriving index {index}") from error
        if not isinstance(scripts, tuple) or not scripts:
            raise KeychainError(
                f"{self._shown}: expected a scriptPubKey as bytes for index {index}, not {type(scripts).__name__}"
            )
        for script in scripts:
            if not isinstance(script, bytes):
                raise KeychainError(
                    f"{self._shown}: expected a scriptPubKey as bytes for index {index}, not {type(script).__name__}"
                )
            if not 0 < len(script) <= _MAX_SCRIPT:
                raise KeychainError(
                    f"{self._shown}: expected a scriptPubKey of 1 to {_MAX_SCRIPT:,} bytes for index {index}, not"
                    f" {len(script):,}"
                )
        return scripts

    def state(self) -> tuple[object, ...]:
        """Return the values that determine whether two keychains are equal."""
        made = self.name, self.label, self.account, self.lookahead, self.size, self.descriptor
        return *made, self._end, frozenset(self._used)

    def without_window(self) -> Keychain:
        """Return a keychain with the same scripts and an empty window."""
        made = Keychain(
            self.name,
            self.scripts_at,
            label=self.label,
            lookahead=self.lookahead,
            size=self.size,
            descriptor=self.descriptor,
            keys=self.keys,
        )
        made.account = self.account
        made._revealed = self._revealed
        return made

    def copy(self) -> Keychain:
        """Return an independent keychain with the same scripts, window and used indexes."""
        twin = object.__new__(Keychain)
        twin.__dict__.update(self.__dict__)
        twin._used = self._used.copy()
        return twin

    def reach(self, end: int) -> None:
        """Make the next `grow` extend the window at least to `end`, where it ended in an earlier run.

        Raises:
            ParameterError: `end` is not between 0 and MAX_WINDOW.
        """
        if not 0 <= end <= MAX_WINDOW:
            raise ParameterError(f"the end of a window must be from 0 to {MAX_WINDOW:,}, not {end}")
        self._floor = max(self._floor, min(end, self.size))


class Budget:
    """A limited number of key derivations. Each keychain takes its share before it derives keys.

    Raises ParameterError if `most` is negative.
    """

    def __init__(self, most: int) -> None:
        if most < 0:
            raise ParameterError(f"the largest number of key derivations must be 0 or more, not {most}")
        self._most = most
        self._spent = 0

    def charge(self, count: int) -> None:
        """Take `count` derivations out of the budget. Raises ParameterError if fewer are left."""
        self.check(count)
        self._spent += count

    def check(self, count: int) -> None:
        """Raise ParameterError if fewer than `count` derivations are left. The message gives the total needed."""
        total = self._spent + count
        if total > self._most:
            raise ParameterError(
                f"the file needs {total:,} key derivations up to here (keys × indexes × paths), but at most "
                f"{self._most:,} are allowed: watch fewer indexes, or allow more with max_derivations or "
                "--max-derivations. They"
                f" take about {-(-total // _PER_SECOND):,} s"
            )


def identity_of(scripts: Iterable[bytes]) -> bytes:
    """Return the 32-byte identity of a keychain, given the scripts of its index 0.

    The identity depends neither on the keychain's name or label nor on the spelling of its descriptor. A keychain
    therefore never reveals an address twice, even if it is renamed, or removed and added again.
    """
    return sha256d(b"".join(len(script).to_bytes(4, "little") + script for script in sorted(scripts)))


def origins_in(descriptor: str | None) -> int:
    """Return how many keys in a descriptor give the master key's fingerprint in their origin."""
    text = descriptor or ""
    return text.count("[") - text.count("[00000000")


def all_used(name: str) -> str:
    """Return the error message for a keychain whose watched addresses are all used. `name` is the keychain's name.

    This can happen because unconfirmed payments do not move windows while a client is running, or because other
    keychains have revealed the same addresses.
    """
    return (
        f"all watched addresses of keychain {name[:80]!r} are used, the last ones by unconfirmed payments or other "
        "keychains: more become available when a payment is confirmed, or at the next start"
    )


def listed_keychains(keychains: Iterable[tuple[str, str | None]]) -> str:
    """List the first keychains for an error message, given their names and labels.

    A keychain from a descriptor is listed by its label, if it has one.
    """
    first = list(islice(keychains, MAX_LISTED + 1))
    names = dict.fromkeys((label or name) if "(" in name else name for name, label in first)
    shown = [repr(name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…") for name in names]
    return ", ".join(shown[:MAX_LISTED] + ["…"] * (len(first) > MAX_LISTED)) or "none at all"
