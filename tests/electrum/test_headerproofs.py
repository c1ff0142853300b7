"""Proofs of headers against a tree that is built level by level, across segments and reorganizations."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spvfilter.electrum.headerproofs import HeaderProofs
from support.oracles.electrumoracle import double, shown, tree


class Chain:
    """Block hashes that follow from a seed."""

    def __init__(self, count: int) -> None:
        self.all = [double(b"%d" % number) for number in range(count)]

    def hash_at(self, height: int) -> bytes:
        return self.all[height]

    def hashes(self, first: int, last: int) -> Sequence[bytes]:
        return self.all[first : last + 1]


def proved(proofs: HeaderProofs, height: int, checkpoint: int) -> tuple[list[str], str]:
    assert len(list(proofs.prepare(checkpoint))) <= checkpoint // 2_048 + 1
    branch, root = proofs.proof(height, checkpoint)
    return list(map(shown, branch)), shown(root)


@pytest.mark.parametrize("checkpoint", [1, 2, 2_046, 2_047, 2_048, 2_049, 4_095, 4_096, 4_097, 5_000])
def test_branch_and_root_equal_those_of_the_whole_tree(checkpoint: int) -> None:
    chain = Chain(checkpoint + 1)
    proofs = HeaderProofs(chain)
    for height in {0, 1, checkpoint // 2, checkpoint - 1, checkpoint}:
        assert proved(proofs, height, checkpoint) == tree(chain.all[: checkpoint + 1], height)


def test_smaller_checkpoint_after_a_larger_one_has_its_own_root() -> None:
    chain = Chain(6_200)
    proofs = HeaderProofs(chain)
    for checkpoint in (6_199, 4_100, 2_048, 2_047):
        assert proved(proofs, 7, checkpoint) == tree(chain.all[: checkpoint + 1], 7)


def test_changed_block_hashes_change_the_proof() -> None:
    chain = Chain(4_200)
    proofs = HeaderProofs(chain)
    proved(proofs, 7, 4_150)
    chain.all[4_090:] = [double(each) for each in chain.all[4_090:]]
    assert proved(proofs, 7, 4_150) == tree(chain.all[:4_151], 7)
    assert list(proofs.prepare(4_150)) == []
