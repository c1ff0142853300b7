"""Links, bits, rules and indexes of headers, and filter-header chains, on the active backend and the reference."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter import kernel
from spvfilter.errors import FormatError, ParameterError
from spvfilter.filters.bip158 import filter_headers
from spvfilter.kernel.pure import headers as pure
from support.blocks.build import sha256d

TWINS = pytest.mark.parametrize("twin", [kernel, pure], ids=["chosen", "pure"])
HIGHEST = (1 << 256) - 1
RULED = 1_000  # bits of the usual headers here
LATE = 2_000


def run(count: int, seed: int = 0) -> tuple[bytes, bytes]:
    """Linked headers and their hashes."""
    rng, previous, raw = random.Random(seed), bytes(32), []
    for _ in range(count):
        raw.append(bytes(4) + previous + rng.randbytes(44))
        previous = sha256d(raw[-1])
    return b"".join(raw), b"".join(map(sha256d, raw))


def difficulty(bits: int, target: int = HIGHEST) -> bytes:
    return bits.to_bytes(4, "little") + target.to_bytes(32, "little")


def header(time: int, bits: int = RULED, version: int = 4) -> bytes:
    return struct.pack("<i64xII4x", version, time, bits)


def judge(
    twin: Any, raw: bytes, times: list[int] | bytes, hashes: bytes | None = None, **changes: Any
) -> tuple[int, int]:
    arguments = {
        "headers": raw,
        "hashes": bytes(32 * (len(raw) // 80)) if hashes is None else hashes,
        "times": times if isinstance(times, bytes) else b"".join(time.to_bytes(4, "little") for time in times),
        "usual": difficulty(RULED),
        "late": difficulty(LATE),
        "late_by": 1_200,
        "least_version": 2,
        "latest": 1 << 32,
    } | changes
    judged: tuple[int, int] = twin.judge_headers(*arguments.values())
    return judged


@TWINS
def test_links_are_counted_up_to_the_first_wrong_one(twin: ModuleType) -> None:
    raw, hashes = run(9)
    assert [twin.linked_headers(raw[: 80 * count], hashes[: 32 * count]) for count in range(10)] == list(range(10))
    for at in range(1, 9):
        for byte in (4, 20, 35):
            false = bytearray(raw)
            false[80 * at + byte] ^= 1
            assert twin.linked_headers(bytes(false), hashes) == at
    false = bytearray(raw)
    false[4] ^= 1  # the parent of the first header does not matter
    assert twin.linked_headers(bytes(false), hashes) == 9


@TWINS
def test_equal_bits_are_counted(twin: ModuleType) -> None:
    raw = b"".join(header(0, bits) for bits in (5, 5, 5, 0xFFFFFFFF, 5, 0, 0))
    assert twin.header_bits(raw) == [(5, 3), (0xFFFFFFFF, 1), (5, 1), (0, 2)]
    assert twin.header_bits(b"") == []


@TWINS
def test_each_rule_stops_at_the_first_violation(twin: ModuleType) -> None:
    times = [1_000 * number for number in range(1, 12)]
    good = b"".join(header(11_000 + 600 * number) for number in range(1, 6))
    assert judge(twin, good, times) == (5, 0)
    assert judge(twin, b"", times) == (0, 0)
    for broken in (
        header(14_600, RULED + 1),  # other bits
        header(14_600, LATE),  # bits of late headers, 600 seconds later
        header(15_300, RULED),  # usual bits, 1,300 seconds later
        header(10_999 - 11_000 + 8_999),  # below the median
        header(14_600, version=1),
    ):
        assert judge(twin, good + broken + good, times) == (5, 0)
    assert judge(twin, good, times, latest=12_800) == (3, 0)
    assert judge(twin, good, times, latest=-1) == (0, 0)
    hashes = (7).to_bytes(32, "little") * 2 + bytes(31) + b"\1" + bytes(64)
    assert judge(twin, good, times, hashes, usual=difficulty(RULED, 7)) == (2, 0)


@TWINS
def test_a_header_is_late_from_one_second_above_the_limit(twin: ModuleType) -> None:
    raw = header(12_200) + header(13_401, LATE) + header(14_000) + header(16_000, LATE)
    assert judge(twin, raw, [11_000]) == (4, 2)
    assert judge(twin, header(12_201), [11_000]) == (0, 0)
    assert judge(twin, header(12_200, LATE), [11_000]) == (0, 0)
    assert judge(twin, header(0xFFFFFFFF), [11_000], late_by=1 << 32) == (1, 0)
    assert judge(twin, header(12_300, LATE), [11_000], late=difficulty(LATE, 5), hashes=(6).to_bytes(32, "little")) == (
        0,
        0,
    )
    assert judge(twin, header(12_300, LATE), [11_000], late=difficulty(LATE, 6), hashes=(6).to_bytes(32, "little")) == (
        1,
        1,
    )


@TWINS
@pytest.mark.parametrize("byte", range(32))
def test_every_byte_of_a_hash_matters_for_the_target(twin: ModuleType, byte: int) -> None:
    target = 0x5A << 8 * byte
    for value, count in ((target, 1), (target - 1, 1), (target + 1, 0), (target + (1 << 8 * byte), 0)):
        assert judge(twin, header(2), [1], usual=difficulty(RULED, target), hashes=value.to_bytes(32, "little")) == (
            count,
            0,
        )


@pytest.mark.native
@given(st.integers(0, 1 << 32))
def test_both_kernels_judge_any_headers_the_same(seed: int) -> None:
    rng = random.Random(seed)
    times = [rng.randrange(5_000, 5_020) for _ in range(rng.randrange(1, 12))]
    time, raw = times[-1], []
    for _ in range(rng.randrange(40)):
        late = rng.random() < 0.2
        time = max(0, time + (rng.randrange(1_199, 1_300) if late else rng.randrange(-10, 30)))
        raw.append(
            header(time, LATE if late and rng.random() < 0.9 else RULED, rng.choice((2, 2, 2, 2, 2, 2, 3, -1, 1)))
        )
    hashes = b"".join(rng.choice((0, 0, 0, 0, 5, 6)).to_bytes(32, "little") for _ in raw)
    changes = {
        "usual": difficulty(RULED, 5),
        "late_by": rng.choice((0, 1_200, 1 << 32)),
        "least_version": rng.choice((-5, 1, 2)),
    }
    changes["latest"] = rng.choice((1 << 32, time, 5_010, 0, -1))
    ours, theirs = (judge(twin, b"".join(raw), times, hashes, **changes) for twin in (kernel, pure))
    assert ours == theirs


def sizes() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, 40), min_size=1, max_size=5)


@pytest.mark.few(1)
@TWINS
@given(sizes(), st.integers(0, 1 << 32))
def test_indexes_and_joined_indexes_find_each_header(twin: Any, counts: list[int], seed: int) -> None:
    rng = random.Random(seed)
    names = [rng.choice((b"same", b"salt", rng.randbytes(4))) + rng.randbytes(28) for _ in range(sum(counts))]
    raw = b"".join(bytes(4) + name + bytes(44) for name in [bytes(32), *names[:-1]])
    indexes, at = [], 0
    for count in counts:
        indexes.append(twin.index_headers(raw[80 * at : 80 * (at + count)], names[at + count - 1]))
        assert indexes[-1] == pure.index_headers(raw[80 * at : 80 * (at + count)], names[at + count - 1])
        at += count
    joined = twin.join_indexes(indexes)
    assert joined == twin.index_headers(raw, names[-1]) == pure.join_indexes(indexes)
    assert len(joined) == 6 * len(names)
    places = [(place, number) for place, count in enumerate(counts) for number in range(count)]
    for name in [*names, b"same".ljust(32, b"\0"), bytes(32), b"\xff" * 32]:
        alike = [number for number, each in enumerate(names) if each[:4] == name[:4]]
        assert twin.find_header([joined], name) == [(0, number) for number in alike]
        assert twin.find_header(tuple(indexes), name) == [places[number] for number in alike]


@pytest.mark.few(1)
@TWINS
def test_an_index_has_at_most_65536_headers(twin: Any) -> None:
    raw, last = random.Random(1).randbytes(80 * 65_536), bytes(32)
    index = twin.index_headers(raw, last)
    assert index == pure.index_headers(raw, last)
    assert twin.find_header([index], last)[-1] == (0, 65_535)
    names = [raw[at + 4 : at + 36] for at in range(80, len(raw), 80 * 97)]
    assert all((0, 97 * number) in twin.find_header([index], name) for number, name in enumerate(names))
    alike = twin.index_headers(
        b"".join(bytes(4) + b"\xee" * 31 + bytes([at % 256]) + bytes(44) for at in range(3_000)), b"\xdd" * 32
    )
    assert twin.find_header([alike], b"\xee" * 32) == [(0, number) for number in range(2_999)]
    assert twin.find_header([alike], b"\xdd" * 32) == [(0, 2_999)]
    assert not twin.find_header([alike], bytes(32))
    assert twin.join_indexes([index]) == index
    with pytest.raises(ParameterError, match="an index takes 1 to 65536 headers, not 65537"):
        twin.index_headers(raw + bytes(80), last)
    with pytest.raises(ParameterError, match="an index takes 1 to 65536 headers, not 65537"):
        twin.join_indexes([index, bytes(6)])


@TWINS
@pytest.mark.parametrize("count", [0, 1, 2, 2_000])
def test_each_filter_header_commits_to_the_previous_one(twin: Any, count: int) -> None:
    rng = random.Random(count)
    hashes, previous = [rng.randbytes(32) for _ in range(count)], rng.randbytes(32)
    assert twin.chain_filter_headers(b"".join(hashes), previous) == b"".join(filter_headers(hashes, previous))


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "too few hashes": (
        lambda twin: twin.linked_headers(bytes(160), bytes(32)),
        "the hashes of 2 headers must be 64 bytes long, not 32",
    ),
    "no times": (lambda twin: judge(twin, bytes(80), []), "expected 1 to 11 times of 4 bytes each, not 0 bytes"),
    "a part of a time": (
        lambda twin: judge(twin, bytes(80), bytes(5)),
        "expected 1 to 11 times of 4 bytes each, not 5 bytes",
    ),
    "twelve times": (
        lambda twin: judge(twin, bytes(80), [1] * 12),
        "expected 1 to 11 times of 4 bytes each, not 48 bytes",
    ),
    "hashes of others": (
        lambda twin: judge(twin, bytes(80), [1], bytes(64)),
        "the hashes of 1 headers must be 32 bytes long, not 64",
    ),
    "no target": (
        lambda twin: judge(twin, bytes(80), [1], usual=bytes(4)),
        "bits and target must be 36 bytes long, not 4",
    ),
    "no late target": (
        lambda twin: judge(twin, bytes(80), [1], late=bytes(37)),
        "bits and target must be 36 bytes long, not 37",
    ),
    "a negative lateness": (
        lambda twin: judge(twin, b"", [1], late_by=-1),
        "a difference of times must be from 0 to 2^32, not -1",
    ),
    "a long version": (
        lambda twin: judge(twin, b"", [1], least_version=1 << 31),
        "a version must be a signed 32-bit number, not 2147483648",
    ),
    "a late time": (
        lambda twin: judge(twin, b"", [1], latest=(1 << 32) + 1),
        "the latest time must be from -1 to 2^32, not 4294967297",
    ),
    "an index of nothing": (
        lambda twin: twin.index_headers(b"", bytes(32)),
        "an index takes 1 to 65536 headers, not 0",
    ),
    "nothing joined": (lambda twin: twin.join_indexes([]), "an index takes 1 to 65536 headers, not 0"),
    "a short last hash": (
        lambda twin: twin.index_headers(bytes(80), bytes(31)),
        "a hash must be 32 bytes long, not 31",
    ),
    "a short hash": (lambda twin: twin.find_header([], bytes(31)), "a hash must be 32 bytes long, not 31"),
    "no index": (
        lambda twin: twin.find_header([bytes(7)], bytes(32)),
        "an index must be a multiple of 6 bytes long, not 7",
    ),
    "none to join": (
        lambda twin: twin.join_indexes([bytes(6), bytes(7)]),
        "an index must be a multiple of 6 bytes long, not 7",
    ),
    "a number twice": (lambda twin: twin.join_indexes([bytes(12)]), "an index must contain each number exactly once"),
    "a number too high": (
        lambda twin: twin.join_indexes([bytes(4) + b"\1\0"]),
        "an index must contain each number exactly once",
    ),
    "a part of a filter hash": (
        lambda twin: twin.chain_filter_headers(bytes(33), bytes(32)),
        "filter hashes must be a multiple of 32 bytes long, not 33",
    ),
    "a short filter header": (
        lambda twin: twin.chain_filter_headers(b"", bytes(33)),
        "a hash must be 32 bytes long, not 33",
    ),
}


@TWINS
@pytest.mark.parametrize("name", REFUSED)
def test_invalid_arguments_are_refused(twin: ModuleType, name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ParameterError) as caught:
        call(twin)
    assert str(caught.value) == message


@TWINS
@pytest.mark.parametrize("name", ["linked_headers", "header_bits", "judge_headers", "index_headers"])
def test_a_truncated_header_is_refused(twin: ModuleType, name: str) -> None:
    judging: list[Any] = [bytes(32), bytes(4), bytes(36), bytes(36), 0, 0, 0]
    rest: dict[str, list[Any]] = {"linked_headers": [bytes(32)], "index_headers": [bytes(32)], "judge_headers": judging}
    with pytest.raises(FormatError) as caught:
        getattr(twin, name)(bytes(159), *rest.get(name, []))
    assert (caught.value.message, caught.value.offset) == ("truncated: expected 80 bytes, 79 left", 80)
