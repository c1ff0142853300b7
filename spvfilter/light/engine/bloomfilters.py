"""The wallet's BIP-37 filter. All peers get the same bytes in every run, as long as the elements fit."""

from __future__ import annotations

from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags, wallet_capacity
from spvfilter.light.engine.context import Context
from spvfilter.store.batch import Bip37Parameters

# The engine loads a new filter when matches have raised the false-positive rate to this multiple of the requested rate.
_DRIFT = 4.0

# One outpoint of an unconfirmed transaction may be added to a filter for this many elements of its capacity. These
# outpoints multiply the false-positive rate by at most 2.3, so they alone cause no drift.
_ROOM_PER_HUNTED = 10


class BloomFilters:
    """Makes the filter. Its parameters are stored before they are first used.

    Two different filters would reveal more to peers than one.
    """

    def __init__(self, context: Context, parameters: Bip37Parameters | None, secret: bytes) -> None:
        self._context = context
        self._parameters = parameters
        self._secret = secret
        self._fresh_rate = 0.0
        self.elements: dict[bytes, None] = {}  # of the latest filter
        self._made: tuple[list[bytes], Bip37Parameters, Bip37Filter] | None = (
            None  # elements and parameters of the latest filter, and the filter
        )
        self._is_durable = parameters is not None

    def make(self) -> Bip37Filter | None:
        """Return the current filter, or None while its parameters are being committed. Raises InexpressibleError."""
        context = self._context
        elements = _Elements(context.books.bloom_elements())
        known, rate = self._parameters, context.options.fp_rate
        if known is None or known.fp_rate != rate or len(elements.elements) > known.elements:
            key = known.decoy_key if known else self._secret
            tweak = known.tweak if known else context.random.getrandbits(32)
            room = wallet_capacity(len(elements.elements), rate)
            self._parameters = context.books.batch.bip37_parameters = Bip37Parameters(tweak, room, rate, key)
            self._is_durable = False
            context.out.after_commit(self._committed)
        if not self._is_durable:
            return None
        assert self._parameters is not None
        if self._made is None or self._made[:2] != (elements.elements, self._parameters):  # all peers get the same
            tweak, room, rate, key = self._parameters
            made = Bip37Filter.for_watchlist(elements, rate, tweak, UpdateFlags.ALL, elements=room, decoy_key=key)
            self._made = elements.elements, self._parameters, made
            self.elements = dict.fromkeys(elements.elements)
            self._fresh_rate = made.current_fp_rate
        return self._made[2]

    def _committed(self) -> None:
        self._is_durable = True
        self._context.changed()

    @property
    def most_hunted(self) -> int:
        """Largest number of inputs of unconfirmed transactions that may be added to a peer's filter."""
        return 0 if self._parameters is None else self._parameters.elements // _ROOM_PER_HUNTED

    def has_drifted(self, loaded: Bip37Filter) -> bool:
        """True if the false-positive rate of a peer's filter is much higher than a new filter's."""
        return loaded.current_fp_rate > max(_DRIFT * self._context.options.fp_rate, 2 * self._fresh_rate)


class _Elements:
    """A source of elements for `Bip37Filter.for_watchlist`."""

    def __init__(self, elements: list[bytes]) -> None:
        self.elements = elements

    def bloom_elements(self) -> list[bytes]:
        return self.elements
