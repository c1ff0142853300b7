"""Arrow's C data interface in both kernels: every layout, inconsistent producers, and one release of each column."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spvfilter.errors import ColumnError
from spvfilter.kernel import Encoding, Family, backend
from spvfilter.kernel.values import NUMBERS
from support.kernels.kernelentries import Kernel, core
from support.kernels.producers import Producer, Streamed, capsule, integers, view
from support.vectors import EFFORT

ROUNDS = {"quick": 60, "ci": 200, "full": 5_000}[EFFORT]
KINDS = ("BitCore", "CounterCore", "SeriesCore")
LONG = b"a text of twenty six bytes"


@pytest.fixture(params=[pytest.param("native", marks=pytest.mark.native), "pure"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return type("Kernel", (), backend.compiled() if request.param == "native" else backend.reference())


def made(kernel: Kernel, encoding: Encoding = Encoding.UTF8, kind: str = "BitCore", **changes: Any) -> Any:
    if kind == "SeriesCore":
        return kernel.SeriesCore([made(kernel, encoding, hash_funcs=functions, **changes) for functions in (5, 7)])
    return core(kernel, kind, encoding=encoding, **changes)


def contents(of: Any) -> object:
    return [bytes(slice.body) for slice in of.slices] if hasattr(of, "slices") else bytes(of.body)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


# Layouts


def packed(rng: random.Random, flags: list[bool], offset: int) -> bytes:
    """A validity bitmap with noise on both sides."""
    bits = [rng.random() < 0.5 for _ in range(offset)] + flags + [True] * 9
    return bytes(sum(bit << at for at, bit in enumerate(bits[byte : byte + 8])) for byte in range(0, len(bits), 8))


def some_texts(rng: random.Random, count: int) -> list[bytes]:
    return [
        "".join(rng.choices("abcé€😀", [9, 9, 9, 1, 1, 1], k=rng.choice([0, 1, 3, 12, 13, 20]))).encode()
        for _ in range(count)
    ]


def a_part(rng: random.Random, texts: list[bytes], kind: bytes, offset: int) -> tuple[bytes, list[bytes | None]]:
    """Format and buffers, without validity, of texts in any layout."""
    before = some_texts(rng, offset)
    everything, text = before + texts, kind == b"u"
    match rng.choice(["offsets", "large", "views", "fixed"] if not text else ["offsets", "large", "views"]):
        case "views":
            blocks, views = [b"", b""], []
            for item in everything:
                block = rng.randrange(2)
                views.append(view(item, block, len(blocks[block])))
                blocks[block] += item
            return b"v" + kind, [b"".join(views), *blocks, integers(*map(len, blocks), width=8)]
        case "fixed":
            width = rng.choice([0, 1, 20])
            texts[:] = [item[:width].ljust(width, b".") for item in texts]
            return b"w:%d" % width, [b"".join([*(bytes(width) for _ in before), *texts])]
        case size:
            ends = [rng.randrange(5)]
            for item in everything:
                ends.append(ends[-1] + len(item))
            data = bytes(ends[0]) + b"".join(everything)
            return (kind if size == "offsets" else kind.upper()), [
                integers(*ends, width=4 if size == "offsets" else 8),
                data,
            ]


def a_column(rng: random.Random) -> tuple[Producer, Encoding, list[Any]]:
    """A column of random keys in a random layout, and the list of its keys, with None for nulls."""
    count, offset = rng.choice([0, 1, 5, 70]), rng.choice([0, 0, 1, 9])
    valid = [rng.random() < 0.8 for _ in range(count)] if rng.random() < 0.5 else [True] * count
    validity = None if all(valid) and rng.random() < 0.5 else packed(rng, valid, offset)
    nulls = rng.choice([-1, valid.count(False)]) if validity else 0
    shape: dict[str, Any] = {"null_count": nulls, "offset": offset}
    encoding = rng.choice(
        [Encoding.UTF8, Encoding.BYTES, Encoding.INT64, Encoding.UINT64, Encoding.INT32, Encoding.UINT32]
    )
    if encoding in NUMBERS:
        letter = rng.choice("cCsSiIlL")
        width, signed = 1 << "cCsSiIlL".index(letter) // 2, letter.islower()
        takes_signs, most = (
            encoding in (Encoding.INT64, Encoding.INT32),
            8 if encoding in (Encoding.INT64, Encoding.UINT64) else 4,
        )
        low = -(1 << 8 * min(width, most) - 1) if signed and takes_signs else 0
        high = min(1 << 8 * width - signed, 1 << 8 * most - takes_signs)
        numbers = [rng.randrange(low, high) for _ in range(offset + count)]
        raw = b"".join(number.to_bytes(width, "little", signed=signed) for number in numbers)
        keys: list[Any] = numbers[offset:]
        producer = Producer(letter.encode(), count, [validity, raw], **shape)
    else:
        texts = some_texts(rng, count)
        format, buffers = a_part(rng, texts, b"u" if encoding is Encoding.UTF8 else b"z", offset)
        keys = [text.decode() for text in texts] if encoding is Encoding.UTF8 else texts
        producer = Producer(format, count, [validity, *buffers], **shape)
    keys = [key if there else None for key, there in zip(keys, valid, strict=True)]
    if rng.random() < 0.3:  # a dictionary of the column
        chosen = [rng.randrange(count) for _ in range(rng.randrange(50))] if count else []
        letter = rng.choice("cCsSiIlL")
        indexes = integers(*chosen, width=1 << "cCsSiIlL".index(letter) // 2)
        producer, keys = (
            Producer(letter.encode(), len(chosen), [None, indexes], dictionary=producer),
            [keys[at] for at in chosen],
        )
    if rng.random() < 0.2:  # a table whose only column it is
        skipped = rng.randrange(len(keys) + 1)
        keys = keys[skipped:]
        producer = Producer(b"+s", len(keys), [None], children=[producer], offset=skipped)
    return producer, encoding, keys


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_random_column_equals_its_keys(kernel: Kernel, kind: str) -> None:
    for seed in range(ROUNDS):
        producer, encoding, keys = a_column(random.Random(seed))
        again, _, _ = a_column(random.Random(seed))
        family = random.Random(seed).choice([Family.FAST, Family.SIPHASH, Family.BIP37, Family.REDISBLOOM])
        by_column, by_key, half = (made(kernel, encoding, kind, family=family) for _ in range(3))
        there = [key for key in keys if key is not None]
        assert by_column.update(producer, nulls="skip") == sum(by_key.add(key) for key in there), f"seed {seed}"
        assert contents(by_column) == contents(by_key), f"seed {seed}"
        half.update(there[::2])
        assert list(half.contains_many(again, nulls="skip")) == [key is not None and key in half for key in keys], (
            f"seed {seed}"
        )
        for each in (producer, again):
            assert (each.released, each.schemas_released) == (1, 1), f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_many_keys_is_added_in_pieces(kernel: Kernel, kind: str) -> None:
    count = 20_000 if kernel.BitCore.__module__.endswith("native") else 300  # more keys than one piece has
    keys = [b"%d" % number for number in range(count)]
    ends = [0]
    for key in keys:
        ends.append(ends[-1] + len(key))
    whole, single = made(kernel, kind=kind, cells=300_000), made(kernel, kind=kind, cells=300_000)
    new = sum(single.add(key.decode()) for key in keys)
    assert whole.update(Producer(b"u", count, [None, integers(*ends), b"".join(keys)])) == new
    assert contents(whole) == contents(single)
    assert whole.contains_many(Producer(b"u", count, [None, integers(*ends), b"".join(keys)])) == b"\1" * count


@pytest.mark.parametrize("keys", [[LONG, b"b"], [None, b"\xc3\xa9"]])
def test_a_users_function_gets_each_single_key(kernel: Kernel, keys: list[Any]) -> None:
    seen: list[object] = []
    own = made(
        kernel,
        Encoding.CALLABLE,
        # called for its effect
        encode=lambda key: (seen.append(key), repr(key).encode())[1],  # type: ignore[func-returns-value]
    )
    flags = bytes([sum((key is not None) << at for at, key in enumerate(keys))])
    views = b"".join(view(key or b"") for key in keys)
    for format in (b"vu", b"vz"):
        own.update(Producer(format, 2, [flags, views, LONG, integers(len(LONG), width=8)], null_count=-1), nulls="skip")
    own.update(Producer(b"L", 1, [None, b"\xff" * 8]), Producer(b"l", 1, [None, b"\xff" * 8]))
    there = [key for key in keys if key is not None]
    assert seen == [*(key.decode() for key in there), *there, 2**64 - 1, -1]


# Streams


def test_a_stream_has_its_arrays_in_order(kernel: Kernel) -> None:
    arrays = [Producer(b"u", 2, [None, integers(0, 1, 2), b"%c%c" % (97 + at, 98 + at)]) for at in range(0, 6, 2)]
    stream = Streamed(Producer(b"u", 0, []), arrays)
    of = made(kernel)
    assert of.update(stream) == 6
    assert all(letter in of for letter in "abcdef")
    assert [array.released for array in arrays] == [1, 1, 1]
    assert stream.released == 1


def test_nulls_are_numbered_over_the_complete_stream(kernel: Kernel) -> None:
    def stream() -> Streamed:
        arrays = [
            Producer(b"u", 2, [None, integers(0, 1, 2), b"ab"]),
            Producer(b"u", 2, [b"\1", integers(0, 1, 1), b"c"], null_count=1),
        ]
        return Streamed(Producer(b"u", 0, []), arrays)

    of = made(kernel)
    with pytest.raises(TypeError, match=r"^key 3 is null, which is not a key: nulls='skip' leaves nulls out$"):
        of.update(stream())
    assert "c" in of  # the keys before it are added
    assert of.contains_many(stream(), nulls="skip") == b"\1\1\1\0"
    with pytest.raises(TypeError, match="key 3 is null"):
        of.contains_many(stream())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"code": 5, "message": b"the disk is gone"},
            (OSError, "[Errno 5] a stream of Arrow arrays failed: the disk is gone"),
        ),
        ({"code": 12, "message": None}, (OSError, "[Errno 12] a stream of Arrow arrays failed: it does not say why")),
        (
            {"code": 5, "message": b"\xff\xfe", "at": "schema"},
            (OSError, "[Errno 5] a stream of Arrow arrays failed: \ufffd\ufffd"),
        ),
    ],
)
def test_a_failing_stream_reports_its_error(kernel: Kernel, given: dict[str, Any], expected: object) -> None:
    array = Producer(b"u", 1, [None, integers(0, 1), b"a"])
    stream = Streamed(Producer(b"u", 0, []), [array], **given)
    of = made(kernel)
    assert outcome(lambda: of.update(stream)) == expected
    assert stream.released == 1
    assert ("a" in of, array.released) == ((False, 0) if "at" in given else (True, 1))


def test_a_wrong_type_is_refused_before_the_first_array(kernel: Kernel) -> None:
    stream = Streamed(Producer(b"z", 0, []), [])
    with pytest.raises(TypeError, match=TEXT_KEYS.format("binary")):
        made(kernel).update(stream)
    assert stream.released == 1


# Values that single keys refuse


TEXT_KEYS = "expected a column of text, not of {}: the filter encodes its keys as utf-8"
BINARY_KEYS = "expected a column of binary, not of {}: other keys need `encode`"
UNKNOWN = "keys: expected a column of text, binary or integers, not of Arrow's type '{}'"


# Each row is the type of the filter's keys, the type of a column, and the error
@pytest.mark.parametrize(
    ("encoding", "type", "error"),
    [
        (Encoding.BYTES, "u", BINARY_KEYS.format("text")),
        (Encoding.BYTES, "l", BINARY_KEYS.format("integers")),
        (Encoding.UTF8, "w:3", TEXT_KEYS.format("binary")),
        (Encoding.INT64, "vu", "expected a column of integers, not of text: the filter encodes its keys as integers"),
        (Encoding.UTF8, "g", UNKNOWN.format("g")),
        (Encoding.INT64, "b", UNKNOWN.format("b")),
        (Encoding.INT64, "tdD", UNKNOWN.format("tdD")),
        (Encoding.UTF8, "+l", UNKNOWN.format("+l")),
        (Encoding.UTF8, "", UNKNOWN.format("")),
        (Encoding.BYTES, "w:", UNKNOWN.format("w:")),
        (Encoding.BYTES, "w:-1", UNKNOWN.format("w:-1")),
        (Encoding.BYTES, "w:99999999999", UNKNOWN.format("w:99999999999")),
        pytest.param(Encoding.UTF8, "x" * 99, UNKNOWN.format("x" * 60), id="99 letters"),
    ],
)
def test_a_column_of_another_type_is_refused(kernel: Kernel, encoding: Encoding, type: str, error: str) -> None:
    column = Producer(type.encode(), 0, [None, None, None])
    assert outcome(lambda: made(kernel, encoding).update(column)) == (TypeError, error)
    assert (column.released, column.schemas_released) == (1, 1)


@pytest.mark.parametrize(
    ("encoding", "format", "raw", "message"),
    [
        (Encoding.UINT64, b"c", b"\1\xff", "key 1: -1 does not fit into uint64"),
        (Encoding.UINT64, b"l", integers(7, -(2**63), width=8), "key 1: -9223372036854775808 does not fit into uint64"),
        (Encoding.INT64, b"L", integers(7, -1, width=8), "key 1: 18446744073709551615 does not fit into int64"),
        (Encoding.INT32, b"l", integers(7, 2**31, width=8), "key 1: 2147483648 does not fit into int32"),
        (Encoding.INT32, b"l", integers(7, -(2**31) - 1, width=8), "key 1: -2147483649 does not fit into int32"),
        (Encoding.INT32, b"I", integers(7, -1, width=4), "key 1: 4294967295 does not fit into int32"),
        (Encoding.UINT32, b"i", integers(7, -1, width=4), "key 1: -1 does not fit into uint32"),
        (Encoding.UINT32, b"L", integers(7, 2**32, width=8), "key 1: 4294967296 does not fit into uint32"),
    ],
)
def test_a_number_that_does_not_fit_is_named(
    kernel: Kernel, encoding: Encoding, format: bytes, raw: bytes, message: str
) -> None:
    of = made(kernel, encoding)
    with pytest.raises(OverflowError, match=f"^{message}$"):
        of.update(Producer(format, 2, [None, raw]))
    assert (7 if len(raw) > 2 else 1) in of


def test_a_table_of_several_columns_is_refused(kernel: Kernel) -> None:
    column = Producer(b"u", 0, [None, None, None])
    table = Producer(b"+s", 0, [None], children=[column, column])
    with pytest.raises(TypeError, match=r"^keys: expected one column, got 2: choose one of them$"):
        made(kernel).update(table)
    assert table.released == 1


@pytest.mark.parametrize("nulls", ["ignore", None, 1, "RAISE"])
def test_nulls_must_be_raise_or_skip(kernel: Kernel, nulls: Any) -> None:
    of = made(kernel)
    for call in (of.update, of.contains_many):
        with pytest.raises(ValueError, match=f"^nulls must be 'raise' or 'skip', not {nulls!r}$"):
            call(["a"], nulls=nulls)


# Producers that contradict themselves


def texts(
    length: int = 2,
    ends: bytes | None = integers(0, 1, 2),
    data: bytes | None = b"ab",
    without_buffers: bool = False,
    **changes: Any,
) -> Producer:
    if without_buffers:
        producer = Producer(b"u", length, [], n_buffers=3)
        producer.array.buffers = None
        return producer
    return Producer(b"u", length, [None, ends, data], **changes)


def views(
    *items: bytes, blocks: tuple[bytes | None, ...] = (LONG,), sizes: bytes | None = None, **changes: Any
) -> Producer:
    sizes = integers(*(len(block or b"") for block in blocks), width=8) if sizes is None else sizes
    return Producer(b"vu", len(items), [None, b"".join(items), *blocks, sizes], **changes)


def named(index: int, **changes: Any) -> Producer:
    return Producer(b"c", 1, [None, integers(index, width=1)], dictionary=texts(), **changes)


HUGE = 1 << 62
UNKEPT = {"dictionary": ctypes.pointer(texts().schema)}  # a schema has it, but no array


def error(field: str, message: str, key: int = 0) -> tuple[type[Exception], str]:
    return ColumnError, f"{field} of a column, key {key}: {message}"


# Each row is a column whose producer contradicts itself, and the error
MALFORMED: dict[str, tuple[Callable[[], Producer], tuple[type[Exception], str]]] = {
    "length": (lambda: texts(-1), error("length", "-1 rows at offset 0 are out of range")),
    "offset": (lambda: texts(offset=-5), error("length", "2 rows at offset -5 are out of range")),
    "huge length": (lambda: texts(HUGE), error("length", f"{HUGE} rows at offset 0 are out of range")),
    "huge offset": (lambda: texts(offset=HUGE), error("length", f"2 rows at offset {HUGE} are out of range")),
    "large": (lambda: texts((1 << 57) + 1), error("length", f"{(1 << 57) + 1} rows of 4 bytes are too many")),
    "null_count": (lambda: texts(null_count=-2), error("null_count", "must be from -1 to 2, not -2")),
    "too many nulls": (lambda: texts(null_count=3), error("null_count", "must be from -1 to 2, not 3")),
    "no validity": (
        lambda: texts(null_count=1),
        error("null_count", "must be at most 0 without a validity buffer, not 1"),
    ),
    "children": (lambda: texts(n_children=1), error("children", "expected none, got 1")),
    "two buffers": (lambda: texts(n_buffers=2), error("buffers", "expected 3, got 2")),
    "negative buffers": (lambda: texts(n_buffers=-1), error("buffers", "expected 3, got -1")),
    "no buffers": (lambda: texts(without_buffers=True), error("buffers", "they are missing")),
    "no offsets": (lambda: texts(ends=None), error("offsets", "the buffer is missing")),
    "no data": (lambda: texts(data=None), error("data", "the buffer is missing")),
    "negative start": (
        lambda: texts(ends=integers(-1, 1, 2)),
        error("offsets", "bytes -1 to 1 are not a range within 0 to 2"),
    ),
    "decreasing": (
        lambda: texts(3, integers(0, 2, 1, 2)),
        error("offsets", "bytes 2 to 1 are not a range within 0 to 2", key=1),
    ),
    "beyond the end": (
        lambda: texts(ends=integers(0, 9, 2)),
        error("offsets", "bytes 0 to 9 are not a range within 0 to 2"),
    ),
    "negative end": (
        lambda: texts(ends=integers(0, 1, -2)),
        error("offsets", "the last one must not be negative, but is -2"),
    ),
    "large offsets": (
        lambda: Producer(b"U", 2, [None, integers(0, 1 << 40, 2, width=8), b"ab"]),
        error("offsets", f"bytes 0 to {1 << 40} are not a range within 0 to 2"),
    ),
    "utf-8": (lambda: texts(ends=integers(0, 1, 2), data=b"a\xff"), error("text", "it is not valid UTF-8", key=1)),
    "cut": (lambda: texts(ends=integers(0, 1, 2), data="é".encode()), error("text", "it is not valid UTF-8")),
    "surrogate": (lambda: texts(1, integers(0, 3), b"\xed\xa0\x80"), error("text", "it is not valid UTF-8")),
    "overlong": (lambda: texts(1, integers(0, 2), b"\xc0\x80"), error("text", "it is not valid UTF-8")),
    "too high": (lambda: texts(1, integers(0, 4), b"\xf4\x90\x80\x80"), error("text", "it is not valid UTF-8")),
    "released": (lambda: texts(release=None), error("array", "it has already been released")),
    "schema released": (
        lambda: texts(schema_changes={"release": None}),
        error("schema", "it has already been released"),
    ),
    "no format": (lambda: texts(schema_changes={"format": None}), error("schema", "it has no format")),
    "unasked dictionary": (
        lambda: named(0, schema_changes={"dictionary": None}),
        (TypeError, TEXT_KEYS.format("integers")),
    ),
    "its type has none": (
        lambda: Producer(b"u", 0, [None, None, None], dictionary=texts(), schema_changes={"dictionary": None}),
        error("dictionary", "the array has one, but its type has none"),
    ),
    "no dictionary": (
        lambda: Producer(b"c", 1, [None, b"\0"], schema_changes=UNKEPT),
        error("dictionary", "its type has one, but the array has none"),
    ),
    "dictionary by text": (
        lambda: texts(dictionary=texts()),
        error("schema", "a dictionary's numbers are not integers"),
    ),
    "dictionary released": (
        lambda: Producer(b"c", 1, [None, b"\0"], dictionary=texts(schema_changes={"release": None})),
        error("schema", "the schema of the dictionary is missing"),
    ),
    "values released": (
        lambda: Producer(b"c", 1, [None, b"\0"], dictionary=texts(release=None)),
        error("array", "it has already been released"),
    ),
    "values malformed": (
        lambda: Producer(b"c", 1, [None, b"\1"], dictionary=texts(ends=integers(0, 2, 1))),
        error("offsets", "bytes 2 to 1 are not a range within 0 to 1"),
    ),
    "dictionary of dictionaries": (
        lambda: Producer(b"c", 1, [None, b"\0"], dictionary=named(0)),
        (TypeError, UNKNOWN.format("c")),
    ),
    "index": (lambda: named(2), error("dictionary", "number 2 is outside the dictionary, whose length is 2")),
    "negative index": (
        lambda: named(-1),
        error("dictionary", "number -1 is outside the dictionary, whose length is 2"),
    ),
    "largest index": (
        lambda: Producer(b"L", 1, [None, b"\xff" * 8], dictionary=texts()),
        error("dictionary", f"number {2**64 - 1} is outside the dictionary, whose length is 2"),
    ),
    "view size": (lambda: views(view(b"a", size=-1)), error("view", "its size must not be negative, but is -1")),
    "view block": (
        lambda: views(view(b"a"), view(LONG, 1)),
        error("view", "buffer 1 does not exist: the number of data buffers is 1", key=1),
    ),
    "view negative block": (
        lambda: views(view(LONG, -1)),
        error("view", "buffer -1 does not exist: the number of data buffers is 1"),
    ),
    "view beyond": (
        lambda: views(view(LONG, 0, 1)),
        error("view", "bytes 1 to 27 are outside buffer 0, which is 26 bytes long"),
    ),
    "view overflow": (
        lambda: views(view(LONG, 0, 2**31 - 1)),
        error("view", f"bytes {2**31 - 1} to {2**31 + 25} are outside buffer 0, which is 26 bytes long"),
    ),
    "view before": (
        lambda: views(view(LONG, 0, -1)),
        error("view", "bytes -1 to 25 are outside buffer 0, which is 26 bytes long"),
    ),
    "view prefix": (lambda: views(view(b"A" + LONG[1:])), error("view", "its prefix does not match the value")),
    "view no block": (
        lambda: views(view(LONG), blocks=(None,), sizes=integers(26, width=8)),
        error("view", "buffer 0 is missing"),
    ),
    "view beyond no block": (
        lambda: views(view(LONG, 0, 1), blocks=(None,), sizes=integers(26, width=8)),
        error("view", "bytes 1 to 27 are outside buffer 0, which is 26 bytes long"),
    ),
    "view sizes": (
        lambda: views(view(b"a"), sizes=integers(-1, width=8)),
        error("sizes", "the size of buffer 0 must not be negative, but is -1"),
    ),
    "view no sizes": (
        lambda: Producer(b"vu", 1, [None, view(b"a"), LONG, None]),
        error("sizes", "the buffer is missing"),
    ),
    "view buffers": (lambda: views(view(b"a"), n_buffers=2), error("buffers", "expected 3, got 2")),
    "view many buffers": (lambda: views(view(b"a"), n_buffers=1 << 40), error("buffers", f"expected 3, got {1 << 40}")),
    "table released": (
        lambda: Producer(b"+s", 2, [None], children=[texts()], release=None),
        error("array", "it has already been released"),
    ),
    "table of none": (
        lambda: Producer(b"+s", 2, [None], children=[texts()], n_children=0),
        error("children", "expected 1, got 0"),
    ),
    "table longer": (
        lambda: Producer(b"+s", 3, [None], children=[texts()]),
        error("length", "expected at least 3, got 2"),
    ),
    "table further": (
        lambda: Producer(b"+s", 2, [None], children=[texts()], offset=1),
        error("length", "expected at least 3, got 2"),
    ),
    "table length": (
        lambda: Producer(b"+s", -1, [None], children=[texts()]),
        error("length", "-1 rows at offset 0 are out of range"),
    ),
    "table huge": (
        lambda: Producer(b"+s", (1 << 63) - 1, [None], children=[texts()], offset=(1 << 63) - 1),
        error("length", f"{(1 << 63) - 1} rows at offset {(1 << 63) - 1} are out of range"),
    ),
    "table nulls": (
        lambda: Producer(b"+s", 2, [b"\0"], children=[texts()], null_count=2),
        error("null_count", "the table itself contains null rows; only its column may contain nulls"),
    ),
    "table without schema": (
        lambda: Producer(b"+s", 2, [None], children=[texts(schema_changes={"release": None})]),
        error("schema", "its column is missing"),
    ),
}


@pytest.mark.few(128)
@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("method", ["update", "contains_many"])
def test_an_inconsistent_producer_is_refused(kernel: Kernel, case: str, method: str) -> None:
    make, expected = MALFORMED[case]
    producer, of = make(), made(kernel)
    assert outcome(lambda: getattr(of, method)(producer)) == expected
    released = 0 if case in ("released", "table released") else 1  # the test releases it
    assert producer.released == released
    if not released:  # the end of a stream
        return
    producer = make()
    stream = Streamed(producer, [producer])
    assert outcome(lambda: getattr(of, method)(stream)) == expected
    assert stream.released == 1


def test_keys_before_a_malformed_key_are_added(kernel: Kernel) -> None:
    of = made(kernel)
    with pytest.raises(ColumnError) as refusal:
        of.update(texts(ends=integers(0, 1, 2), data=b"a\xff"))
    assert "a" in of
    assert (refusal.value.row, refusal.value.field, refusal.value.message) == (1, "text", "it is not valid UTF-8")


class Given:
    """An object that returns the test's value."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __arrow_c_array__(self, requested_schema: object = None, /) -> Any:
        return self.given


@pytest.mark.parametrize("given", [None, [1, 2], (1, 2, 3), (1, 2), b"", (None, None)])
def test_a_wrong_pair_of_capsules_is_refused(kernel: Kernel, given: Any) -> None:
    with pytest.raises(TypeError, match="capsule"):
        made(kernel).update(Given(given))


def test_capsules_with_other_names_are_refused_and_unchanged(kernel: Kernel) -> None:
    producer = texts()
    schema, array = producer.__arrow_c_array__()
    for given in ((array, schema), (schema, schema), (schema, capsule(producer.array, b"other"))):
        with pytest.raises(TypeError, match=r"expected a capsule 'arrow_(schema|array)' of Arrow's C data interface"):
            made(kernel).update(Given(given))
    assert (producer.released, producer.schemas_released) == (0, 0)
    assert made(kernel).update(Given((schema, array))) == 2
    with pytest.raises(ColumnError, match="it has already been released"):
        made(kernel).update(Given((schema, array)))
    assert (producer.released, producer.schemas_released) == (1, 1)


def test_a_stream_can_be_used_once(kernel: Kernel) -> None:
    stream = Streamed(texts(), [texts()])
    assert made(kernel).update(stream) == 2
    with pytest.raises(ColumnError, match="stream of a column, key 0: it has already been released, or is incomplete"):
        made(kernel).update(stream)
    assert stream.released == 1


def test_an_error_of_user_code_releases_the_column(kernel: Kernel) -> None:
    def refuse(key: object) -> bytes:
        raise LookupError(key)

    producer = texts()
    with pytest.raises(LookupError, match=r"^a$"):
        made(kernel, Encoding.CALLABLE, encode=refuse).update(producer)
    assert (producer.released, producer.schemas_released) == (1, 1)


class Owner:
    """An object with weak references that iterates over nothing."""

    def __init__(self) -> None:
        self.producer = texts()

    def __arrow_c_array__(self, requested_schema: object = None, /) -> Any:
        return self.producer.__arrow_c_array__()

    def __iter__(self) -> Iterator[object]:
        raise AssertionError("it is a column")


def test_no_filter_keeps_a_column(kernel: Kernel) -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    assert made(kernel).contains_many(owner) == b"\0\0"
    del owner
    gc.collect()
    assert gone() is None


@pytest.mark.native
def test_changing_offsets_never_lead_outside_the_column() -> None:
    """Another thread writes to the column. Every key still ends at or before the original last offset."""
    native = type("Kernel", (), backend.compiled())
    count = 4_096
    stop = threading.Event()
    of = made(native, Encoding.BYTES)
    producers = [Producer(b"z", count, [None, integers(*range(count + 1)), bytes(count)]) for _ in range(60)]
    fill = integers(*(random.Random(1).randrange(-9, 1 << 31) for _ in range(count)))

    def change() -> None:
        while not stop.is_set():
            for producer in producers:
                memory = producer.memory[1]
                assert memory is not None
                ctypes.memmove(memory, fill, 4 * count)
                ctypes.memmove(memory, integers(*range(count)), 4 * count)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for producer in producers:
            result = outcome(lambda producer=producer: of.update(producer))  # type: ignore[misc]
            assert isinstance(result, int) or result[0] is ColumnError
            assert producer.released == 1
    finally:
        stop.set()
        changing.join()
