"""Header synchronization with one peer: in one pass if its chain has enough work, otherwise in two passes.

Headers of a chain with too little work are never stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from spvfilter.chain import HeaderChain, HeaderSync, SyncPhase, Update
from spvfilter.chain.sync import COMMITMENT_PERIOD, LOOKAHEAD
from spvfilter.errors import (
    CommitmentError,
    FormatError,
    LowWorkError,
    ParameterError,
    ProofOfWorkError,
    UnconnectedHeadersError,
)
from spvfilter.network import REGTEST, Network
from spvfilter.primitives import Header
from spvfilter.protocol import MAX_HEADERS
from support.blocks.build import sha256d
from support.blocks.headerchains import (
    NOW,
    commitment_offset,
    commitments_of,
    headers_after,
    mine,
    regular,
    tip_hash,
    unproven,
    waiting_headers,
)

SALT = bytes(range(16))


def demanding(headers: int) -> Network:
    """Regtest, with the work of a chain of this height as its minimum."""
    return replace(REGTEST, min_chain_work=2 * (headers + 1))


def fork_of(chain: HeaderChain, height: int, count: int, branch: int = 1) -> HeaderChain:
    """A copy of this chain that forks off after a height."""
    return HeaderChain.load(
        REGTEST, filter(None, [chain.headers(1, height), regular(chain, count, height=height, branch=branch)])
    )


def grown(count: int) -> HeaderChain:
    chain = HeaderChain(REGTEST)
    chain.accept(regular(chain, count), NOW)
    return chain


@dataclass(frozen=True)
class Step:
    """A message and its effect."""

    message: bytes
    before: SyncPhase
    after: SyncPhase
    height: int  # height reached by the phase
    update: Update


def talk(sync: HeaderSync, peer: HeaderChain) -> Iterator[Step]:
    """Exchange messages until the sync wants no more headers."""
    for _ in range(1_000):
        before, message = sync.phase, headers_after(peer, sync.locator())
        update = sync.receive(message, NOW)
        yield Step(message, before, sync.phase, sync.height, update)
        if not sync.wants_more:
            return
    raise AssertionError("endless")


@pytest.fixture(scope="module")
def long_chain() -> HeaderChain:
    return grown(15_000)


@pytest.mark.parametrize("size", [0, 15])
def test_a_salt_that_can_be_guessed_is_refused(size: int) -> None:
    with pytest.raises(ParameterError, match=f"a salt must be at least 16 bytes long, not {size}"):
        HeaderSync(HeaderChain(REGTEST), bytes(size))


# In one pass


def test_enough_work_is_stored_in_one_pass(long_chain: HeaderChain) -> None:
    chain = HeaderChain(REGTEST)
    steps = list(talk(HeaderSync(chain, SALT), long_chain))
    assert [step.update.stored for step in steps] == [2_000] * 7 + [1_000]
    assert all(step.before == step.after == SyncPhase.DIRECT for step in steps)
    assert chain.tip_hash == long_chain.tip_hash


def test_an_empty_answer_ends_the_sync() -> None:
    chain = grown(5)
    sync = HeaderSync(chain, SALT)
    assert sync.wants_more
    assert sync.receive(b"", NOW) == Update(5)
    assert not sync.wants_more
    # the property has changed
    assert (sync.phase, sync.height) == (SyncPhase.DIRECT, 5)  # type: ignore[unreachable]


def test_a_fork_with_less_work_is_read_completely() -> None:
    """The peer's first 2,000 headers fork off the client's chain. A locator of the client's own tip would get the same
    answer again.
    """
    chain = grown(2_100)
    peer = fork_of(chain, 40, 2_030)
    sync = HeaderSync(chain, SALT)
    steps = list(talk(sync, peer))
    assert [len(step.message) // 80 for step in steps] == [2_000, 70]
    assert [step.update.stored for step in steps] == [1_960, 70]
    assert chain.height == 2_100
    assert peer.tip_hash in chain
    assert sync.locator() == chain.locator()
    assert next(talk(HeaderSync(chain, SALT), peer)).update.stored == 0


def test_a_deep_fork_is_read_completely(
    long_chain: HeaderChain,
) -> None:
    """The first message is full and has no new header, so the next locator starts at its last header."""
    chain = HeaderChain.load(REGTEST, [long_chain.headers(1, 15_000)])
    peer = fork_of(long_chain, 9_000, 1)
    sync = HeaderSync(chain, SALT)
    first = headers_after(peer, sync.locator())
    assert sync.receive(first, NOW) == Update(15_000)
    assert 2_000 < chain.height_of(tip_hash(first)) < 9_000  # type: ignore[operator]  # it is there
    assert sync.locator()[0] == tip_hash(first)
    with pytest.raises(LowWorkError, match="ends at height 9001"):
        list(talk(sync, peer))


def test_sync_raises_the_errors_of_the_chain() -> None:
    chain = grown(20)
    sync = HeaderSync(chain, SALT)
    ahead = regular(chain, 3)
    with pytest.raises(UnconnectedHeadersError):
        sync.receive(ahead[80:], NOW)
    with pytest.raises(ProofOfWorkError):
        sync.receive(unproven(bytes(32), NOW), NOW)
    with pytest.raises(FormatError):
        sync.receive(ahead[:-1], NOW)
    assert sync.receive(ahead, NOW).stored == 3


# Two passes


def test_a_long_chain_is_read_twice_and_then_stored(long_chain: HeaderChain) -> None:
    chain = HeaderChain(demanding(13_000))
    sync = HeaderSync(chain, SALT)
    steps = list(talk(sync, long_chain))
    passes = [step for step in steps if step.before is not SyncPhase.REDOWNLOAD and step.after is not SyncPhase.DIRECT]
    assert len(passes) == 7
    assert not any(step.update.stored for step in passes)
    assert passes[-1].after is SyncPhase.REDOWNLOAD  # 14,000 headers have enough work
    stored = 0
    for step in steps[7:-2]:
        stored += step.update.stored
        assert stored == max(0, step.height - LOOKAHEAD)
        assert not step.update.old_headers
    assert [step.after for step in steps[-2:]] == [SyncPhase.DIRECT] * 2
    assert b"".join(step.update.new_headers for step in steps) == long_chain.headers(1, 15_000)
    assert chain.tip_hash == long_chain.tip_hash


@pytest.mark.parametrize(("minimum", "enough"), [(1_999, True), (2_000, True), (2_001, False), (2_500, False)])
def test_a_chain_with_exactly_the_minimum_work_is_stored(long_chain: HeaderChain, minimum: int, enough: bool) -> None:
    chain = HeaderChain(demanding(minimum))
    sync = HeaderSync(chain, SALT)
    sync.receive(long_chain.headers(1, 2_000), NOW)
    assert (chain.height, sync.phase) == ((2_000, SyncPhase.DIRECT) if enough else (0, SyncPhase.PRESYNC))


def test_a_chain_with_too_little_work_is_not_stored(long_chain: HeaderChain) -> None:
    chain = HeaderChain(demanding(15_001))
    sync = HeaderSync(chain, SALT)
    with pytest.raises(
        LowWorkError, match="the peer's chain ends at height 15000 with work 0x7532, below the required 0x7534"
    ):
        list(talk(sync, long_chain))
    assert (chain.height, sync.phase, sync.height) == (0, SyncPhase.DIRECT, 0)
    with pytest.raises(LowWorkError):
        sync.receive(long_chain.headers(1, 10), NOW)
    assert (chain.height, sync.phase) == (0, SyncPhase.DIRECT)
    empty = HeaderSync(chain, SALT)
    empty.receive(long_chain.headers(1, 2_000), NOW)
    with pytest.raises(LowWorkError):
        empty.receive(b"", NOW)


@pytest.mark.parametrize("height", [0, 1, 700, 3_000, 8_000, 13_000])
def test_other_headers_in_the_second_pass_are_never_stored(long_chain: HeaderChain, height: int) -> None:
    """The peer sends an honest chain in the first pass, and from some height on another chain in the second pass."""
    chain = HeaderChain(demanding(14_500))
    sync = HeaderSync(chain, SALT)
    forged = fork_of(long_chain, height, 15_000 - height)
    for step in talk(sync, long_chain):
        if step.after is SyncPhase.REDOWNLOAD:
            break
    told = 0
    with pytest.raises(CommitmentError, match="the peer sent different or fewer headers"):
        for step in talk(sync, forged):
            told = step.height
    assert told < height + 2_000 + COMMITMENT_PERIOD
    assert chain.height <= height
    assert chain.headers(0, 100_000) == long_chain.headers(0, chain.height + 1)
    assert (sync.phase, sync.height) == (SyncPhase.DIRECT, chain.height)


def test_the_salt_hides_where_forgeries_are_found() -> None:
    """A message ends with a hundred forged headers. With one salt in six, a commitment is among them."""
    honest = grown(2_600)
    forged = fork_of(honest, 1_900, 700)
    found = []
    for number in range(40):
        sync = HeaderSync(HeaderChain(demanding(2_500)), sha256d(bytes([number])))
        for step in talk(sync, honest):
            if step.after is SyncPhase.REDOWNLOAD:
                break
        try:
            sync.receive(forged.headers(1, 2_000), NOW)
            found.append(False)
        except CommitmentError:
            found.append(True)
        assert sync.chain.height == 0
    assert 1 <= found.count(True) <= 20


def test_commitments_cannot_be_predicted_without_the_salt(long_chain: HeaderChain) -> None:
    """Two peers have different commitments, even for the same headers at the same heights."""
    seen: dict[int, HeaderSync] = {}
    for number in range(10_000):
        sync = HeaderSync(HeaderChain(demanding(14_500)), sha256d(number.to_bytes(4, "little")))
        twin = seen.setdefault(commitment_offset(sync), sync)
        if twin is not sync:
            break
    committed = []
    for each in (sync, twin):
        for at in range(1, 14_000, 2_000):
            each.receive(long_chain.headers(at, 2_000), NOW)
        committed.append(commitments_of(each))
    assert len(committed[0]) == len(committed[1]) >= 23
    assert committed[0] != committed[1]


def test_a_second_pass_that_ends_early_is_an_error(long_chain: HeaderChain) -> None:
    chain = HeaderChain(demanding(14_500))
    sync = HeaderSync(chain, SALT)
    for step in talk(sync, long_chain):
        if step.after is SyncPhase.REDOWNLOAD:
            break
    sync.receive(long_chain.headers(1, 2_000), NOW)
    with pytest.raises(CommitmentError, match="or fewer headers up to height 3000"):
        sync.receive(long_chain.headers(2_001, 1_000), NOW)
    assert sync.phase is SyncPhase.DIRECT


@pytest.mark.parametrize("again", [False, True])
def test_announcements_during_the_passes_are_ignored(long_chain: HeaderChain, again: bool) -> None:
    chain = HeaderChain(demanding(14_500))
    sync = HeaderSync(chain, SALT)
    messages = 0
    for _ in range(100):
        message = headers_after(long_chain, sync.locator())
        if sync.phase is not SyncPhase.DIRECT:
            here = (sync.phase, sync.height, sync.locator())
            assert sync.receive(long_chain.headers(15_000, 1), NOW).stored == 0
            assert not sync.wants_more  # the answer has not arrived yet
            with pytest.raises(ProofOfWorkError):
                sync.receive(unproven(bytes(32), NOW), NOW)
            if again and sync.height > 2_000:
                sync.receive(long_chain.headers(sync.height - 500, 3), NOW)
            assert (sync.phase, sync.height, sync.locator()) == here
        sync.receive(message, NOW)
        messages += 1
        if not sync.wants_more:
            break
    assert chain.tip_hash == long_chain.tip_hash
    assert messages == 8 + 8


def test_a_bad_header_does_not_change_the_passes(long_chain: HeaderChain) -> None:
    chain = HeaderChain(demanding(14_500))
    sync = HeaderSync(chain, SALT)
    for _ in range(100):
        message = headers_after(long_chain, sync.locator())
        here = (sync.phase, sync.height, sync.locator())
        last = Header.parse(message[-80:])
        bad = message[:-80] + unproven(last.previous, last.time)
        with pytest.raises(ProofOfWorkError) as caught:
            sync.receive(bad, NOW)
        assert caught.value.index == len(message) // 80 - 1
        assert (sync.phase, sync.height, sync.locator()) == here
        sync.receive(message, NOW)
        if not sync.wants_more:
            break
    assert chain.tip_hash == long_chain.tip_hash


def test_a_reorganization_between_two_messages_restarts_the_sync(long_chain: HeaderChain) -> None:
    chain = HeaderChain(demanding(14_500))
    sync = HeaderSync(chain, SALT)
    for step in talk(sync, fork_of(long_chain, 0, 5_000)):
        if step.height == 4_000:
            break
    steps = list(talk(sync, long_chain))
    assert steps[0].height == 2_000
    assert chain.tip_hash == long_chain.tip_hash


def test_two_parallel_syncs_do_not_disturb_each_other(long_chain: HeaderChain) -> None:
    chain = HeaderChain(demanding(14_500))
    first, second = HeaderSync(chain, SALT), HeaderSync(chain, sha256d(SALT))
    talks = [talk(first, long_chain), talk(second, long_chain)]
    stored = 0
    done = [False, False]
    turn = 0
    while not all(done):
        which = 0 if turn % 3 else 1  # the first peer is twice as fast
        turn += 1
        step = next(talks[which], None)
        done[which] |= step is None
        stored += step.update.stored if step else 0
    assert stored == chain.height == 15_000
    assert (first.phase, second.phase) == (SyncPhase.DIRECT, SyncPhase.DIRECT)


# Branches


@pytest.mark.parametrize("more", [1, 2, 3_000])
def test_a_deep_branch_is_stored_if_it_has_more_work(more: int) -> None:
    chain = grown(4_300)
    ours = chain.headers(501, 3_800)
    peer = fork_of(chain, 500, 3_800 + more)
    steps = list(talk(HeaderSync(chain, SALT), peer))
    changes = [step.update for step in steps if step.update.stored]
    assert changes[0].old_headers == ours
    assert b"".join(change.new_headers for change in changes) == peer.headers(501, 100_000)
    assert changes[0].fork_height == 500
    assert chain.tip_hash == peer.tip_hash
    assert steps[0].after is SyncPhase.PRESYNC


def test_a_long_branch_is_held_until_it_has_more_work(long_chain: HeaderChain) -> None:
    chain = HeaderChain.load(REGTEST, [long_chain.headers(1, 10_000)])
    peer = fork_of(chain, 500, 9_800)
    told = 0
    for step in talk(HeaderSync(chain, SALT), peer):
        told = step.height
        assert (peer.hash_at(501) in chain) == (chain.tip_hash == peer.hash_at(chain.height))
        if step.after is SyncPhase.REDOWNLOAD:
            assert chain.tip_hash == long_chain.hash_at(10_000)
    assert told == 10_300
    assert chain.tip_hash == peer.tip_hash


@pytest.mark.parametrize("less", [0, 1, 1_000])
def test_a_deep_branch_with_less_work_is_not_stored(less: int) -> None:
    chain = grown(4_300)
    before = chain.headers(0, 5_000)
    peer = fork_of(chain, 500, 3_800 - less)
    with pytest.raises(LowWorkError):
        list(talk(HeaderSync(chain, SALT), peer))
    assert chain.headers(0, 5_000) == before
    assert peer.hash_at(501) not in chain


def test_a_branch_that_falls_behind_is_dropped() -> None:
    chain = grown(4_300)
    peer = fork_of(chain, 500, 3_900)
    sync = HeaderSync(chain, SALT)
    for step in talk(sync, peer):
        if step.after is SyncPhase.REDOWNLOAD:
            break
    chain.accept(regular(chain, 500), NOW)
    tip = chain.tip_hash
    with pytest.raises(LowWorkError, match="no longer has enough work"):
        list(talk(sync, peer))
    assert (chain.tip_hash, sync.phase) == (tip, SyncPhase.DIRECT)


def test_the_second_pass_ends_where_the_first_ended() -> None:
    """The first pass has no commitments above its end, even if the client's chain has grown meanwhile."""
    chain = grown(4_300)
    peer = fork_of(chain, 500, 9_000)
    sync = HeaderSync(chain, SALT)
    for step in talk(sync, peer):
        if step.after is SyncPhase.REDOWNLOAD:
            break
    end = peer.height_of(tip_hash(step.message))
    chain.accept(regular(chain, 6_000), NOW)
    told = []
    with pytest.raises(LowWorkError, match="no longer has enough work"):
        for step in talk(sync, peer):
            told.append(step.height)  # noqa: PERF401  # it ends in an error
    assert end is not None
    assert max(told) < end < 6_500


def test_a_branch_of_a_stored_fork_is_accepted() -> None:
    chain = grown(3_000)
    fork = regular(chain, 100, height=2_950, branch=1)
    chain.accept(fork[: 80 * 40], NOW)
    assert chain.height == 3_000
    update = HeaderSync(chain, SALT).receive(fork[80 * 20 :], NOW)
    assert (update.fork_height, update.stored) == (2_950, 60)
    assert chain.tip_hash == tip_hash(fork)


def test_a_stopped_sync_resumes_from_stored_headers(long_chain: HeaderChain) -> None:
    chain = HeaderChain(demanding(14_500))
    sync = HeaderSync(chain, SALT)
    while not chain.height:
        sync.receive(headers_after(long_chain, sync.locator()), NOW)
    assert chain.height < 14_500
    assert sync.phase is SyncPhase.REDOWNLOAD
    again = HeaderChain.load(chain.network, [chain.headers(1, chain.height)], NOW)
    steps = list(talk(HeaderSync(again, SALT), long_chain))
    assert again.tip_hash == long_chain.tip_hash
    assert sum(step.update.stored for step in steps) == 15_000 - chain.height


def test_a_message_may_be_longer_than_cores(long_chain: HeaderChain) -> None:
    """Some peers send more than 2,000 headers in a message."""
    chain = HeaderChain(REGTEST)
    sync = HeaderSync(chain, SALT)
    assert sync.receive(long_chain.headers(1, MAX_HEADERS + 1), NOW).stored == 2_001
    assert sync.wants_more
    assert mine(chain.tip_hash, NOW)[4:36] == sync.locator()[0]


def test_headers_stored_by_another_sync_are_not_kept(
    long_chain: HeaderChain,
) -> None:
    """A regression: while one peer stalled in its second pass, the headers of another peer stayed in memory."""
    chain = HeaderChain(demanding(14_500))
    first, second = HeaderSync(chain, SALT), HeaderSync(chain, SALT[::-1])
    while not chain.height:
        first.receive(headers_after(long_chain, first.locator()), NOW)
    while second.phase is not SyncPhase.REDOWNLOAD:
        second.receive(headers_after(long_chain, second.locator()), NOW)
    second.receive(headers_after(long_chain, second.locator()), NOW)
    first.receive(headers_after(long_chain, first.locator()), NOW)
    assert chain.height == 2 * MAX_HEADERS
    for step in talk(second, long_chain):
        assert len(waiting_headers(second)) <= (LOOKAHEAD + MAX_HEADERS) * 80
        assert not step.update.old_headers
    assert chain.tip_hash == long_chain.tip_hash
