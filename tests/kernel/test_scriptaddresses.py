"""Addresses of a column of scripts: those of single scripts, and the same errors in both kernels."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import ParameterError
from spvfilter.kernel import encode_address
from support.blocks import build
from support.kernels.kernelentries import native, outcome, reference

kernels = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])
NETWORK = 0, 5, "bc"
HASHES = st.binary(min_size=20, max_size=20)
SCRIPTS = st.lists(
    st.one_of(
        HASHES.map(build.p2pkh),
        HASHES.map(build.p2wpkh),
        st.binary(max_size=50),
        st.tuples(st.integers(0x4F, 0x61), st.binary(min_size=2, max_size=41)).map(
            lambda parts: bytes([parts[0], len(parts[1])]) + parts[1]
        ),
    ),
    max_size=30,
)


def offsets_of(scripts: list[bytes]) -> bytes:
    return struct.pack(f"<{len(scripts) + 1}i", *(sum(map(len, scripts[:row])) for row in range(len(scripts) + 1)))


@kernels
@given(scripts=SCRIPTS)
def test_addresses_are_those_of_single_scripts(kernel: Any, scripts: list[bytes]) -> None:
    rows, validity, offsets, data = kernel().script_addresses(offsets_of(scripts), b"".join(scripts), *NETWORK)
    at = struct.unpack(f"<{rows + 1}i", offsets)
    found = [
        data[at[row] : at[row + 1]].decode() if validity is None or validity[row >> 3] >> (row & 7) & 1 else None
        for row in range(rows)
    ]
    assert found == [encode_address(script, *NETWORK) for script in scripts]


@kernels
@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        (b"", "the offsets (0 bytes) do not match the scripts (2 bytes)"),
        (bytes(5), "the offsets (5 bytes) do not match the scripts (2 bytes)"),
        (struct.pack("<2i", 0, 3), "the offsets (8 bytes) do not match the scripts (2 bytes)"),
        (struct.pack("<2i", -1, 2), "the offsets (8 bytes) do not match the scripts (2 bytes)"),
        (struct.pack("<3i", 0, 2, 1), "the offsets (12 bytes) do not match the scripts (2 bytes)"),
    ],
)
def test_offsets_that_do_not_fit_are_refused(kernel: Any, offsets: bytes, said: str) -> None:
    assert outcome(kernel().script_addresses, offsets, b"ab", *NETWORK) == (ParameterError, said)


@kernels
def test_an_address_that_cannot_be_encoded_is_an_error(kernel: Any) -> None:
    script = build.p2wpkh(bytes(20))
    arguments = offsets_of([script]), script, 0, 5
    assert outcome(kernel().script_addresses, *arguments, "BC")[0] is ParameterError  # type: ignore[index]
    assert outcome(kernel().script_addresses, *arguments, "b" * 90)[0] is ParameterError  # type: ignore[index]
