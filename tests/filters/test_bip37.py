"""BIP-37 filters as bytes: published filterloads, limits, refusals, and properties of every filter."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import EnvelopeError, FormatError, ParameterError
from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags, filter_hash_funcs, filter_size
from spvfilter.network import MAINNET
from spvfilter.primitives import OutPoint
from spvfilter.wire.codec import encode_message
from support.blocks import build
from support.oracles.oracle import Filter
from support.vectors import vector_cases, vector_path

CORE_ELEMENTS = [
    bytes.fromhex(text)
    for text in (
        "99108ad8ed9bb6274d3980bab5a85c048f0950c8",
        "b5a2c786d9ef4658287ced5914b37a1b4aa32eee",
        "b9300670b4c5366e95b2699e8b18bc75e5f729c5",
    )
]


def payload(field: bytes, hash_funcs: int, tweak: int = 0, flags: int = 0) -> bytes:
    return Filter(field, hash_funcs, tweak, flags).payload()


# Published filters


@vector_cases("02_bip37/filters.json")
def test_published_filters_are_reproduced(case: dict[str, Any]) -> None:
    elements, rate = case["n_elements"], case["fp_rate"]
    size = filter_size(elements, rate)
    assert size == case["filter_size"]
    assert filter_hash_funcs(size, elements) == case["hash_funcs"]
    if case.get("degenerate"):
        with pytest.raises(ParameterError, match="match everything"):
            Bip37Filter(elements, rate, case["tweak"], case["flags"])
        made = Bip37Filter.parse(bytes.fromhex(case["filterload"]))
        assert all(bytes.fromhex(element) in made for element in case["elements"] + case["contains"])
        return
    made = Bip37Filter(elements, rate, case["tweak"], case["flags"])
    for element in case["elements"]:
        made.insert(bytes.fromhex(element))
    assert (made.size, made.hash_funcs, made.tweak, made.flags) == (
        size,
        case["hash_funcs"],
        case["tweak"],
        case["flags"],
    )
    if "filterload" in case:
        assert bytes(made).hex() == case["filterload"]
    else:
        assert len(bytes(made)) == case["filterload_len"]
        assert hashlib.sha256(bytes(made)).hexdigest() == case["filterload_sha256"]
    for found in (made, Bip37Filter.parse(bytes(made))):
        assert all(bytes.fromhex(element) in found for element in case["contains"])
        assert not any(bytes.fromhex(element) in found for element in case["not_contains"])


@vector_cases("02_bip37/tx_match.json")
def test_published_transactions_are_matched_and_learned(case: dict[str, Any]) -> None:
    found = Bip37Filter.parse(bytes.fromhex(case["filterload_before"]))
    assert all(bytes.fromhex(element) in found for element in case["elements"])
    assert [found.matches_tx(bytes.fromhex(tx)) for tx in case["txs"]] == case["expected_match"]
    assert bytes(found).hex() == case["filterload_after"]
    for point in case.get("outpoints", []):
        assert (build.outpoint(bytes.fromhex(point["txid"])[::-1], point["vout"]) in found) == point["in_filter_after"]


@vector_cases("02_bip37/tx_match.json")
def test_a_batch_matches_like_its_transactions(case: dict[str, Any]) -> None:
    found = Bip37Filter.parse(case["filterload_before"])
    txs = [bytes.fromhex(tx) for tx in case["txs"]]
    matched = found.match_txs(iter(txs))
    assert [tx.position for tx in matched] == [n for n, matches in enumerate(case["expected_match"]) if matches]
    assert [(tx.txid, tx.raw) for tx in matched] == [(build.txid(txs[tx.position]), txs[tx.position]) for tx in matched]
    assert bytes(found).hex() == case["filterload_after"]
    again = Bip37Filter.parse(case["filterload_before"])
    with pytest.raises(FormatError):
        again.match_txs([*txs, b"\x00"])
    assert bytes(again).hex() == case["filterload_before"]


@pytest.mark.parametrize("form", ["hex", "message", "jsonl"])
def test_a_filter_is_parsed_from_the_commands_output(form: str) -> None:
    made = Bip37Filter(3, 0.01, 5)
    payload = bytes(made)
    message = encode_message(MAINNET.magic, "filterload", payload)
    text = {"hex": payload.hex(), "message": message.hex(), "jsonl": json.dumps({"payload": payload.hex()})}[form]
    assert Bip37Filter.parse(f"  {text}\n") == made


def test_invalid_text_is_refused() -> None:
    message = encode_message(MAINNET.magic, "filterload", bytes(Bip37Filter(3, 0.01, 5)))
    for text in ("", "xyz", "{}", '{"payload": 5}', "{", "[]"):
        with pytest.raises(FormatError):
            Bip37Filter.parse(text)
    for wrong in (message[:-1], message + b"\x00"):
        with pytest.raises(FormatError, match="expected exactly one whole message"):
            Bip37Filter.parse(wrong.hex())
    with pytest.raises(EnvelopeError, match="checksum"):
        Bip37Filter.parse((message[:-1] + bytes((message[-1] ^ 1,))).hex())


@vector_cases("02_bip37/merkleblock_from_filter.json")
def test_published_blocks_give_the_published_transactions(case: dict[str, Any]) -> None:
    block = bytes.fromhex(case["block"]) if "block" in case else vector_path(case["block_file"]).read_bytes()
    assert build.block_hash(block)[::-1].hex() == case["block_hash"]
    found = Bip37Filter.parse(bytes.fromhex(case["filterload"]))
    matched = found.scan_block(block)
    assert [[tx.position, tx.txid[::-1].hex()] for tx in matched] == case["matched"]
    assert all(build.txid(tx.raw) == tx.txid and tx.stripped == build.stripped(tx.raw) for tx in matched)
    assert bytes(found).hex() == case["filterload_after"]
    for point in case.get("outpoints_after", []):
        assert (build.outpoint(bytes.fromhex(point["txid"])[::-1], point["vout"]) in found) == point["in_filter"]


@pytest.mark.parametrize(
    ("tweak", "hexed"), [(0, "03614e9b050000000000000001"), (2147483649, "03ce4299050000000100008001")]
)
def test_the_filter_of_cores_unit_test_is_reproduced(tweak: int, hexed: str) -> None:
    made = Bip37Filter(3, 0.01, tweak, UpdateFlags.ALL)
    assert not any(element in made for element in CORE_ELEMENTS)
    for element in CORE_ELEMENTS:
        made.insert(element)
    assert bytes(made).hex() == hexed


# Sizes


def test_sizes_use_integer_division_like_core() -> None:
    made = Bip37Filter(10, 0.01)
    assert (made.size, made.hash_funcs) == (11, 5)  # with float division 6
    assert (made.capacity, made.nominal_fp_rate) == (10, 0.01)
    assert Bip37Filter(20, 1e-7).hash_funcs == 22  # with float division 23


@pytest.mark.parametrize("elements", [0, -1, 2**32, 10**30, 1.0, 10.5, math.nan, "10", None])
def test_a_number_of_elements_out_of_range_raises(elements: Any) -> None:
    with pytest.raises(ParameterError, match="number of elements"):
        Bip37Filter(elements, 0.01)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 1.1, math.nan, math.inf, -math.inf, 0, 1])
def test_a_rate_out_of_range_raises(rate: float) -> None:
    with pytest.raises(ParameterError, match="between 0 and 1"):
        Bip37Filter(10, rate)


@pytest.mark.parametrize("tweak", [-1, 2**32])
def test_a_tweak_that_is_no_u32_raises(tweak: int) -> None:
    with pytest.raises(ParameterError, match=str(tweak)):
        Bip37Filter(10, 0.01, tweak)


@pytest.mark.parametrize("flags", [-1, 3, 4, 255])
def test_undefined_flags_raise(flags: int) -> None:
    with pytest.raises(ParameterError, match=str(flags)):
        Bip37Filter(10, 0.01, 0, flags)
    with pytest.raises(ParameterError, match=str(flags)):
        Bip37Filter.match_all(flags=flags)


@pytest.mark.parametrize(
    ("elements", "rate", "result", "named"),
    [
        (1, 0.0215, "0 bytes", "0.021415$"),
        (1, 0.9, "0 bytes", "0.021415$"),
        (2, 0.15, "0 bytes", "0.146341$"),
        (3, 0.28, "0 bytes", "0.277701$"),
        (5, 0.215, "0 hash functions", "0.214928$"),
        (10, 0.316, "0 hash functions", "0.31566$"),
        (200_000, 1e-4, "0 hash functions", "144000"),
        (200_000, 0.5, "0 hash functions", "144000 elements at rate 0.382"),
    ],
)
def test_a_refused_match_all_filter_names_a_valid_size(elements: int, rate: float, result: str, named: str) -> None:
    with pytest.raises(ParameterError, match=f"would have {result} and match everything; .*{named}"):
        Bip37Filter(elements, rate)


@given(st.integers(1, 300_000), st.floats(1e-6, 1, exclude_max=True))
def test_the_size_named_by_the_refusal_is_valid(elements: int, rate: float) -> None:
    try:
        Bip37Filter(elements, rate)
        return
    except ParameterError as error:
        words = str(error).partition("match everything; ")[2].split()
    if words[0] == "the" and words[1] == "rate":
        assert Bip37Filter(elements, float(words[-1])).hash_funcs
        with pytest.raises(ParameterError):
            Bip37Filter(elements, float(words[-1]) + 2e-6)
    else:
        most = int(words[words.index("elements") - 1])
        fits = float(words[-1]) if words[-2] == "rate" else rate
        assert Bip37Filter(most, fits).hash_funcs
        with pytest.raises(ParameterError):
            Bip37Filter(most + 1, fits)


def test_match_all_is_one_full_byte() -> None:
    made = Bip37Filter.match_all(tweak=5, flags=UpdateFlags.ALL)
    assert bytes(made) == bytes.fromhex("01ff010000000500000001")
    assert (b"anything" in made, made.current_fp_rate, made.fill, made.estimated_elements) == (True, 1.0, 1.0, math.inf)
    assert len(made.scan_block(build.block_of(build.GENESIS, 1))) == 1


# Filterload


@pytest.mark.parametrize("hash_funcs", [0, 1, 50])
@pytest.mark.parametrize("size", [0, 1, 252, 253, 36_000])
def test_filters_at_the_limits_are_parsed(size: int, hash_funcs: int) -> None:
    raw = payload(bytes(size), hash_funcs, 0xFFFFFFFF, 1)
    found = Bip37Filter.parse(raw)
    assert bytes(found) == raw
    assert (found.size, found.hash_funcs, found.tweak, found.capacity, found.nominal_fp_rate) == (
        size,
        hash_funcs,
        0xFFFFFFFF,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (payload(bytes(36_001), 1), "filter length"),
        (payload(b"\xff", 51), "hash_funcs"),
        (payload(b"\xff", 2**32 - 1), "hash_funcs"),
        (b"", "filter length"),
        (b"\xfd\x01\x00" + payload(b"\xff", 1)[1:], "filter length"),  # not the shortest form
        (payload(b"\xff", 1) + b"\x00", "filterload"),
    ],
)
def test_filters_above_the_limits_raise(raw: bytes, field: str) -> None:
    with pytest.raises(FormatError) as caught:
        Bip37Filter.parse(raw)
    assert caught.value.field == field


@pytest.mark.parametrize("count", [2**64 - 1, 2**63, 2**32 - 1, 2**31, 2**25, 36_001])
def test_absurd_sizes_raise_before_an_allocation(count: int) -> None:
    tracemalloc.start()
    for raw in (build.var_int(count) + bytes(40_000), payload(b"\xff", min(count, 2**32 - 1))):
        with pytest.raises(FormatError):
            Bip37Filter.parse(raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_truncation_at_every_byte_raises() -> None:
    for raw in (payload(bytes(300), 7, 5, 1), payload(b"", 0), payload(b"\xff", 1)):
        for end in range(len(raw)):
            with pytest.raises(FormatError):
                Bip37Filter.parse(raw[:end])


def test_unknown_flags_are_ignored_but_serialized() -> None:
    for flags in range(256):
        raw = payload(b"\x00\x01", 3, 9, flags)
        found = Bip37Filter.parse(raw)
        assert found.flags == flags & 3, flags
        assert bytes(found) == bytes(found.copy()) == raw, flags


@pytest.mark.parametrize(("field", "hash_funcs"), [(b"", 0), (b"", 5), (b"\x00\x00", 0)])
def test_a_filter_without_bits_contains_everything(field: bytes, hash_funcs: int) -> None:
    raw = payload(field, hash_funcs, 1, 1)  # CVE-2013-5700: no division by the size
    found = Bip37Filter.parse(raw)
    found.insert(b"anything")
    assert b"anything" in found
    assert b"" in found
    assert (bytes(found), found.current_fp_rate, found.estimated_elements) == (raw, 1.0, math.inf)


# Properties of every filter

filters = st.builds(
    payload, st.binary(max_size=300), st.integers(0, 50), st.integers(0, 2**32 - 1), st.integers(0, 255)
)


@given(filters)
def test_serializing_inverts_parsing(raw: bytes) -> None:
    found = Bip37Filter.parse(raw)
    assert bytes(found) == raw
    assert Bip37Filter.parse(bytes(found)) == found == pickle.loads(pickle.dumps(found)) == found.copy()


@given(filters, st.data())
def test_mutated_filters_are_parsed_or_refused(raw: bytes, data: st.DataObject) -> None:
    at, byte = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(0, 255))
    mutated = raw[:at] + bytes((byte,)) + raw[at + 1 :]
    try:
        found = Bip37Filter.parse(mutated)
    except FormatError as error:
        assert error.offset <= len(mutated)
    else:
        assert bytes(found) == mutated


@given(
    st.lists(st.binary(max_size=80), max_size=30),
    st.integers(1, 500),
    st.floats(1e-12, 0.02),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 2]),
)
def test_every_inserted_element_is_found(elements: list[bytes], size: int, rate: float, tweak: int, flags: int) -> None:
    made = Bip37Filter(size, rate, tweak, flags)
    second = Filter(bytes(made.size), made.hash_funcs, tweak, flags)
    for element in elements:
        made.insert(element)
        second.insert(element)
    assert bytes(made) == second.payload()
    found = Bip37Filter.parse(bytes(made))
    assert found == made
    assert all(element in made and element in found for element in elements)
    assert all((probe in made) == (probe in second) for probe in (b"", b"x", *(e + b"\x00" for e in elements)))
    assert made.set_bits() == sum(byte.bit_count() for byte in second.field)
    assert made.fill == made.set_bits() / (8 * made.size)
    assert made.current_fp_rate == pytest.approx(made.fill**made.hash_funcs, rel=1e-12)


def test_the_number_of_elements_is_estimated_from_the_bits() -> None:
    made = Bip37Filter(5_000, 0.001)
    assert made.estimated_elements == 0.0
    for number in range(5_000):
        made.insert(number.to_bytes(4, "little"))
    assert made.estimated_elements == pytest.approx(
        -made.size * 8 / made.hash_funcs * math.log(1 - made.fill), rel=1e-9
    )
    assert made.estimated_elements == pytest.approx(5_000, rel=0.02)


def test_addresses_without_a_watch_list_are_refused() -> None:
    addresses: Any = ["bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq"]
    with pytest.raises(TypeError, match=r"^watch: expected a WatchList, .* not list$"):
        Bip37Filter.for_watchlist(addresses)


def test_insert_accepts_bytes_and_outpoints_but_no_numbers() -> None:
    point = OutPoint(b"\x01" * 32, 7)
    made = Bip37Filter(10, 1e-6)
    made.insert(point)
    assert bytes(point) in made
    made.insert(bytearray(b"bytes"))  # type: ignore[arg-type]  # bytes-like is taken
    assert b"bytes" in made
    with pytest.raises(TypeError):
        made.insert(5)  # type: ignore[arg-type]


def test_a_copy_shares_no_bits() -> None:
    made = Bip37Filter(10, 0.01, 5, UpdateFlags.NONE)
    twin = made.copy()
    twin.insert(b"more")
    assert (made.set_bits(), made == twin, twin.capacity, twin.nominal_fp_rate) == (0, False, 10, 0.01)
    assert made != 5
    with pytest.raises(TypeError):
        hash(made)
