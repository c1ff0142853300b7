"""Headers that the best chain refuses, each with its own error. A refusal changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spvfilter.chain import HeaderChain
from spvfilter.errors import (
    CheckpointError,
    DifficultyError,
    DiscontinuousHeadersError,
    FormatError,
    FutureHeaderError,
    HeaderError,
    InvalidHeaderError,
    LowWorkError,
    MedianTimeError,
    PeerError,
    ProofOfWorkError,
    TargetError,
    TimewarpError,
    UnconnectedHeadersError,
    VersionError,
)
from spvfilter.network import REGTEST
from spvfilter.primitives import Header
from support.blocks.build import sha256d
from support.blocks.headerchains import NOW, chain_of, grow, hashes, mine, regular, split, state, tip_hash, unproven

# Refused headers


def test_a_refused_message_stores_nothing() -> None:
    chain = chain_of(30)
    before = state(chain)
    headers = split(regular(chain, 6))
    last = sha256d(headers[-1])
    time = Header.parse(headers[-1]).time
    refused: list[tuple[bytes, type[HeaderError]]] = [
        (unproven(last, time + 600), ProofOfWorkError),
        (mine(last, time + 600, 0, limit=1 << 256), TargetError),
        (mine(last, time + 600, 0x203FFFFF), DifficultyError),
        (mine(last, time - 3_000), MedianTimeError),
        (mine(last, NOW + 7_201), FutureHeaderError),
        (mine(last, time + 600, version=3), VersionError),
        (mine(sha256d(b""), time + 600), DiscontinuousHeadersError),
        (headers[0], DiscontinuousHeadersError),
    ]
    for bad, error in refused:
        with pytest.raises(error) as caught:
            chain.accept(b"".join(headers) + bad, NOW)
        assert (type(caught.value), caught.value.index) == (error, 6)
        assert state(chain) == before
        assert not [raw for raw in headers if sha256d(raw) in chain]
    assert chain.accept(b"".join(headers), NOW).stored == 6


def test_changes_of_a_candidate_tip_do_not_change_the_chain() -> None:
    chain = chain_of(30)
    candidate = chain.examine(regular(chain, 5), NOW)
    chain.store(candidate.headers, candidate.hashes)
    bad = grow(candidate.tip.hash, [NOW - 600, NOW - 500]) + unproven(bytes(32), NOW)
    with pytest.raises(ProofOfWorkError):
        candidate.tip.advance(bad, hashes(bad), NOW)
    assert chain.tip() == HeaderChain.load(REGTEST, [chain.headers(1, 35)]).tip()


def test_a_header_from_the_future_is_accepted_later() -> None:
    chain = chain_of(3)
    headers = regular(chain, 3)
    last = mine(tip_hash(headers), NOW)
    with pytest.raises(FutureHeaderError) as caught:
        chain.accept(headers + last, NOW - 7_201)
    assert caught.value.index == 3
    assert chain.accept(headers[: 80 * caught.value.index], NOW - 7_201).stored == 3
    with pytest.raises(FutureHeaderError):
        chain.accept(last, NOW - 7_201)
    assert chain.accept(last, NOW - 7_200).stored == 1


def test_unconnected_headers_have_another_error_than_invalid_ones() -> None:
    chain = chain_of(10)
    later = regular(chain, 5)[80:]
    with pytest.raises(UnconnectedHeadersError, match="is unknown") as caught:
        chain.accept(later, NOW)
    assert not isinstance(caught.value, InvalidHeaderError)
    with pytest.raises(DiscontinuousHeadersError):
        chain.accept(later[80:] + later[:80], NOW)
    with pytest.raises(ProofOfWorkError):
        chain.accept(unproven(bytes(32), NOW), NOW)
    with pytest.raises(TargetError):
        chain.accept(mine(bytes(32), NOW, 0x2100FFFF, limit=1 << 256), NOW)


@pytest.mark.parametrize("size", [1, 79, 81, 159, 162_001])
def test_a_truncated_header_is_an_error(size: int) -> None:
    chain = chain_of(1)
    with pytest.raises(FormatError, match=f"truncated: expected 80 bytes, {size % 80} left") as caught:
        chain.accept(bytes(size), NOW)
    assert (caught.value.offset, caught.value.field) == (size - size % 80, "header")


def test_a_fork_below_a_passed_checkpoint_is_refused() -> None:
    chain = chain_of(40)
    headers = chain.headers(1, 40)
    network = replace(REGTEST, checkpoints=((10, chain.hash_at(10)), (20, chain.hash_at(20)), (60, bytes(32))))
    guarded = HeaderChain(network)
    for height in (19, 20, 40):
        guarded.accept(headers[: 80 * height], NOW)
        for root, passed in ((9, 10), (10, 20), (19, 20)):
            fork = regular(chain, 2, height=root, branch=100 * height + root)
            if height >= passed:
                latest = passed if height < 20 else 20
                with pytest.raises(
                    CheckpointError, match=f"best chain at height {root}, below the checkpoint {latest}"
                ):
                    guarded.accept(fork, NOW)
            elif root < 19:
                assert guarded.accept(fork, NOW).stored == 2
    with pytest.raises(CheckpointError, match="best chain at height 10, below the checkpoint 20"):
        guarded.accept(regular(chain, 3, height=10, branch=1910), NOW)  # one more header of a fork from before
    assert guarded.accept(regular(chain, 2, height=20, branch=9), NOW).stored == 2
    with pytest.raises(CheckpointError, match="header 10 is"):
        HeaderChain(network).accept(regular(HeaderChain(REGTEST), 15, branch=3), NOW)


def test_work_below_the_minimum_is_not_stored() -> None:
    source = chain_of(100)
    headers = source.headers(1, 100)
    network = replace(REGTEST, min_chain_work=2 * 51)
    chain = HeaderChain(network)
    for count in (1, 49):
        with pytest.raises(LowWorkError, match="below 0x66"):
            chain.accept(headers[: 80 * count], NOW)
        assert state(chain) == state(HeaderChain(network))
    assert chain.accept(headers[: 80 * 50], NOW).stored == 50
    assert chain.accept(headers[: 80 * 51], NOW).stored == 1


def test_a_fork_near_the_tip_is_stored() -> None:
    chain = chain_of(300)
    near, far = regular(chain, 1, height=155, branch=1), regular(chain, 2, height=154, branch=2)
    assert chain.required_work == 2 * (301 - 144)
    with pytest.raises(LowWorkError):
        chain.accept(far[:80], NOW)
    assert chain.accept(near, NOW).stored == 1
    assert chain.accept(far, NOW).stored == 2


# Errors


def test_the_error_class_shows_if_the_peer_lied() -> None:
    invalid = {
        DiscontinuousHeadersError,
        TargetError,
        ProofOfWorkError,
        DifficultyError,
        CheckpointError,
        MedianTimeError,
    }
    invalid |= {TimewarpError, VersionError}
    assert set(InvalidHeaderError.__subclasses__()) == invalid
    assert {FutureHeaderError, UnconnectedHeadersError, LowWorkError} < set(HeaderError.__subclasses__())
    assert issubclass(HeaderError, PeerError)
