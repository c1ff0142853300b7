"""Basic values: CompactSize at its boundaries, the bounds-checked reader, header, outpoint, output, script pushes."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from bitcoin.core import CTransaction
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError, ParameterError
from spvfilter.primitives import (
    Header,
    OutPoint,
    Reader,
    TxOut,
    compact_size,
    hash_from_hex,
    hash_of,
    hash_to_hex,
    read_compact_size,
    script_pushes,
    to_bytes,
)
from spvfilter.protocol import MAX_COMPACT_SIZE

GENESIS_HEADER = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e67768f61"
    "7fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c"
)
GENESIS_HASH = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"
BOUNDARIES = {
    0: "00",
    1: "01",
    0xFC: "fc",
    0xFD: "fdfd00",
    0xFE: "fdfe00",
    0xFF: "fdff00",
    0x100: "fd0001",
    0xFFFF: "fdffff",
    0x10000: "fe00000100",
    MAX_COMPACT_SIZE: "fe00000002",
}
ABOVE_LIMIT = {
    MAX_COMPACT_SIZE + 1: "fe01000002",
    0xFFFFFFFF: "feffffffff",
    0x100000000: "ff0000000001000000",
    0xFFFFFFFFFFFFFFFF: "ffffffffffffffffff",
}
hash32 = st.binary(min_size=32, max_size=32)
u32 = st.integers(0, 0xFFFFFFFF)


class TestCompactSize:
    @pytest.mark.parametrize("value", [*BOUNDARIES, *ABOVE_LIMIT])
    def test_value_has_its_shortest_encoding(self, value: int) -> None:
        assert compact_size(value).hex() == (BOUNDARIES | ABOVE_LIMIT)[value]

    @pytest.mark.parametrize("value", BOUNDARIES)
    def test_encoding_is_parsed_at_any_offset(self, value: int) -> None:
        raw = bytes.fromhex(BOUNDARIES[value])
        assert read_compact_size(raw, 0, "count") == (value, len(raw))
        assert read_compact_size(b"ab" + raw + b"c", 2, "count") == (value, 2 + len(raw))

    @given(st.integers(0, MAX_COMPACT_SIZE))
    def test_every_length_on_the_wire_reads_back(self, value: int) -> None:
        raw = compact_size(value)
        assert read_compact_size(raw, 0, "count") == (value, len(raw))

    @pytest.mark.parametrize("value", ABOVE_LIMIT)
    def test_value_above_the_limit_is_refused(self, value: int) -> None:
        with pytest.raises(FormatError, match=f"count at byte 1: {value} is above the limit 33554432") as caught:
            read_compact_size(b"a" + bytes.fromhex(ABOVE_LIMIT[value]), 1, "count")
        assert (caught.value.offset, caught.value.field) == (1, "count")

    @pytest.mark.parametrize(
        ("raw", "value"),
        [
            ("fd0000", 0),
            ("fdfc00", 0xFC),
            ("fe00000000", 0),
            ("fefd000000", 0xFD),
            ("feffff0000", 0xFFFF),
            ("ff0000000000000000", 0),
            ("fffc00000000000000", 0xFC),
            ("ffffff000000000000", 0xFFFF),
            ("ffffffffff00000000", 0xFFFFFFFF),
        ],
    )
    def test_longer_form_than_needed_is_refused(self, raw: str, value: int) -> None:
        with pytest.raises(FormatError, match=f"non-canonical CompactSize for {value}$"):
            read_compact_size(bytes.fromhex(raw), 0, "count")

    @pytest.mark.parametrize("encoding", [*BOUNDARIES.values(), *ABOVE_LIMIT.values()])
    def test_truncation_at_every_byte_is_refused(self, encoding: str) -> None:
        raw = bytes.fromhex(encoding)
        for size in range(len(raw)):
            with pytest.raises(FormatError, match="count at byte 3: truncated"):
                read_compact_size(b"abc" + raw[:size], 3, "count")

    @pytest.mark.parametrize("value", [-1, 1 << 64])
    def test_value_that_no_compact_size_holds_is_refused(self, value: int) -> None:
        with pytest.raises(ParameterError, match=str(value)):
            compact_size(value)


class TestReader:
    def test_fields_follow_each_other_to_the_end(self) -> None:
        reader = Reader(b"\x01\x02\x03\xfd\xfd\x00xyz")
        assert reader.take(1, "a") == b"\x01"
        assert reader.uint(2, "b") == 0x0302
        assert reader.compact_size("c") == 0xFD
        assert reader.at == 6
        assert reader.take(0, "nothing") == b""
        assert reader.take(3, "d") == b"xyz"
        reader.finish("message")

    @given(st.binary(max_size=20), st.integers(0, 30), st.integers(0, 30))
    def test_it_never_reads_past_the_end(self, raw: bytes, first: int, second: int) -> None:
        reader = Reader(raw)
        expected, at = [raw[:first], raw[first : first + second]], 0
        for size, piece in zip((first, second), expected, strict=True):
            if len(piece) < size:
                with pytest.raises(
                    FormatError, match=f"^field at byte {at}: truncated: expected {size} bytes, {len(raw) - at} left$"
                ):
                    reader.take(size, "field")
                assert reader.at == at
                return
            assert reader.take(size, "field") == piece
            at += size

    def test_short_integer_names_field_and_offset(self) -> None:
        reader = Reader(b"\x00" * 5, 2)
        with pytest.raises(FormatError) as caught:
            reader.uint(4, "lock time")
        assert (caught.value.field, caught.value.offset) == ("lock time", 2)

    def test_bad_compact_size_leaves_the_cursor(self) -> None:
        reader = Reader(b"a\xfd\x00", 1)
        with pytest.raises(FormatError, match="inputs at byte 1: truncated"):
            reader.compact_size("inputs")
        assert reader.at == 1

    def test_trailing_bytes_are_refused(self) -> None:
        reader = Reader(b"abc")
        reader.take(1, "a")
        with pytest.raises(FormatError, match="message at byte 1: 2 trailing bytes"):
            reader.finish("message")

    def test_format_error_survives_pickling(self) -> None:
        error = pickle.loads(pickle.dumps(FormatError("too short", offset=7, field="script")))
        assert (str(error), error.offset, error.field) == ("script at byte 7: too short", 7, "script")


class TestToBytes:
    @pytest.mark.parametrize(
        "raw",
        [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"a_b_c")[::2]],
        ids=["bytes", "bytearray", "memoryview", "strided"],
    )
    def test_bytes_like_is_copied_to_bytes(self, raw: Any) -> None:
        serialised = to_bytes(raw)
        assert type(serialised) is bytes
        assert serialised == b"abc"

    def test_transaction_of_python_bitcoinlib_is_serialised(self) -> None:
        tx = CTransaction()
        assert to_bytes(tx) == tx.serialize()

    @pytest.mark.parametrize("raw", [5, 0, True, "00", None, [1, 2], 1.5, object], ids=repr)
    def test_anything_else_is_a_type_error(self, raw: Any) -> None:
        with pytest.raises(TypeError, match=f"not {type(raw).__name__}"):
            to_bytes(raw)


class TestHashText:
    @given(hash32)
    def test_display_form_reads_back(self, raw: bytes) -> None:
        text = hash_to_hex(raw)
        assert text == bytes(reversed(raw)).hex()
        assert hash_from_hex(text) == hash_from_hex(text.upper()) == raw

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "00",
            "0" * 62,
            "0" * 63,
            "0" * 65,
            "0" * 66,
            "g" + "0" * 63,
            "0x" + "0" * 62,
            "00 " * 21 + "0",
            " " + "0" * 64,
            "٠" * 64,
        ],
    )
    def test_text_without_64_hex_digits_is_refused(self, text: str) -> None:
        with pytest.raises(ParameterError, match=r"a hash must be 64 hex digits, but these \d+ characters are not"):
            hash_from_hex(text)

    def test_hash_is_taken_as_bytes_or_as_hex(self) -> None:
        raw = bytes(range(32))
        assert hash_of(raw, "txid") == hash_of(hash_to_hex(raw), "txid") == raw

    @pytest.mark.parametrize("value", [bytes(31), bytes(33), bytearray(32), None, 5])
    def test_other_value_than_a_hash_is_refused(self, value: Any) -> None:
        with pytest.raises(ParameterError, match="a txid must be 32 bytes or 64 hex digits, not "):
            hash_of(value, "txid")

    def test_message_does_not_repeat_a_megabyte(self) -> None:
        with pytest.raises(ParameterError) as caught:
            hash_from_hex("0" * 1_000_000)
        assert len(str(caught.value)) < 200


class TestOutPoint:
    @given(hash32, u32)
    def test_bytes_and_text_read_back(self, txid: bytes, index: int) -> None:
        outpoint = OutPoint(txid, index)
        assert len(bytes(outpoint)) == 36
        assert OutPoint.parse(bytes(outpoint)) == outpoint
        assert OutPoint.from_text(str(outpoint)) == outpoint

    def test_wire_order_and_display_order_differ(self) -> None:
        outpoint = OutPoint(bytes(range(32)), 258)
        assert bytes(outpoint) == bytes(range(32)) + b"\x02\x01\x00\x00"
        assert str(outpoint) == bytes(reversed(range(32))).hex() + ":258"

    @pytest.mark.parametrize("size", [0, 35, 37])
    def test_other_size_than_36_bytes_is_refused(self, size: int) -> None:
        with pytest.raises(FormatError, match=f"an outpoint must be 36 bytes long, not {size}"):
            OutPoint.parse(bytes(size))

    @pytest.mark.parametrize("size", [0, 31, 33, 64])
    def test_txid_of_other_size_is_refused(self, size: int) -> None:
        with pytest.raises(ParameterError, match=f"a txid must be 32 bytes long, not {size}"):
            OutPoint(bytes(size), 0)

    @pytest.mark.parametrize("index", [-1, 1 << 32])
    def test_index_that_no_u32_holds_is_refused(self, index: int) -> None:
        with pytest.raises(ParameterError, match=f"an output index must be from 0 to 4294967295, not {index}"):
            OutPoint(bytes(32), index)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            ":",
            "00" * 32,
            "00" * 32 + ":",
            "00" * 32 + ":-1",
            "00" * 32 + ":+1",
            "00" * 32 + ": 1",
            "00" * 32 + ":1_0",
            "00" * 32 + ":0x1",
            "00" * 32 + ":²",
            "00" * 32 + ":٣",
            "00" * 32 + ":4294967296",
            "00" * 32 + ":" + "9" * 5000,
            "00" * 32 + ":" + "0" * 20 + "7",
            "00" * 31 + ":0",
            "0:" + "00" * 32,
            "00" * 32 + ":0:0",
        ],
        ids=lambda text: text[-12:],
    )
    def test_text_that_is_no_outpoint_is_refused_in_short(self, text: str) -> None:
        with pytest.raises(ParameterError) as caught:
            OutPoint.from_text(text)
        assert len(str(caught.value)) < 200


class TestHeader:
    def test_genesis_header_has_the_published_fields_and_hash(self) -> None:
        header = Header.parse(GENESIS_HEADER)
        assert (header.version, header.previous, header.time) == (1, bytes(32), 1231006505)
        assert (header.bits, header.nonce) == (0x1D00FFFF, 2083236893)
        assert hash_to_hex(header.merkle_root) == "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b"
        assert hash_to_hex(header.hash) == GENESIS_HASH

    @given(st.builds(Header, st.integers(-(1 << 31), (1 << 31) - 1), hash32, hash32, u32, u32, u32))
    def test_fields_survive_serialising(self, header: Header) -> None:
        assert len(bytes(header)) == 80
        assert Header.parse(bytes(header)) == header

    def test_its_hashes_are_shown_in_hex(self) -> None:
        header = Header(1, b"\x01" + bytes(31), b"\x02" + bytes(31), 3, 4, 5)
        assert (header.previous_hex, header.merkle_root_hex) == ("00" * 31 + "01", "00" * 31 + "02")
        assert header.hash_hex == hash_to_hex(header.hash)

    @pytest.mark.parametrize(
        ("field", "value", "error"),
        [
            ("version", 1 << 31, ParameterError),
            ("version", -(1 << 31) - 1, ParameterError),
            ("version", "1", TypeError),
            ("previous", bytes(31), ParameterError),
            ("previous", "00" * 32, TypeError),
            ("merkle_root", bytes(33), ParameterError),
            ("merkle_root", None, TypeError),
            *((name, value, ParameterError) for name in ("time", "bits", "nonce") for value in (-1, 1 << 32)),
            *((name, 1.0, TypeError) for name in ("time", "bits", "nonce")),
        ],
    )
    def test_field_that_does_not_fit_is_refused(self, field: str, value: Any, error: type[Exception]) -> None:
        with pytest.raises(error, match="hashes" if isinstance(value, bytes) else field):
            dataclasses.replace(Header.parse(GENESIS_HEADER), **{field: value})

    @pytest.mark.parametrize("size", [0, 79, 81])
    def test_other_size_than_80_bytes_is_refused(self, size: int) -> None:
        with pytest.raises(FormatError, match=f"a header must be 80 bytes long, not {size}"):
            Header.parse(bytes(size))


class TestTxOut:
    @given(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=300))
    def test_bytes_are_value_length_and_script(self, value: int, script: bytes) -> None:
        reader = Reader(bytes(TxOut.parsed(value, script)))
        assert int.from_bytes(reader.take(8, "value"), "little", signed=True) == value
        assert reader.take(reader.compact_size("script length"), "script") == script
        reader.finish("output")

    def test_known_output(self) -> None:
        assert bytes(TxOut(5_000_000_000, b"\x51")).hex() == "00f2052a010000000151"

    @pytest.mark.parametrize("script", ["bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080", None, bytearray(b"\x51")])
    def test_script_of_another_type_is_refused(self, script: Any) -> None:
        with pytest.raises(TypeError, match=f"such as address_to_script returns, not {type(script).__name__}$"):
            TxOut(5_000, script)

    @pytest.mark.parametrize("value", [0.5, True, "5", None, b"5"])
    def test_value_of_another_type_is_refused(self, value: Any) -> None:
        with pytest.raises(TypeError, match=f"value: expected a whole number of satoshi, not {type(value).__name__}$"):
            TxOut(value, b"\x51")

    @pytest.mark.parametrize("value", [0, (1 << 63) - 1])
    def test_value_at_the_end_of_its_range_is_taken(self, value: int) -> None:
        assert TxOut(value, b"").value == value

    @pytest.mark.parametrize("value", [-1, -(1 << 63), 1 << 63])
    def test_value_outside_its_range_is_refused(self, value: int) -> None:
        with pytest.raises(ParameterError, match="value: expected 0 to 2"):
            TxOut(value, b"\x51")

    def test_swapped_arguments_are_refused(self) -> None:
        swapped: Any = (b"\x51", 5_000)
        with pytest.raises(TypeError, match=r"script_pubkey: expected bytes, .* not int$"):
            TxOut(*swapped)


class TestScriptPushes:
    @pytest.mark.parametrize(
        ("script", "pushes"),
        [
            ("", []),
            ("01aa", ["aa"]),
            ("02aabb01cc", ["aabb", "cc"]),
            ("4b" + "ab" * 75, ["ab" * 75]),
            ("4c01aa", ["aa"]),
            ("4cff" + "ab" * 255, ["ab" * 255]),
            ("4d0100aa", ["aa"]),
            ("4d0001" + "ab" * 256, ["ab" * 256]),
            ("4e01000000aa", ["aa"]),
            ("76a914" + "11" * 20 + "88ac", ["11" * 20]),
            ("5121" + "02" * 33 + "51ae", ["02" * 33]),
            ("ac01aa", ["aa"]),
        ],
    )
    def test_pushes_come_in_order(self, script: str, pushes: list[str]) -> None:
        assert [push.hex() for push in script_pushes(bytes.fromhex(script))] == pushes

    def test_an_opcode_without_data_pushes_nothing(self) -> None:
        for opcode in (0x00, *range(0x4F, 0x100)):
            assert list(script_pushes(bytes((opcode, 1, 0xAA, opcode)))) == [b"\xaa"], hex(opcode)

    @pytest.mark.parametrize("empty", ["4c00", "4d0000", "4e00000000"])
    def test_empty_push_is_no_push(self, empty: str) -> None:
        assert list(script_pushes(bytes.fromhex("01aa" + empty + "01bb"))) == [b"\xaa", b"\xbb"]

    @pytest.mark.parametrize("push", ["05aabbccddee", "4c02aabb", "4d0200aabb", "4e02000000aabb"])
    def test_truncated_push_keeps_the_earlier_ones_alone(self, push: str) -> None:
        raw = bytes.fromhex(push)
        assert list(script_pushes(b"\x01\x99" + raw)) == [b"\x99", raw[-2:] if raw[0] > 0x4B else raw[1:]]
        for size in range(1, len(raw)):
            assert list(script_pushes(b"\x01\x99" + raw[:size])) == [b"\x99"]

    @pytest.mark.parametrize("huge", ["4cff", "4dffff", "4effffffff"])
    def test_length_far_past_the_end_ends_the_walk(self, huge: str) -> None:
        assert list(script_pushes(bytes.fromhex("01aa" + huge + "01bb"))) == [b"\xaa"]

    @given(st.lists(st.binary(min_size=1, max_size=600), max_size=5))
    def test_pushed_data_is_returned(self, pieces: list[bytes]) -> None:
        script = b"".join(
            bytes((len(piece),)) + piece if len(piece) <= 75 else b"\x4d" + len(piece).to_bytes(2, "little") + piece
            for piece in pieces
        )
        assert list(script_pushes(script)) == pieces
