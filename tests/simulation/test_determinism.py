"""A seed gives the same life in every process, byte for byte, whatever the hash seed is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.engine import make
from simulation.life import live
from simulation.plan import Plan
from spvfilter.light.events import Mode

pytestmark = pytest.mark.long

PROGRAM = """
from simulation.engine import make
from simulation.life import live
from simulation.plan import Plan
from spvfilter.light.events import Mode

plans = [*(Plan(5, mode) for mode in Mode), Plan(4, Mode.COMPACT)]
plans += [Plan(2, Mode.AUTO, keychain=True), Plan(49, Mode.COMPACT)]
print(*(live(plan, make, is_full=True).tally.digest for plan in plans))
"""


def digests(hash_seed: int) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_the_same_seed_gives_the_same_life_in_every_process() -> None:
    first = digests(1)
    assert len(set(first)) == 6
    assert digests(2) == first


def test_other_seeds_give_other_lives() -> None:
    assert len({live(Plan(seed, Mode.COMPACT), make, is_full=True).tally.digest for seed in (1, 2)}) == 2
