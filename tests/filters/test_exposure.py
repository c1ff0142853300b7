"""Information that filters give a peer: decoys, posteriors, several filters, samples, bitcoinj, and the report."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import Any

import pytest

from spvfilter.errors import ParameterError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.filters.exposure import Exposure, SampledRate, bitcoinj_filter, joint_rate, sample_rate
from spvfilter.filters.privacy import PrivacyReport, privacy_report
from spvfilter.kernel import BACKEND
from spvfilter.watch.watchlist import WatchList

KEY = b"a secret of the wallet"
MANY = 100_000 if BACKEND == "native" else 5_000  # probes


class Elements(list[bytes]):
    def bloom_elements(self) -> Iterable[bytes]:
        return self


def wallet(count: int) -> Elements:
    rng = random.Random(count)
    return Elements(rng.randbytes(20) for _ in range(count))


def made(count: int, tweak: int = 5, rate: float = 0.01) -> Bip37Filter:
    return Bip37Filter.for_watchlist(wallet(count), rate, tweak, decoy_key=KEY)


def test_decoys_and_posterior_follow_from_bayes() -> None:
    told = Exposure(10, 1_000_000_010, 1e-4)
    assert told.decoys == pytest.approx(100_000)
    assert told.posterior == pytest.approx(10 / 100_010)
    assert Exposure(3, 3, 0.5).posterior == 1
    assert Exposure(1, 10**9, 0.0).posterior == 1


@pytest.mark.parametrize(("own", "rate"), [(0, 0.1), (11, 0.1), (1, -0.1), (1, 1.1), (1, float("nan"))])
def test_an_exposure_out_of_range_raises(own: int, rate: float) -> None:
    with pytest.raises(ParameterError):
        Exposure(own, 10, rate)


def test_95_percent_of_sample_intervals_contain_the_true_rate() -> None:
    rng, held = random.Random(3), 0
    for _ in range(400):
        low, high = SampledRate(sum(rng.random() < 0.02 for _ in range(500)), 500).interval
        held += low <= 0.02 <= high
    assert 365 <= held <= 395
    assert SampledRate(0, 1_000).interval[0] == 0.0
    assert SampledRate(0, 1_000).interval[1] == pytest.approx(0.00383, rel=0.01)
    assert SampledRate(7, 7).interval[1] == 1.0


@pytest.mark.parametrize(("hits", "probes", "low", "high"), [(5, 10, 0.23659, 0.76341), (1, 20, 0.00888, 0.23613)])
def test_an_interval_of_few_probes_is_wilsons(hits: int, probes: int, low: float, high: float) -> None:
    assert SampledRate(hits, probes).interval == pytest.approx((low, high), abs=1e-5)


def test_equal_filters_have_the_rate_of_one() -> None:
    one = made(10)
    assert joint_rate([one]) == joint_rate([one, made(10), made(10)]) == one.current_fp_rate
    with pytest.raises(ParameterError, match="filters is empty"):
        joint_rate([])


def test_filters_of_different_tweaks_multiply_their_rates() -> None:
    two = [made(10, 1, 0.05), made(10, 2, 0.05)]
    expected = two[0].current_fp_rate * two[1].current_fp_rate
    assert joint_rate(two) == pytest.approx(expected)
    sampled = sample_rate(two, 2 * MANY, 1)
    assert sampled.hits == pytest.approx(2 * MANY * expected, abs=4 * (2 * MANY * expected) ** 0.5)


def test_filters_of_one_tweak_are_compared_bit_by_bit() -> None:
    before, after = made(10, rate=0.05), made(60, rate=0.05)
    both = joint_rate([after, before])
    assert both == (before & after).current_fp_rate < before.current_fp_rate
    sampled = sample_rate([before, after], MANY, 2)
    low, high = sampled.interval
    assert low * 0.9 < both < high * 1.1
    new = sample_rate([after], MANY, 2, without=[before])
    assert new.hits + sampled.hits == sample_rate([after], MANY, 2).hits


def test_a_sample_depends_only_on_its_seed() -> None:
    filter, probes = made(100, rate=0.3), 40_000  # more than one batch of the sample
    drawn, hits = random.Random("strangers 9"), 0
    for count in (1 << 15, probes - (1 << 15)):
        raw = drawn.randbytes(20 * count)
        hits += sum(raw[at : at + 20] in filter for at in range(0, len(raw), 20))
    assert sample_rate([filter], probes, 9) == SampledRate(hits, probes)
    for bad in (0, 10**9 + 1):
        with pytest.raises(ParameterError, match="probes must be a whole number"):
            sample_rate([filter], bad, 9)
    with pytest.raises(ParameterError, match="filters is empty"):
        sample_rate([], 1, 9)


def test_a_sample_avoids_elements_drawn_with_its_seed() -> None:
    drawn, filter = random.Random(0), Bip37Filter(1_000, 1e-9, 5)
    filter.update(drawn.randbytes(20) for _ in range(1_000))
    assert sample_rate([filter], 1_000, 0).hits == 0


@pytest.mark.parametrize("count", [10, 1_000])
def test_sampled_rates_of_a_report_equal_computed_rates(count: int) -> None:
    """This uses the default seed: the random addresses of the sample differ from the random elements of the filters."""
    for case in privacy_report(wallet(count), 1e-4, 5, KEY, restarts=2, added=20, probes=MANY).cases:
        assert case.sampled is not None
        expected = case.exposure.fp_rate * MANY
        assert abs(case.sampled.hits - expected) <= 4 * expected**0.5 + 1, case


@pytest.mark.parametrize(
    ("addresses", "rate", "size", "hash_funcs"), [(10, 0.0005, 237, 10), (10, 1e-5, 359, 16), (10_000, 1e-5, 36_000, 9)]
)
def test_bitcoinj_s_filter_has_its_size(addresses: int, rate: float, size: int, hash_funcs: int) -> None:
    foreign = bitcoinj_filter(addresses, 7, rate)
    assert (foreign.size, foreign.hash_funcs, foreign.tweak) == (size, hash_funcs, 7)
    assert foreign.estimated_elements == pytest.approx(2 * addresses, rel=0.1)


def test_bitcoinj_s_filter_of_a_small_wallet_hides_nothing() -> None:
    # 20 elements in a filter for 120
    assert bitcoinj_filter(10, 7, 0.0005).current_fp_rate == pytest.approx(1e-10, rel=10)


@pytest.mark.parametrize(
    ("addresses", "rate", "tweak", "said"),
    [
        (0, 0.1, 1, "addresses must be a whole number from 1 to 2^30, not 0"),
        ((1 << 30) + 1, 0.1, 1, "addresses must be a whole number from 1 to 2^30, not 1073741825"),
        (1, 0.0, 1, "rate must be between 0 and 1, not 0.0"),
        (1, 1.0, 1, "rate must be between 0 and 1, not 1.0"),
        (1, 0.1, 1 << 32, "tweak must be a whole number from 0 to 2^32 - 1, not 4294967296"),
        (1, 0.1, -1, "tweak must be a whole number from 0 to 2^32 - 1, not -1"),
        (1, 0.1, 1.5, "tweak must be a whole number from 0 to 2^32 - 1, not 1.5"),
    ],
)
def test_bitcoinj_s_filter_out_of_range_raises(addresses: int, rate: float, tweak: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(said)):
        bitcoinj_filter(addresses, tweak, rate)


def cases(report: PrivacyReport) -> dict[str, float]:
    return {case.name: case.exposure.fp_rate for case in report.cases}


def test_a_report_shows_what_restarts_and_additions_reveal() -> None:
    report = privacy_report(wallet(20), 0.01, 5, KEY, restarts=100, added=5, probes=MANY)
    rates = cases(report)
    assert (report.own, report.outpoints, report.capacity, report.is_steady) == (20, 0, 1_024, True)
    assert rates["now"] == rates["restarts"] == report.real_fp_rate == pytest.approx(0.01, rel=0.05)
    assert rates["added-known"] + rates["added-new"] == pytest.approx(rates["now"], rel=0.05)
    assert rates["added-new"] < 0.05 * rates["now"]
    plain = Bip37Filter(report.capacity, 0.01, 5)
    plain.update(wallet(20))
    assert 0 < rates["no-decoys"] == plain.current_fp_rate < 1e-10
    assert rates["new-tweaks"] == rates["bitcoinj-restarts"] == 0.0
    for case in report.cases:
        assert case.sampled is not None
        if case.exposure.fp_rate > 1e-3:
            low, high = case.sampled.interval
            assert low * 0.9 < case.exposure.fp_rate < high * 1.1


def test_a_report_is_reproducible_and_samples_only_on_request() -> None:
    reports = [privacy_report(wallet(3), 0.01, 5, KEY, restarts=2, probes=0, seed=seed) for seed in (1, 1)]
    assert reports[0] == reports[1]
    assert {case.sampled for case in reports[0].cases} == {None}


def test_an_outgrown_filter_is_replaced_by_a_different_one() -> None:
    rates = cases(privacy_report(wallet(1_024), 0.01, 5, KEY, elements=1_024, restarts=1, added=1, probes=0))
    assert rates["added-known"] == pytest.approx(0.01**2, rel=0.2)


@pytest.mark.parametrize(("restarts", "added"), [(0, 1), (1_001, 1), (1, 0), (1, 1_000_001)])
def test_counts_out_of_range_raise(restarts: int, added: int) -> None:
    with pytest.raises(ParameterError, match="from 1 to"):
        privacy_report(wallet(1), 0.01, 5, KEY, restarts=restarts, added=added)


def test_a_list_without_addresses_is_refused() -> None:
    with pytest.raises(ParameterError, match="empty"):
        privacy_report(WatchList(), 0.01, 5, KEY)
    with pytest.raises(ParameterError, match="only outpoints"):
        privacy_report(Elements([bytes(36)]), 0.01, 5, KEY)
