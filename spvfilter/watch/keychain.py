"""A keychain: a wallet's scripts by index, and the window of those that are watched: how far it reaches, and what a use
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from spvfilter._public import public
from spvfilter.errors import KeychainError, ParameterError

GAP_LIMIT = 20  # BIP-44 § Address gap limit
LOOKAHEAD = 1_000
MAX_LOOKAHEAD = 10_000_000
MAX_WINDOW = 2 * MAX_LOOKAHEAD  # that a file may state
MAX_INDEXES = 1 << 31  # BIP-32 § Extended keys: those that are not hardened
_MAX_SCRIPT = 4_000_000  # bytes, of a block
_MAX_NAME = 200_000  # characters; a descriptor of 999 keys has 150,000


@public
class Keychain:
    """The scripts of one branch of a wallet, such as its receiving addresses, by index from 0.

    The window are the indexes below `end`: their scripts are watched. It reaches at least `lookahead` beyond the last
    one that was used, and never shrinks. An index is used once an output paid one of its scripts, whatever became of
    that output.

    A keychain decides and keeps count; the WatchList that it is added to watches what it tells. It belongs to one list.
    """

    def __init__(
        self,
        name: str,
        scripts_at: Callable[[int], tuple[bytes, ...]],
        *,
        label: str | None = None,
        lookahead: int = LOOKAHEAD,
        size: int = MAX_INDEXES,
        descriptor: str | None = None,
    ) -> None:
        """`size` is the number of its indexes, `descriptor` what it was made of, if that can be written to a file.

        Raises ParameterError for an empty or unprintable name, and a lookahead below the gap limit, 20, or above
        10,000,000.
        """
        if not name.strip() or not name.isprintable() or len(name) > _MAX_NAME:
            raise ParameterError(
                f"the name of a keychain has 1 to {_MAX_NAME:,} printable characters, not {name[:80]!r}"
            )
        if not GAP_LIMIT <= lookahead <= MAX_LOOKAHEAD:
            raise ParameterError(
                f"a lookahead is from {GAP_LIMIT}, the gap limit, to {MAX_LOOKAHEAD:,}, not {lookahead}"
            )
        self.name = name
        self.label = label
        self.lookahead = lookahead
        self.size = size
        self.descriptor = descriptor
        self.scripts_at = scripts_at
        self._end = 0
        self._used: set[int] = set()
        self._last_used = -1
        self._next = 0  # the lowest unused index
        self._floor = 0  # the least end, which it had before
        self.is_dormant = False  # whether nothing derives further scripts
        self._known: tuple[
            bytes, ...
        ] = ()  # the scripts of the window's last index: derived again, they must be the same

    def __repr__(self) -> str:
        shown = self.name if len(self.name) <= 40 else f"{self.name[:24]}…{self.name[-15:]}"
        return f"<Keychain {shown!r} window={self._end} used={len(self._used)}>"

    @property
    def end(self) -> int:
        """The number of indexes in the window: all below are watched."""
        return self._end

    @property
    def last_used(self) -> int:
        """The highest index that was used; -1 for none."""
        return self._last_used

    @property
    def used(self) -> Collection[int]:
        """The indexes that were used."""
        return self._used

    @property
    def next_index(self) -> int | None:
        """The lowest index that was never used; None if all of a fixed descriptor's are."""
        while self._next in self._used:
            self._next += 1
        return self._next if self._next < self.size else None

    @property
    def required(self) -> int:
        """Where the window must end: `lookahead` beyond the last used index."""
        return min(self.size, max(self._floor, self._last_used + 1 + self.lookahead))

    def use(self, index: int) -> bool:
        """Note that an index of the window was used; whether the window must move now.

        Raises ParameterError for another index.
        """
        if not 0 <= index < self._end:
            raise ParameterError(
                f"index {index} is not in the window of keychain {self.name[:80]!r}, which has {self._end}"
            )
        self._used.add(index)
        self._last_used = max(self._last_used, index)
        return self._end < self.required

    def grow(self, margin: int = 0) -> list[tuple[bytes, ...]]:
        """Move the window to where it must end, and `margin` further if it is short of that; the scripts of each index
        that is new in it.

        Raises KeychainError if they cannot be derived; then nothing has changed.
        """
        new = self.ahead(margin)
        self.move(new)
        return new

    def move(self, new: list[tuple[bytes, ...]]) -> None:
        """Take the next indexes into the window, with the scripts that `ahead` gave for them."""
        if new:
            self._end, self._known = self._end + len(new), new[-1]

    def restore(self, more: list[tuple[bytes, ...]]) -> None:
        """Take the next indexes into the window, with scripts that an earlier run derived."""
        self.move(more)
        if more and len(more[-1]) > 1:  # in which order they were derived is not known
            self._known = ()

    def ahead(self, margin: int = 0) -> list[tuple[bytes, ...]]:
        """What `grow` would give; nothing changes. Another thread may call it. Raises KeychainError."""
        end = min(self.size, self.required + margin)
        if end <= self._end:
            return []
        if self._known and self._derived(self._end - 1) != self._known:
            raise KeychainError(
                f"{self._shown}: the script of index {self._end - 1} is not what it was: a script must follow from its"
                " index"
            )
        new = [self._derived(index) for index in range(self._end, end)]
        self._check(new)
        return new

    def _check(self, new: list[tuple[bytes, ...]]) -> None:
        """Raises KeychainError unless the scripts of new indexes are made of their indexes."""
        if self._derived(self._end) != new[0]:
            raise KeychainError(
                f"{self._shown}: two different scripts for index {self._end}: a script must follow from its index"
            )
        if len(set(new)) < len(new):
            first: dict[tuple[bytes, ...], int] = {}
            for index, scripts in enumerate(new, self._end):
                if (before := first.setdefault(scripts, index)) != index:
                    raise KeychainError(f"{self._shown}: the same script for the indexes {before} and {index}")

    @property
    def _shown(self) -> str:
        return f"keychain {self.name[:80]!r}"

    def scripts(self, index: int) -> tuple[bytes, ...]:
        """The scriptPubKeys of an index, in the window or not.

        Raises KeychainError if they cannot be derived, ParameterError.
        """
        if not 0 <= index < self.size:
            raise ParameterError(f"{self._shown} has the indexes 0 to {self.size - 1}, not {index}")
        return self._derived(index)

    def _derived(self, index: int) -> tuple[bytes, ...]:
        try:
            scripts = self.scripts_at(index)
        except KeychainError:
            raise
        except Exception as error:  # of the caller's own function, which may raise anything
            raise KeychainError(f"{self._shown}: {type(error).__name__} while deriving index {index}") from error
        if not isinstance(scripts, tuple) or not scripts:  # of the keychain's maker
            raise KeychainError(
                f"{self._shown}: index {index} gives {type(scripts).__name__}, not a scriptPubKey as bytes"
            )
        for script in scripts:
            if not isinstance(script, bytes):
                raise KeychainError(
                    f"{self._shown}: index {index} gives {type(script).__name__}, not a scriptPubKey as bytes"
                )
            if not 0 < len(script) <= _MAX_SCRIPT:
                raise KeychainError(
                    f"{self._shown}: index {index} gives {len(script)} bytes: a scriptPubKey has 1 to {_MAX_SCRIPT:,}"
                )
        return scripts

    def state(self) -> tuple[object, ...]:
        """What two equal keychains have in common."""
        return self.name, self.label, self.lookahead, self.size, self.descriptor, self._end, frozenset(self._used)

    def copy(self) -> Keychain:
        """One with the same window, that derives in the same way."""
        twin = Keychain(
            self.name,
            self.scripts_at,
            label=self.label,
            lookahead=self.lookahead,
            size=self.size,
            descriptor=self.descriptor,
        )
        twin._end, twin._known, twin._floor, twin.is_dormant = self._end, self._known, self._floor, self.is_dormant
        twin._used, twin._last_used, twin._next = self._used.copy(), self._last_used, self._next
        return twin

    def reach(self, end: int) -> None:
        """Let the next `grow` move the window at least to an end that it had before.

        Raises ParameterError for one beyond all bounds.
        """
        if not 0 <= end <= MAX_WINDOW:
            raise ParameterError(f"a window ends at 0 to {MAX_WINDOW:,}, not {end}")
        self._floor = max(self._floor, min(end, self.size))


def all_used(name: str) -> str:
    """Why a keychain has no next address that is watched: what no block has moves no window while a client runs."""
    return (
        f"every address of keychain {name[:80]!r} that is watched was used, the last ones by payments that no block"
        " has: there are more once a block has one of these, and at the next start"
    )
