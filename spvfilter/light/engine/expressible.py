"""Which entries of a watch list which way of searching can find."""

from __future__ import annotations

from spvfilter.errors import InexpressibleError
from spvfilter.light.events import Mode
from spvfilter.watch.watchlist import WatchList


def check_expressible(watch: WatchList, mode: Mode) -> None:
    """Raises InexpressibleError for entries that the mode cannot find."""
    if mode is not Mode.BIP37:
        try:
            watch.gcs_elements()
            return
        except InexpressibleError:
            if mode is Mode.COMPACT:
                raise
    watch.bloom_elements()


def ways_of(watch: WatchList) -> frozenset[Mode]:
    """The modes that can find all entries of a list."""
    return frozenset(mode for mode in (Mode.COMPACT, Mode.BIP37) if _can_find(watch, mode))


def _can_find(watch: WatchList, mode: Mode) -> bool:
    try:
        check_expressible(watch, mode)
    except InexpressibleError:
        return False
    return True


def check_addition(watch: WatchList, ways: frozenset[Mode], mode: Mode) -> None:
    """Raises InexpressibleError where entries that only some modes can find, `ways`, cannot be found together with
    those of a list.
    """
    if mode is Mode.AUTO and len(ways) == 1 and not ways & ways_of(watch):
        (way,) = ways
        raise InexpressibleError(
            f"only mode {way} can find this entry, but it cannot find all earlier entries: use two clients", ()
        )
