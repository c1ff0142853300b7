"""A report on a wallet's BIP-37 filter: what it tells a peer at once, after restarts and after additions, computed and
sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass
from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError
from spvfilter.filters.bip37 import Bip37Filter, BloomSource, wallet_capacity
from spvfilter.filters.exposure import (
    BITCOINJ_FP_RATE,
    CHAIN_ADDRESSES,
    Exposure,
    SampledRate,
    bitcoinj_filter,
    joint_rate,
    sample_rate,
)
from spvfilter.protocol import OUTPOINT_SIZE

if TYPE_CHECKING:
    import random
else:
    random = deferred("random")

MAX_RESTARTS = 1_000
MAX_ADDED = 1_000_000


@public
@dataclass(frozen=True, slots=True)
class PrivacyCase:
    """One thing that a peer may have seen, and what it then knows."""

    name: str
    """A word for programs: "now", "restarts", …."""
    said: str
    """The same for people."""
    exposure: Exposure
    sampled: SampledRate | None
    """None if no sample was taken."""


@public
@dataclass(frozen=True, slots=True)
class PrivacyReport:
    """What a wallet's filter tells a peer; see `privacy_report`, which makes it."""

    size: int
    """Bytes of the filter."""
    hash_funcs: int
    capacity: int
    """Elements that it was sized for."""
    nominal_fp_rate: float
    """Asked for."""
    real_fp_rate: float
    """Of the bits that are set."""
    own: int
    """Addresses, keys and other data of the wallet."""
    outpoints: int
    estimated_elements: float
    """As read off the filter by a peer that does not know of decoys."""
    restarts: int
    added: int
    is_steady: bool
    """Whether the filters of all restarts had the same bytes."""
    cases: tuple[PrivacyCase, ...]


@public
def privacy_report(
    watch: BloomSource,
    fp_rate: float,
    tweak: int,
    decoy_key: bytes,
    *,
    elements: int | None = None,
    universe: int = CHAIN_ADDRESSES,
    restarts: int = 10,
    added: int = 10,
    probes: int = 1_000_000,
    seed: int = 0,
) -> PrivacyReport:
    """What the filter that LightClient makes of `watch` with these parameters tells a peer, case by case.

    The cases, each with its rate computed from the bits and, unless `probes` is 0, measured with random addresses drawn
    from `seed`:

    - `now`: the filter as it is.
    - `restarts`: it is made anew so many times, from the list, the tweak and the secret, and the peer has all of the
      filters.
    - `added-known`: then so many addresses are added, and the peer asks which addresses are in the filters before and
      after.
    - `added-new`: … and which are only in the one after: far fewer decoys hide what is new.
    - `no-decoys`: the same filter without decoys, as `spvfilter filterload` makes it.
    - `new-tweaks`: … with a tweak of its own at each restart.
    - `bitcoinj`, `bitcoinj-restarts`: bitcoinj's filter of as many addresses, and those of as many starts.

    `elements` is the number that the filter is sized for, by default what LightClient takes. Raises ParameterError for
    parameters out of range and for a list without entries, InexpressibleError.
    """
    _check(restarts, added)
    wanted = _Elements(watch.bloom_elements())
    own = sum(1 for element in wanted.elements if len(element) != OUTPOINT_SIZE)
    if not own:
        raise ParameterError(
            "there is no address to hide: the list has outpoints alone"
            if wanted.elements
            else "the watch list is empty"
        )
    drawn = random.Random(seed)  # of stand-ins and of a sample
    grown = _Elements([*wanted.elements, *(drawn.randbytes(20) for _ in range(added))])
    tweaks = [drawn.getrandbits(32) for _ in range(restarts + 1)]

    def make(of: _Elements = wanted) -> Bip37Filter:
        fits = elements is not None and len(of.elements) <= elements
        room = elements if fits else wallet_capacity(len(of.elements), fp_rate)
        return Bip37Filter.for_watchlist(of, fp_rate, tweak, elements=room, decoy_key=decoy_key)

    def without_decoys(with_tweak: int) -> Bip37Filter:
        plain = Bip37Filter(made.capacity or 0, fp_rate, with_tweak)
        plain.update(wanted.elements)
        return plain

    made, later, again = make(), make(grown), [make() for _ in range(restarts)]
    plain = [without_decoys(each) for each in (tweak, *tweaks[1:])]
    foreign = [bitcoinj_filter(own, each, BITCOINJ_FP_RATE) for each in tweaks]
    told = _Cases(universe, probes, seed)
    told.tell_all(own, [made, *again], later, added, plain, foreign)
    shape = made.size, made.hash_funcs, made.capacity or 0, fp_rate, made.current_fp_rate
    held = own, len(wanted.elements) - own, made.estimated_elements
    is_steady = len({bytes(each) for each in (made, *again)}) == 1
    return PrivacyReport(*shape, *held, restarts, added, is_steady, tuple(told.cases))


def _check(restarts: int, added: int) -> None:
    if not 1 <= restarts <= MAX_RESTARTS:
        raise ParameterError(f"from 1 to {MAX_RESTARTS:,} restarts, not {restarts}")
    if not 1 <= added <= MAX_ADDED:
        raise ParameterError(f"from 1 to {MAX_ADDED:,} added addresses, not {added}")


class _Elements:
    """What Bip37Filter.for_watchlist asks for."""

    def __init__(self, elements: Iterable[bytes]) -> None:
        self.elements = list(elements)

    def bloom_elements(self) -> list[bytes]:
        return self.elements


class _Cases:
    """The cases as they are computed."""

    def __init__(self, universe: int, probes: int, seed: int) -> None:
        self.cases: list[PrivacyCase] = []
        self._universe = universe
        self._sample: Callable[[Sequence[Bip37Filter], Sequence[Bip37Filter]], SampledRate | None] = (
            (lambda inside, outside: sample_rate(inside, probes, seed, without=outside))
            if probes
            else (lambda _inside, _outside: None)
        )

    def tell_all(
        self,
        own: int,
        made: list[Bip37Filter],
        later: Bip37Filter,
        added: int,
        plain: list[Bip37Filter],
        foreign: list[Bip37Filter],
    ) -> None:
        """Every case: of the filter and those of its restarts, of one with additions, of those without decoys and of
        bitcoinj's.
        """
        again = f"after {len(made) - 1:,} restarts"
        self.add("now", "the filter as it is", own, made[:1])
        self.add("restarts", f"… {again}", own, made)
        self.add("added-known", f"before and after {added:,} additions: in both", own, [made[0], later])
        self.add("added-new", "… only in the second", added, [later], without=made[:1])
        self.add("no-decoys", "a filter without decoys", own, plain[:1])
        self.add("new-tweaks", f"… {again}, with new tweaks", own, plain)
        self.add("bitcoinj", "bitcoinj's filter", own, foreign[:1])
        self.add("bitcoinj-restarts", f"… {again}", own, foreign)

    def add(
        self, name: str, said: str, own: int, inside: Sequence[Bip37Filter], *, without: Sequence[Bip37Filter] = ()
    ) -> None:
        """A case: of the addresses in every filter of `inside` and none of `without`, so many are ours."""
        rate = joint_rate(inside) - (joint_rate([*inside, *without]) if without else 0.0)
        exposure = Exposure(own, self._universe, min(1.0, max(0.0, rate)))
        self.cases.append(PrivacyCase(name, said, exposure, self._sample(inside, without)))
