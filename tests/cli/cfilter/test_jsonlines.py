"""Lines of filters: lines of `build` are read without a JSON parser, with the same result as by a parser."""

from __future__ import annotations

import json
import random
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from spvfilter.cli.cfilter.jsonlines import FilterRecord, read_records
from spvfilter.errors import SourceError

DIGESTS = st.binary(min_size=32, max_size=32)
HEIGHTS = st.integers(0, 2**31)
RECORDS = st.builds(
    FilterRecord, DIGESTS, st.none() | DIGESTS, st.none() | HEIGHTS, st.binary(max_size=40), st.none() | DIGESTS
)
PIECES = [b"", b'"', b",", b"0", b"a", b"F", b" ", b"\n", b"\\", b"}", b"-", b"\x0b", b"\xff", b"null"]


def written(record: FilterRecord, n: int = 7) -> bytes:
    """The line that `build` and `export` print for a record."""
    return json.dumps(record.line(n), separators=(",", ":")).encode() + b"\n"


def read(raw: bytes, folder: Path) -> list[FilterRecord] | str:
    """The records of a file, or the error of its first wrong line."""
    path = folder / "lines"
    path.write_bytes(raw)
    try:
        return [record for _, record in read_records(str(path))]
    except SourceError as error:
        return str(error)


@given(RECORDS, st.sampled_from([b"\n", b"\r\n", b"", b" \t\n"]))
def test_a_written_line_is_read_without_a_parser(
    tmp_path_factory: pytest.TempPathFactory, record: FilterRecord, end: bytes
) -> None:
    line, folder = written(record)[:-1] + end, tmp_path_factory.getbasetemp()
    with patch.object(json, "loads", side_effect=AssertionError):
        assert read(line, folder) == [record]
    assert read(b" " + line, folder) == [record]
    assert isinstance(read(line.upper().replace(b"NULL", b"null"), folder), str)  # names are lower case


@given(RECORDS, st.randoms(use_true_random=False))
def test_a_changed_line_is_read_as_by_a_parser(
    tmp_path_factory: pytest.TempPathFactory, record: FilterRecord, rng: random.Random
) -> None:
    """A space in front sends each line to the parser."""
    line = bytearray(written(record))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(line))
        piece = rng.choice([*PIECES, bytes(line[at : at + 9])])
        line[at : at + rng.randrange(3)] = piece
    folder = tmp_path_factory.getbasetemp()
    assert read(bytes(line), folder) == read(b"\n".join(b" " + each for each in line.split(b"\n")), folder)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda fields: dict(reversed(fields.items())), True),  # in another order
        (lambda fields: {**fields, "more": 5}, True),
        (lambda fields: {name: fields[name] for name in ("block", "filter")}, False),
        (lambda fields: {**fields, "filter": fields["filter"].upper(), "block": fields["block"].upper()}, True),
        (lambda fields: {**fields, "filter": "01 ab cd"}, True),
        (lambda fields: {**fields, "height": 10**30}, False),
    ],
)
def test_other_forms_of_json_are_read(tmp_path: Path, change: object, same: bool) -> None:
    record = FilterRecord(bytes(range(32)), bytes(32), 5, b"\x01\xab\xcd", bytes(reversed(range(32))))
    path = tmp_path / "f"
    assert callable(change)
    path.write_text("\n" + json.dumps(change(record.line(1))) + "\n\n" + written(record).decode(), encoding="utf-8-sig")
    (first, read), (second, last) = read_records(str(path))
    assert (first, second, last) == (2, 4, record)
    assert (read == record) is same
    assert (read.block, read.data) == (record.block, record.data)


@pytest.mark.parametrize(
    ("find", "put", "message"),
    [
        (b'"filter":"01abcd"', b'"filter":"01abce"', "the filter does not match its filter_hash: the line is damaged"),
        (b'"filter":"01abcd"', b'"filter":"01abc"', '"filter" is not hex'),
        (b'"filter":"01abcd"', b'"filter":"01abcx"', '"filter" is not hex'),
        (b'"filter":"01abcd"', b'"filter":7', 'not an object with "block" and "filter"'),
        (b'"filter":"01abcd"', b'"filter":"01abcd', "not JSON"),
        (b'"block":"1f', b'"block":"xf', "a hash must be 64 hex digits"),
        (b'"block":"1f', b'"block":"f', "a hash must be 64 hex digits"),
        (b'"height":5', b'"height":05', "not JSON"),
        (b"}\n", b"}}\n", "not JSON"),
        (b"}\n", b"}\x0b\n", "not JSON"),
        (b"}\n", b"", "not JSON"),
        (b'{"block', b"[{", "not JSON"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, find: bytes, put: bytes, message: str) -> None:
    line = written(FilterRecord(bytes(range(32)), bytes(32), 5, b"\x01\xab\xcd", None))
    assert line.count(find) == 1
    path = tmp_path / "f"
    path.write_bytes(line + line.replace(find, put))
    with pytest.raises(SourceError, match=f"line 2: {message}"):
        list(read_records(str(path)))
