"""The site's calculator: its JavaScript gives the figures of spvfilter.bloom.sizing and of BIP-37, over a grid."""

from __future__ import annotations

import json
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom import Size, sizing
from spvfilter.errors import ParameterError
from spvfilter.filters import filter_hash_funcs, filter_size

SIZING = Path(__file__).parents[1] / "docs/_static/sizing.js"
DRIVER = """
const sizing = require(process.argv[1]);
const calls = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(calls.map(([name, ...values]) => sizing[name](...values))));
"""
KEYS = (1, 2, 3, 7, 10, 13, 100, 107, 1_000, 12_345, 200_000, 10**6, 10**7, 10**9, 10**12)
RATES = (0.9, 0.5, 0.316, 0.1, 0.05, 0.01, 0.001, 1e-4, 2**-20, 1e-9, 1e-15)
FUNCTIONS = (1, 2, 3, 4, 7, 10, 13, 20, 50)
BITS = (1, 8, 64, 128, 1_024, 9_585, 10**6, 143_776_394, 2**40)

pytestmark = pytest.mark.node


def computed(calls: list[list[Any]]) -> list[Any]:
    """The results of the functions of sizing.js, given their names and arguments."""
    ran = subprocess.run(
        ["node", "-e", DRIVER, str(SIZING)], input=json.dumps(calls), capture_output=True, text=True, check=True
    )
    found: list[Any] = json.loads(ran.stdout)
    assert len(found) == len(calls) > 50
    return found


def agree(calls: list[list[Any]], expected: list[Any]) -> None:
    for call, found, wanted in zip(calls, computed(calls), expected, strict=True):
        assert found == wanted, call


def within(bits: float) -> bool:
    """Return True if the page can size such a filter: its numbers are whole up to 2^53."""
    return bits < 2**53


def test_bits_equal_the_librarys() -> None:
    calls: list[list[Any]] = []
    expected = []
    for n, p, k in product(KEYS, RATES, FUNCTIONS):
        for name, function in (("bitsFor", sizing.bits_for), ("bitsForTaylor", sizing.bits_for_taylor)):
            try:
                bits: int | None = function(n, p, k)
            except ParameterError:
                bits = None
            calls.append([name, n, p, k])
            expected.append(bits if bits is not None and within(bits) else None)
    for call, found, wanted in zip(calls, computed(calls), expected, strict=True):
        if wanted is None or wanted < 2**40:
            assert found == wanted, call
        else:  # the last digit depends on the processor's logarithm
            assert found == pytest.approx(wanted, rel=1e-12), call


def test_the_best_number_of_functions_equals_the_librarys() -> None:
    pairs = list(product(KEYS, RATES))
    agree([["optimal", n, p] for n, p in pairs], [list(sizing.optimal(n, p)) for n, p in pairs])
    counts = [(m, n) for m, n in product(BITS, KEYS) if n <= 100 * m]
    agree([["optimalHashFuncs", m, n] for m, n in counts], [sizing.optimal_hash_funcs(m, n) for m, n in counts])


def test_capacities_equal_the_librarys() -> None:
    pairs = list(product(BITS, RATES))
    agree([["optimalCapacity", m, p] for m, p in pairs], [list(sizing.optimal_capacity(m, p)) for m, p in pairs])
    triples = list(product(BITS, RATES, FUNCTIONS))
    agree([["capacityFor", m, p, k] for m, p, k in triples], [sizing.capacity_for(m, p, k) for m, p, k in triples])


def test_rates_equal_the_librarys() -> None:
    triples = [(m, k, n) for m, k, n in product(BITS, FUNCTIONS, KEYS) if n <= 5 * m]
    for (m, k, n), found in zip(triples, computed([["approximateRate", *triple] for triple in triples]), strict=True):
        assert found == pytest.approx(sizing.fp_rate(m, k, n), rel=1e-12), (m, k, n)
    few = [(m, k, n) for m, k, n in triples if k <= 20 and m >= k and sizing.fp_rate(m, k, n) > 1e-200]
    for (m, k, n), found in zip(few, computed([["exactRate", *triple] for triple in few]), strict=True):
        assert found == pytest.approx(sizing.fp_rate_exact(m, k, n), rel=1e-12), (m, k, n)


def test_bip37_sizes_equal_those_of_the_filters() -> None:
    pairs = [
        (n, p)
        for n, p in product((*KEYS, 5, 14, 100_000, 143_999, 144_000, 144_001), (*RATES, 0.215, 0.0214))
        if n < 2**32
    ]
    for (n, p), found in zip(pairs, computed([["bip37", n, p] for n, p in pairs]), strict=True):
        size = filter_size(n, p)
        functions = filter_hash_funcs(size, n)
        assert (found["size"], found["hashFuncs"], found["matchesAll"]) == (
            size,
            functions,
            not size or not functions,
        ), (n, p)


def test_two_or_three_numbers_give_the_librarys_filter() -> None:
    calls: list[list[Any]] = []
    expected = []
    for n, p, k, m in product((None, 1_000, 10**7), (None, 0.01, 1e-6), (None, 3), (None, 64, 10**8)):
        try:
            if None not in (n, p, m):
                size = Size.of(n, None, k, bits=m)  # the page compares the rate
            elif m is None and n is not None and p is not None:
                bits, functions = sizing.optimal(n, p) if k is None else (sizing.bits_for(n, p, k), k)
                size = Size(n, p, bits, functions)  # without the library's padding to 4 bytes
            else:
                size = Size.of(n, p, k, bits=m)
            wanted = {"n": size.capacity, "k": size.hash_funcs, "m": size.bits}
        except ParameterError:
            wanted = {}
        calls += [["solve", {"n": n, "p": p, "k": k, "m": m}]] * 2
        expected += [wanted] * 2
    for call, found, wanted in zip(calls, computed(calls), expected, strict=True):
        assert {name: found[name] for name in ("n", "k", "m") if name in found} == wanted, call
        assert bool(found.get("error")) == (not wanted), call


@pytest.mark.parametrize(
    "given",
    [
        {"n": 0, "p": 0.1},
        {"n": 1.5, "p": 0.1},
        {"n": 1, "p": 0},
        {"n": 1, "p": 1},
        {"n": 1, "p": 0.1, "k": 0},
        {"n": 1, "m": 0},
        {},
    ],
)
def test_numbers_without_a_valid_filter_are_named(given: dict[str, float]) -> None:
    (found, *_) = computed([["solve", given]] * 51)
    assert set(found) == {"error"}


def test_a_rate_beside_n_and_m_is_only_compared() -> None:
    (kept, *_) = computed([["solve", {"n": 10, "p": 0.01, "m": 50}]] * 51)
    assert (kept["p"], kept["k"], kept["m"]) == (0.01, 3, 50)
    assert "p is only compared" in kept["note"]
    (free, *_) = computed([["solve", {"n": 10, "m": 50}]] * 51)
    assert (free["p"], free["note"]) == (None, "")
    (large, *_) = computed([["solve", {"n": 1e16, "p": 0.01}]] * 51)
    assert large["error"] == f"n is a whole number from 1 to {2**53 - 1}"
