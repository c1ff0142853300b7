"""Which entries of a watch list each way of searching can find."""

from __future__ import annotations

from spvfilter.errors import InexpressibleError, ParameterError
from spvfilter.kernel import PATTERN_KINDS
from spvfilter.light.events import Mode
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.patterns import KINDS

MOST_LABELS = 20
"""Largest number of labels, not counting the change label, for which a client searches by tweaks (our choice).

Each label adds a script for each tweak."""


def check_followable(watch: TxOutIndex, *, has_spent: bool = False, has_tweaks: bool = False) -> None:
    """Raise ParameterError if the list has data prefixes or script types, which a client cannot follow.

    `has_spent` is True if the client has a source of the outputs that blocks spend, and `has_tweaks` if it has a source
    of blocks' tweaks. To follow an sp() descriptor, it needs one of the two. A scan key with too many labels is also
    refused, because the search would fail later.
    """
    if any(map(watch.table.count_of, PATTERN_KINDS)):
        raise ParameterError(f"a client cannot follow {KINDS}: scan blocks for them with a Matcher")
    if watch.windows.silent and not has_spent and not has_tweaks:
        raise ParameterError(
            "a client cannot find silent payments, sp(), through peers alone: name your node with --node (in Python: "
            "spent_source) or a tweak server with --tweaks (tweak_source). `spvfilter scan` finds them in your node's "
            "blocks"
        )
    for keychain in watch.windows.silent:
        keychain.check_labels()
        if has_tweaks and keychain.count > MOST_LABELS + 1:  # the change also has a label
            raise ParameterError(too_many(keychain.count - 1))


def too_many(labels: int) -> str:
    """Return the error message for more labels than a client can search for by tweaks."""
    return (
        f"with a tweak server, a client can look for at most {MOST_LABELS} labels, not {labels:,}: name your node with "
        "--node instead (in Python: spent_source)"
    )


def check_expressible(watch: TxOutIndex, mode: Mode) -> None:
    """Raise InexpressibleError for entries that the mode cannot find."""
    if mode is not Mode.BIP37:
        try:
            watch.gcs_scripts()  # for sp(), every block is read anyway
            return
        except InexpressibleError:
            if mode is Mode.COMPACT:
                raise
    watch.bloom_elements()


def ways_of(watch: TxOutIndex) -> frozenset[Mode]:
    """Return the modes that can find all entries of a list."""
    return frozenset(mode for mode in (Mode.COMPACT, Mode.BIP37) if _can_find(watch, mode))


def _can_find(watch: TxOutIndex, mode: Mode) -> bool:
    try:
        check_expressible(watch, mode)
    except InexpressibleError:
        return False
    return True


def check_addition(watch: TxOutIndex, ways: frozenset[Mode], mode: Mode) -> None:
    """Raise InexpressibleError if no mode can find both the entries in `watch` and new entries.

    `ways` are the modes that can find the new entries.
    """
    if mode is Mode.AUTO and len(ways) == 1 and not ways & ways_of(watch):
        (way,) = ways
        raise InexpressibleError(
            f"only {way} mode can find this entry, but it cannot find all existing entries: use two clients", ()
        )
