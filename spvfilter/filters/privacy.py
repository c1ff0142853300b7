"""A report on the privacy of a wallet's BIP-37 filter: now, after restarts, and after addresses have been added."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.errors import ParameterError, counted
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

MAX_RESTARTS = 1_000
"""Largest number of client restarts in a privacy report (our choice)."""
MAX_ADDED = 1_000_000
"""Largest number of added addresses in a privacy report (our choice)."""


@public
@dataclass(frozen=True, slots=True)
class PrivacyCase:
    """A set of filters that a peer may have received, and how well they still hide the wallet's addresses."""

    name: str
    """Name of the case for programs, such as "now" or "restarts"; `privacy_report` lists them."""
    said: str
    """Description of the case for people."""
    exposure: Exposure
    """How well the wallet's addresses are hidden, computed from the bits of the filters."""
    sampled: SampledRate | None
    """False-positive rate, measured with random addresses, or None if it was not measured."""


@public
@dataclass(frozen=True, slots=True)
class PrivacyReport:
    """The privacy of a wallet's filter, as `privacy_report` computes it."""

    size: int
    """Size of the filter in bytes."""
    hash_funcs: int
    """Number of hash functions of the filter."""
    capacity: int
    """Number of elements that the filter is sized for."""
    nominal_fp_rate: float
    """Requested false-positive rate of the filter, between 0 and 1."""
    real_fp_rate: float
    """Real false-positive rate of the filter, computed from its set bits."""
    own: int
    """Number of addresses, keys and other data of the wallet in the filter."""
    outpoints: int
    """Number of outpoints of the wallet in the filter."""
    estimated_elements: float
    """Number of elements that a peer estimates from the set bits. It includes decoys, which a peer cannot recognize."""
    restarts: int
    """Number of client restarts in the cases about restarts."""
    added: int
    """Number of added addresses in the cases about additions."""
    is_steady: bool
    """True if the filter has the same bytes now and after every restart."""
    cases: tuple[PrivacyCase, ...]
    """The cases of the report, in the order in which `privacy_report` lists them."""


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
    """Estimate how much privacy LightClient's filter for `watch` gives, case by case.

    Each case gives two false-positive rates: one computed from the bits, the other measured with random addresses.

    | case | filters that the peer has received |
    |---|---|
    | `now` | the current filter |
    | `restarts` | the current filter and the filters that the client makes after each of `restarts` restarts |
    | `added-known` | the filters before and after `added` new addresses; the case is about addresses in both filters |
    | `added-new` | the same two filters; the case is about addresses in the later one only |
    | `no-decoys` | the filter without decoys |
    | `new-tweaks` | filters without decoys, with a new tweak after each restart |
    | `bitcoinj` | bitcoinj's filter for the same number of addresses |
    | `bitcoinj-restarts` | bitcoinj's filters after each restart |

    In `added-new`, far fewer decoys hide the addresses than in `added-known`.

    Args:
        watch: Source of the elements, such as a WatchList.
        fp_rate: Requested false-positive rate, between 0 and 1, exclusive.
        tweak: The wallet's tweak, from which the seeds of the hash functions are derived, a u32.
        decoy_key: The wallet's secret from which decoys are derived, at least 16 bytes.
        elements: Number of elements to size the filter for; by default the number that LightClient chooses.
        universe: Number of addresses on the chain.
        restarts: Number of restarts of the client, from 1 to 1,000.
        added: Number of addresses that are added to the wallet later, from 1 to 1,000,000.
        probes: Number of random addresses to test in each case; 0 skips the measurement.
        seed: Seed of the random addresses.

    Raises:
        ParameterError: An argument is out of range, or `watch` contains no entries or only outpoints.
        InexpressibleError: BIP-37 filters cannot find an entry of `watch`.
    """
    _check(restarts, added)
    wanted = _Elements(watch.bloom_elements())
    own = sum(1 for element in wanted.elements if len(element) != OUTPOINT_SIZE)
    if not own:
        raise ParameterError(
            "the watch list contains only outpoints: there is no address to hide"
            if wanted.elements
            else "the watch list is empty"
        )
    drawn = random.Random(seed)  # noqa: S311  not used for secrets
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
        raise ParameterError(f"restarts must be from 1 to {MAX_RESTARTS:,}, not {restarts}")
    if not 1 <= added <= MAX_ADDED:
        raise ParameterError(f"added must be from 1 to {MAX_ADDED:,}, not {added}")


class _Elements:
    """A list of elements that Bip37Filter.for_watchlist accepts in place of a watch list."""

    def __init__(self, elements: Iterable[bytes]) -> None:
        self.elements = list(elements)

    def bloom_elements(self) -> list[bytes]:
        return self.elements


class _Cases:
    """The cases of a privacy report, computed one by one."""

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
        """Compute all cases.

        Args:
            own: Number of the wallet's addresses.
            made: The current filter and the filters after restarts.
            later: The filter after `added` new addresses.
            added: Number of new addresses in `later`.
            plain: Filters without decoys.
            foreign: bitcoinj's filters.
        """
        again = f"after {counted(len(made) - 1, 'restart')}"
        self.add("now", "the filter as it is", own, made[:1])
        self.add("restarts", f"… {again}", own, made)
        self.add("added-known", f"filters before and after {counted(added, 'addition')}", own, [made[0], later])
        self.add("added-new", "… matches of the later one only", added, [later], without=made[:1])
        self.add("no-decoys", "a filter without decoys", own, plain[:1])
        self.add("new-tweaks", f"… {again}, with new tweaks", own, plain)
        self.add("bitcoinj", "bitcoinj's filter", own, foreign[:1])
        self.add("bitcoinj-restarts", f"… {again}", own, foreign)

    def add(
        self, name: str, said: str, own: int, inside: Sequence[Bip37Filter], *, without: Sequence[Bip37Filter] = ()
    ) -> None:
        """Add a case in which `own` addresses of the wallet match every filter in `inside` and no filter in `without`.

        `name` is the case's name for programs, and `said` its description for people.
        """
        rate = joint_rate(inside) - (joint_rate([*inside, *without]) if without else 0.0)
        exposure = Exposure(own, self._universe, min(1.0, max(0.0, rate)))
        self.cases.append(PrivacyCase(name, said, exposure, self._sample(inside, without)))
