"""Which entries of a watch list which way of searching can find."""

from __future__ import annotations

from spvfilter.errors import InexpressibleError, ParameterError
from spvfilter.kernel import PATTERN_KINDS
from spvfilter.light.events import Mode
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.patterns import KINDS


def check_followable(watch: TxOutIndex, *, has_spent: bool = False) -> None:
    """Raise ParameterError if the list has data prefixes or script types, which a client cannot follow.

    With `has_spent`, the client has a source of the outputs that blocks spend. It needs one to follow sp(). A scan key
    with too many labels is also refused: a search would fail later.
    """
    if any(map(watch.table.count_of, PATTERN_KINDS)):
        raise ParameterError(f"a client cannot follow {KINDS}: scan blocks for them with a Matcher")
    if watch.windows.silent and not has_spent:
        raise ParameterError(
            "a client finds silent payments, sp(), only with the outputs that blocks spend: name your node by --node"
            " (in Python: spent_source), or scan its blocks by `spvfilter scan`"
        )
    for keychain in watch.windows.silent:
        keychain.check_labels()


def check_expressible(watch: TxOutIndex, mode: Mode) -> None:
    """Raises InexpressibleError for entries that the mode cannot find."""
    if mode is not Mode.BIP37:
        try:
            watch.gcs_scripts()  # for sp(), every block is read
            return
        except InexpressibleError:
            if mode is Mode.COMPACT:
                raise
    watch.bloom_elements()


def ways_of(watch: TxOutIndex) -> frozenset[Mode]:
    """The modes that can find all entries of a list."""
    return frozenset(mode for mode in (Mode.COMPACT, Mode.BIP37) if _can_find(watch, mode))


def _can_find(watch: TxOutIndex, mode: Mode) -> bool:
    try:
        check_expressible(watch, mode)
    except InexpressibleError:
        return False
    return True


def check_addition(watch: TxOutIndex, ways: frozenset[Mode], mode: Mode) -> None:
    """Raises InexpressibleError where entries that only some modes can find, `ways`, cannot be found together with
    those of a list.
    """
    if mode is Mode.AUTO and len(ways) == 1 and not ways & ways_of(watch):
        (way,) = ways
        raise InexpressibleError(
            f"only mode {way} can find this entry, but it cannot find all earlier entries: use two clients", ()
        )
