"""The compiled fast path for addresses against address.py: results are equal, and address.py judges all other texts.

The encoders of both kernels are compared, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from spvfilter import address as slow
from spvfilter.address import script_to_address
from spvfilter.errors import AddressError, ParameterError, WatchFileError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure import address as reference
from spvfilter.kernel.pure.address import to_5_bits
from spvfilter.kernel.pure.table import WatchTable as Reference
from spvfilter.network import MAINNET, NETWORKS, TESTNET3, Network
from spvfilter.watch import textfile
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.addresses import P2PKH, P2SH, P2TR, P2WPKH, hash20, scripts
from support.kernels.kernelentries import outcome
from support.vectors import effort, vector_cases

pytestmark = pytest.mark.native
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def decide(text: str, network: Network) -> bytes | None:
    from spvfilter.kernel.native import decode_address

    script: bytes | None = decode_address(text, network.p2pkh_version, network.p2sh_version, network.hrp)
    return script


def compiled(script: bytes, p2pkh_version: int, p2sh_version: int, hrp: str) -> str | None:
    from spvfilter.kernel.native import encode_address

    return encode_address(script, p2pkh_version, p2sh_version, hrp)


ENCODERS = (compiled, reference.encode_address)


def told(encode_address: Callable[[bytes, int, int, str], str | None], script: bytes, network: Network) -> Any:
    """The address, None, or the error."""
    return outcome(encode_address, script, network.p2pkh_version, network.p2sh_version, network.hrp)


def decoded(text: str, network: Network) -> bytes:
    """The script that address.py decodes without the fast path. Raises AddressError."""
    with patch.object(slow, "decode_address", lambda *arguments: None):
        return slow.address_to_script(text, network)


def judge(text: str, network: Network) -> bytes | None:
    """The script that address.py decodes without the fast path. None if it refuses the text."""
    try:
        return decoded(text, network)
    except AddressError:
        return None


def agree(text: str, network: Network) -> bool:
    """Return True if the fast path decoded the text. Asserts that address.py gives the same."""
    decided = decide(text, network)
    assert decided is None or decided == judge(text, network)
    return decided is not None


def custom(p2pkh_version: int, p2sh_version: int, hrp: str) -> Network:
    return replace(MAINNET, name="custom", p2pkh_version=p2pkh_version, p2sh_version=p2sh_version, hrp=hrp)


hrps = st.sampled_from(["", "x", "k", "bc", "tb", "tpub", "a1b", "BC", "é", "q" * 16, "q" * 17])
networks = st.one_of(st.sampled_from(NETWORKS), st.builds(custom, st.integers(0, 255), st.integers(0, 255), hrps))


@given(scripts, st.sampled_from(NETWORKS))
def test_the_fast_path_decodes_every_common_address(script: bytes, network: Network) -> None:
    text = script_to_address(script, network)
    assert text is not None
    for written in (text, text.upper()) if text.startswith(network.hrp) else (text,):
        # such a text is as long as a private key and left to address.py
        assert agree(written, network) or len(written) in (51, 52)


def mutated(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    match rng.randrange(8):
        case 0:
            return text[:at] + text[at + 1 :]
        case 1:
            return text[:at] + rng.choice(BASE58 + "0OIlbi,. \t\x00é１") + text[at:]
        case 2:
            return text[:at] + rng.choice(BASE58 + "0OIl") + text[at + 1 :]
        case 3:
            return text[:at] + text[at:].swapcase()
        case 4:
            return text.swapcase()
        case 5:
            return text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
        case 6:
            return "1" + text
    return text


@given(scripts, networks, networks, st.randoms(use_true_random=False))
def test_changed_and_foreign_addresses_decode_as_in_address_py(
    script: bytes, of: Network, on: Network, rng: random.Random
) -> None:
    try:
        text = script_to_address(script, of) or ""
    except ValueError:  # an invalid human-readable part
        text = script_to_address(script, MAINNET) or ""
    for _ in range(20):
        agree(text, on)
        text = mutated(rng, text)


@given(st.integers(0, 32), st.integers(0, 45), st.binary(min_size=45, max_size=45), st.booleans(), networks)
def test_every_witness_version_and_length_decodes_as_in_address_py(
    version: int, size: int, data: bytes, late: bool, network: Network
) -> None:
    encoding = slow.Bech32Encoding.BECH32M if late else slow.Bech32Encoding.BECH32
    for values in (to_5_bits(data[:size]), to_5_bits(data[:size])[:-1] + b"\x1f", to_5_bits(data[:size]) + b"\x00"):
        try:
            text = slow.bech32_encode(network.hrp, bytes((version % 32,)) + values, encoding)
        except ValueError:
            return
        agree(text, network)


@given(st.binary(max_size=40), st.booleans(), networks)
def test_every_base58_payload_decodes_as_in_address_py(payload: bytes, ours: bool, network: Network) -> None:
    from bitcoin.base58 import encode

    raw = bytes((network.p2pkh_version,)) + payload if ours else payload
    agree(encode(raw + sha256d(raw)[:4]), network)
    agree(encode(raw + bytes(4)), network)


@given(hash20, st.integers(0, 255), st.integers(0, 255))
def test_every_version_byte_decodes_as_in_address_py(key_hash: bytes, p2pkh_version: int, p2sh_version: int) -> None:
    network = custom(p2pkh_version, p2sh_version, "bc")
    for script in (build.p2pkh(key_hash), build.p2sh(key_hash), build.p2pkh(bytes(20))):
        agree(script_to_address(script, network) or "", network)


@given(st.text(max_size=100) | st.text(alphabet=BASE58, max_size=60), networks)
def test_any_text_decodes_as_in_address_py(text: str, network: Network) -> None:
    agree(text, network)


@vector_cases("05_addresses/invalid.json")
def test_an_invalid_address_is_left_to_address_py(case: Any) -> None:
    for network in NETWORKS:
        assert decide(case["address"], network) is None


# Encoding


@given(
    st.binary(min_size=20, max_size=20) | st.integers(0, 20).map(lambda zeros: bytes(zeros) + b"\xff" * (20 - zeros)),
    networks,
)
def test_hashes_are_encoded_as_in_python_bitcoinlib(key_hash: bytes, network: Network) -> None:
    from bitcoin.base58 import encode

    for version, script in (
        (network.p2pkh_version, build.p2pkh(key_hash)),
        (network.p2sh_version, build.p2sh(key_hash)),
    ):
        raw = bytes((version,)) + key_hash
        for encode_address in ENCODERS:
            assert told(encode_address, script, network) == encode(raw + sha256d(raw)[:4])


@pytest.mark.parametrize("network", NETWORKS, ids=str)
@pytest.mark.parametrize("version", range(17))
def test_every_witness_program_is_encoded_and_decoded(version: int, network: Network) -> None:
    rng = random.Random(version)
    for size in range(2, 41):
        script = bytes((0x50 + version if version else 0, size)) + rng.randbytes(size)
        texts = [told(encode_address, script, network) for encode_address in ENCODERS]
        assert texts[0] == texts[1]
        if version or size in (20, 32):
            assert isinstance(texts[0], str)
            assert decoded(texts[0], network) == script
        else:
            assert texts[0] is None


def almost(rng: random.Random) -> bytes:
    """A script with an address, or such a script with a changed, missing or additional byte."""
    size = rng.choice((1, 2, 3, 20, 32, 39, 40, 41))
    program = bytes((rng.choice((0, 0x4F, 0x50, 0x51, 0x60, 0x61)), size)) + rng.randbytes(size)
    script = bytearray(rng.choice((build.p2pkh(rng.randbytes(20)), build.p2sh(rng.randbytes(20)), program)))
    match rng.randrange(4):
        case 0:
            script[rng.choice((0, 1, 2, -2, -1)) % len(script)] ^= 1 << rng.randrange(8)
        case 1:
            del script[rng.randrange(len(script))]
        case 2:
            script.insert(rng.randrange(len(script)), 0)
    return bytes(script)


@pytest.mark.parametrize("seed", range(effort(10, 50, 1_000)))
def test_both_kernels_encode_any_script_the_same(seed: int) -> None:
    rng = random.Random(seed)
    for number in range(400):
        if number % 20 == 0:
            hrp = rng.choice(
                ["", "x", "bc", "tb", "a1b", "2~", "BC", "b c", "é", "q" * 18, "q" * 19, "q" * 43, "Q" * 90, "q" * 200]
            )
            network = custom(rng.randrange(256), rng.randrange(256), hrp)
        script = almost(rng)
        native_text, text = (told(encode_address, script, network) for encode_address in ENCODERS)
        assert native_text == text, script.hex()
        if isinstance(text, str) and (not hrp or not text.startswith(f"{hrp}1")):
            assert len(script) in (23, 25)
        elif isinstance(text, str):
            assert len(text) <= 90
            assert decoded(text, network) == script


@pytest.mark.parametrize("encoder", [0, 1])
def test_a_script_without_a_bech32_string_is_refused(encoder: int) -> None:
    encode_address = ENCODERS[encoder]
    long, short = b"\x60\x28" + bytes(40), b"\x51\x02" + bytes(2)
    assert told(encode_address, long, custom(0, 5, "")) is None
    assert told(encode_address, long, custom(0, 5, "q" * 18)) is not None
    assert told(encode_address, long, custom(0, 5, "q" * 19)) == (
        ParameterError,
        "a bech32 string must be at most 90 characters long, not 91",
    )
    assert told(encode_address, short, custom(0, 5, "q" * 300)) == (
        ParameterError,
        "a bech32 string must be at most 90 characters long, not 312",
    )
    for hrp in ("BC", "b c", "bé", "\x7f"):
        message = f"a human-readable part must be lower-case printable ASCII, not {hrp!r}"
        assert told(encode_address, short, custom(0, 5, hrp)) == (ParameterError, message)
        assert told(encode_address, build.p2pkh(bytes(20)), custom(0, 5, hrp)) == "1111111111111111111114oLvT2"
    assert outcome(encode_address, short, 256, 0, "bc") == (
        ParameterError,
        "a version byte must be from 0 to 255, not 256",
    )
    assert outcome(encode_address, short, 0, 5, b"bc") == (
        TypeError,
        "the human-readable part must be a str, not bytes",
    )
    assert outcome(encode_address, "script", 0, 5, "bc") == (TypeError, "expected a bytes-like object, not str")
    assert told(encode_address, short, custom(0, 5, "\ud800"))[0] is UnicodeEncodeError


# Files


ADDRESSES = [
    P2PKH,
    P2SH,
    P2WPKH,
    P2TR,
    P2WPKH.upper(),
    *(script_to_address(b"\x00\x14" + bytes((n,)) * 20, MAINNET) or "" for n in range(4)),
]
LABELS = ["", "savings", "  a b ", "Ünï ☃", "a,b", "\u3000x\u2003", "\U0001f600", "#1", "x" * 990, "\u00a0", "\ufeff"]
REFUSED_LABELS = ["a\x00b", "a\x85b", "a\u2028b", "a\u2029b", "a\tb", "\x7f", "tab at the end\t"]
OTHERS = [
    *(
        "",
        " ",
        "# comment",
        "#",
        "nonsense",
        ",label",
        "script:51",
        "script:zz,x",
        "data:00ff,d",
        "pubkey:02",
        "xpub:1",
    ),
    *(
        f"outpoint:{'ab' * 32}:7",
        f"outpoint:{'ab' * 32}:7:5:51,late",
        script_to_address(build.p2wpkh(bytes(20)), TESTNET3) or "",
    ),
    *(f" {P2WPKH}", f"{P2WPKH} # comment", f"{P2WPKH} ,x", f"{P2WPKH[:-1]},x", f"{P2WPKH}\t", "x" * 1500),
]


def line(rng: random.Random) -> bytes:
    text = rng.choice(ADDRESSES)
    match rng.randrange(6):
        case 0:
            text = rng.choice(OTHERS)
        case 1:
            text += "," + rng.choice(LABELS + REFUSED_LABELS)
        case 2:
            text += (
                ",\u3042".encode("utf-16", "surrogatepass").decode("latin-1")
                if rng.random() < 0.1
                else "," + rng.choice(LABELS)
            )
    raw = text.encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(raw) + 1)
        raw = raw[:at] + rng.randbytes(rng.randrange(4)) + raw[at + rng.randrange(4) :]
    return raw + rng.choice((b"\n", b"\n", b"\r\n", b"\r\r\n"))


Found = tuple[list[object], list[object], dict[int, str | None], object]


def read(path: Path, change: Callable[[WatchList], None]) -> Found:
    """Read a list from a file after `change`. Returns entries and coins in order, labels and problems."""
    watch, problems = WatchList(), None
    change(watch)
    try:
        with path.open("rb") as file:
            textfile.read_into(watch, file, str(path))
    except WatchFileError as error:
        problems = error.problems
    return list(watch.table.entries()), list(watch.table.coins()), dict(watch.index.own_labels), problems


@pytest.mark.parametrize("seed", range(effort(20, 150, 3_000)))
def test_a_file_reads_the_same_without_the_fast_path(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spvfilter.kernel.native import WatchTable

    rng = random.Random(seed)
    raw = rng.choice((b"", b"", b"\xef\xbb\xbf")) + b"".join(line(rng) for _ in range(rng.randrange(60)))
    raw = raw[: len(raw) - rng.choice((0, 0, 1, 2))]
    path = tmp_path / "watch"
    path.write_bytes(raw)

    def fast(watch: WatchList) -> None:
        watch.index.table = WatchTable()

    def plodding(watch: WatchList) -> None:
        watch.index.table = WatchTable()
        monkeypatch.setattr(WatchList, "add_address_lines", lambda self, chunk, at: (0, 0))

    monkeypatch.setattr(textfile, "CHUNK", rng.choice((1, 50, 1_000, 1 << 20)))
    assert read(path, fast) == read(path, plodding)


def test_the_fast_path_stops_at_the_first_other_line() -> None:
    from spvfilter.kernel.native import WatchTable

    table = WatchTable()
    plain = f"{P2PKH}\n{P2TR},savings\r\n{P2PKH}, again \n{P2SH},\n".encode()
    for rest in (
        b"",
        b"# comment\n",
        P2WPKH.encode(),
        b"\n",
        P2WPKH.encode() + b",a\x00b\n",
        P2WPKH.encode() + b",\xff\n",
    ):
        chunk = b"skipped" + plain + rest
        taken = table.add_address_lines(chunk, 7, 0, 5, "bc", 1)
        assert taken == (len(plain), 4, [(1, b"savings"), (0, b" again ")])
    assert [value for _, value in table.entries()] == [
        slow.address_to_script(text, MAINNET) for text in (P2PKH, P2TR, P2SH)
    ]


@pytest.mark.native
@pytest.mark.parametrize("seed", range(effort(3, 10, 100)))
def test_threads_read_the_same_lines_in_the_same_order(seed: int) -> None:
    """Threads decode pieces of 64 kB. A line that the fast path refuses may be in any piece."""
    from spvfilter.kernel.native import WatchTable

    rng = random.Random(seed)
    addresses = [f"{script_to_address(build.p2wpkh(rng.randbytes(20)), MAINNET)}" for _ in range(9_000)]
    lines = [f"{address},label {number}" if number % 7 == 0 else address for number, address in enumerate(addresses)]
    stop = rng.choice((None, rng.randrange(len(lines))))
    if stop is not None:
        lines[stop] = "# a comment"
    chunk = "\n".join([*lines, *rng.choices(addresses, k=100), "without an end"]).encode()
    results = []
    for jobs in (1, 2, 3, 8, 256):
        table = WatchTable()
        results.append((table.add_address_lines(chunk, 0, 0, 5, "bc", jobs), table.packed_entries(0, 1 << 31)))
    assert all(result == results[0] for result in results)
    assert results[0][0][1] == (len(lines) + 100 if stop is None else stop)


@pytest.mark.native
def test_a_wrong_number_of_threads_is_refused() -> None:
    from spvfilter.kernel.native import WatchTable

    for jobs in (0, 257):
        with pytest.raises(ParameterError, match=f"the number of threads must be from 1 to 256, not {jobs}"):
            WatchTable().add_address_lines(b"", 0, 0, 5, "bc", jobs)
        with pytest.raises(ParameterError, match=f"the number of threads must be from 1 to 256, not {jobs}"):
            Reference().add_address_lines(b"", 0, 0, 5, "bc", jobs)
