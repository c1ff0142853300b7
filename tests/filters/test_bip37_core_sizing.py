"""Sizes and hash functions of BIP-37 filters, against Bitcoin Core's own expression compiled as C."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from spvfilter.errors import ParameterError
from spvfilter.filters.bip37 import Bip37Filter, filter_hash_funcs, filter_size
from support.vectors import effort

# The two expressions of CBloomFilter's constructor (Core bloom.cpp), with its integer types and order of operations.
# Larger values are first clamped to the cap, because a conversion of 2^32 or more to unsigned int is undefined.
CORE = r"""
#include <math.h>
#include <stdio.h>

#define LN2SQUARED 0.4804530139182014246671025263266649717305529515945455
#define LN2 0.6931471805599453094172321214581765680755001343602552
static const unsigned int MAX_BLOOM_FILTER_SIZE = 36000;
static const unsigned int MAX_HASH_FUNCS = 50;

static unsigned int min(unsigned int a, unsigned int b) { return a < b ? a : b; }

int main(void)
{
    unsigned int nElements;
    double nFPRate;
    while (scanf("%u %la", &nElements, &nFPRate) == 2) {
        double wanted = -1 / LN2SQUARED * nElements * log(nFPRate);
        unsigned int size, nHashFuncs;
        if (wanted >= MAX_BLOOM_FILTER_SIZE * 8)
            size = MAX_BLOOM_FILTER_SIZE * 8 / 8;
        else
            size = min((unsigned int)(-1 / LN2SQUARED * nElements * log(nFPRate)), MAX_BLOOM_FILTER_SIZE * 8) / 8;
        nHashFuncs = min((unsigned int)(size * 8 / nElements * LN2), MAX_HASH_FUNCS);
        printf("%u %u\n", size, nHashFuncs);
    }
    return 0;
}
"""


def pairs(count: int) -> list[tuple[int, float]]:
    """Random (n, p) over every order of magnitude, more of them where filters are small, plus the edges."""
    rng = random.Random(37)
    edges = [
        (n, p)
        for n in (1, 2, 3, 5, 10, 143_999, 144_000, 144_001, 288_000, 288_001, 2**31, 2**32 - 1)
        for p in (5e-324, 0.5, 1 - 2**-53)
    ]
    edges += [
        (1, 0.0214),
        (1, 0.0215),
        (2, 0.146),
        (2, 0.147),
        (3, 0.277),
        (3, 0.278),
        (5, 0.215),
        (10, 0.316),
        (10, 0.01),
        (20, 1e-7),
    ]
    edges += [(200_000, 1e-4), (20_000, 1e-9)]
    drawn = []
    for _ in range(count - len(edges)):
        n = rng.choice((rng.randint(1, 30), rng.randint(1, 300_000), int(2 ** rng.uniform(0, 32))))
        p = rng.choice((rng.random(), 10 ** rng.uniform(-12, 0), 10 ** rng.uniform(-300, 0)))
        drawn.append((min(n, 2**32 - 1), min(max(p, 5e-324), 1 - 2**-53)))
    return edges + drawn


@pytest.mark.cc
def test_size_and_functions_are_cores_over_random_parameters(tmp_path: Path) -> None:
    (tmp_path / "core.c").write_text(CORE)
    subprocess.run(["cc", "-Wall", "-Werror", "-o", tmp_path / "core", tmp_path / "core.c", "-lm"], check=True)
    asked = pairs(effort(10_000, 100_000, 2_000_000))
    lines = "".join(f"{n} {p.hex()}\n" for n, p in asked)
    answer = subprocess.run([tmp_path / "core"], input=lines, capture_output=True, text=True, check=True).stdout.split()
    core = list(zip(map(int, answer[::2]), map(int, answer[1::2]), strict=True))
    ours = [(size := filter_size(n, p), filter_hash_funcs(size, n)) for n, p in asked]
    assert ours == core
    assert dict(zip(asked, core, strict=True))[10, 0.01] == (11, 5)
    degenerate = 0
    # and the filter takes what the formula gives
    for (n, p), (size, hash_funcs) in list(zip(asked, core, strict=True))[:5_000]:
        try:
            made = Bip37Filter(n, p)
            assert (made.size, made.hash_funcs) == (size, hash_funcs)
            assert size
            assert hash_funcs
        except ParameterError:
            assert not size or not hash_funcs
            degenerate += 1
    assert degenerate > 100
