"""Conversion between addresses and scriptPubKeys: base58check, bech32 (BIP-173) and bech32m (BIP-350)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache

from spvfilter.errors import AddressError, ParameterError, WrongNetworkError
from spvfilter.hashes import sha256d
from spvfilter.kernel import decode_address
from spvfilter.network import NETWORKS, Network

__all__ = [
    "MAX_ADDRESS_LENGTH",
    "Bech32Encoding",
    "address_to_script",
    "bech32_decode",
    "bech32_encode",
    "script_to_address",
]

MAX_ADDRESS_LENGTH = 90  # characters, BIP-173 § Bech32; checked before base58 decoding, which is quadratic
_MAX_BASE58_SHOWN = 36  # characters; base58 addresses are at most this long, keys and seed phrases are longer
_SEGWIT_PREFIXES = tuple({f"{known.hrp}1" for known in NETWORKS})
_EXTENDED_KEY_LETTERS = "xyzYZtuvUV"  # before "pub" or "prv", BIP-32 and SLIP-132
_DESCRIPTORS = tuple(
    f"{name}(" for name in ["addr", "combo", "multi", "pk", "pkh", "raw", "rawtr", "sh", "sortedmulti", "tr", "wpkh", "wsh"]
)  # BIP-380 ff.
_BASE58_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_WIF_LETTERS = {51: "59", 52: "KLc"}  # a WIF key's first character by its length


def address_to_script(address: str, network: Network) -> bytes:
    """The scriptPubKey of an address on a network (Core key_io.cpp DecodeDestination).

    Raises WrongNetworkError for a valid address of another network, AddressError for anything else. The message never repeats text
    that may be a private key or a seed phrase.
    """
    script = decode_address(address, network.p2pkh_version, network.p2sh_version, network.hrp)
    return _decode(address, network) if script is None else script


def _decode(address: str, network: Network) -> bytes:
    """Decode what the kernel's fast path did not: invalid addresses, and all addresses if the kernel is not compiled."""
    _check_text(address)
    lower = address.lower()
    if lower.startswith(_SEGWIT_PREFIXES) or (network.hrp and lower.startswith(f"{network.hrp}1")):
        return _segwit_to_script(address, network)
    return _base58_to_script(address, network)


def script_to_address(script_pubkey: bytes, network: Network) -> str | None:
    """The address of a P2PKH, P2SH or witness scriptPubKey on a network (Core key_io.cpp EncodeDestination).

    None for scripts without an address: bare public keys, multisig, OP_RETURN, witness v0 programs of neither 20 nor 32 bytes.
    """
    size = len(script_pubkey)
    if size == 25 and script_pubkey[:3] == b"\x76\xa9\x14" and script_pubkey[23:] == b"\x88\xac":
        return _base58check_encode(network.p2pkh_version, script_pubkey[3:23])
    if size == 23 and script_pubkey[:2] == b"\xa9\x14" and script_pubkey[22] == 0x87:
        return _base58check_encode(network.p2sh_version, script_pubkey[2:22])
    if not 4 <= size <= 42 or script_pubkey[1] != size - 2:
        return None
    opcode = script_pubkey[0]
    if opcode == 0 and size in (22, 34):
        return bech32_encode(network.hrp, b"\x00" + _to_5_bits(script_pubkey[2:]), Bech32Encoding.BECH32)
    if 0x51 <= opcode <= 0x60:  # OP_1…OP_16
        return bech32_encode(network.hrp, bytes((opcode - 0x50,)) + _to_5_bits(script_pubkey[2:]), Bech32Encoding.BECH32M)
    return None


def _shown(text: str) -> str:
    """The part of `text` that an error message may show: a bounded piece, and nothing that may be a secret."""
    if len(text) <= _MAX_BASE58_SHOWN or (text.lower().startswith(_SEGWIT_PREFIXES) and text.isalnum()):
        return repr(text[:MAX_ADDRESS_LENGTH]) + ("…" if len(text) > MAX_ADDRESS_LENGTH else "")
    return f"{len(text)} characters, not shown because they may be a secret"


def _bad(cause: str, text: str) -> AddressError:
    return AddressError(f"{cause}: {_shown(text)}")


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"an address is a str, not {type(text).__name__}")
    if not text:
        raise AddressError("empty address")
    if text[1:4] in ("pub", "prv") and text[0] in _EXTENDED_KEY_LETTERS:
        kind = "private" if text[1:4] == "prv" else "public"
        raise AddressError(f"an extended {kind} key ({text[:4]}…) where an address is expected: give the addresses derived from it")
    if text.startswith(_DESCRIPTORS):
        raise AddressError("an output descriptor where an address is expected: give the addresses derived from it")
    if text[0] in _WIF_LETTERS.get(len(text), "") and text.isalnum():  # judged by shape alone: a mistyped key is a secret too
        raise AddressError("this looks like a private key (WIF), where an address is expected")
    if len(text) > MAX_ADDRESS_LENGTH:
        raise _bad(f"{len(text)} characters, an address has at most {MAX_ADDRESS_LENGTH}", text)
    _check_characters(text)


def _check_characters(text: str) -> None:
    """Raises AddressError unless every character is printable ASCII other than a space (33…126)."""
    if text.isascii() and text.isprintable() and " " not in text:
        return
    at, char = next((at, char) for at, char in enumerate(text, 1) if not 33 <= ord(char) <= 126)
    kind = "whitespace" if char.isspace() else "control" if ord(char) < 128 else "non-ASCII"
    raise _bad(f"{kind} character U+{ord(char):04X} at position {at}", text)


def _refuse_network(text: str, network: Network, belongs: Callable[[Network], bool], what: str) -> AddressError:
    """The error for an otherwise valid address whose prefix, described by `what`, is not that of `network`."""
    names = tuple(known.name for known in NETWORKS if belongs(known))
    if not names:
        return _bad(f"{what} belongs to no known network", text)
    owners = " or ".join((*filter(None, [", ".join(names[:-1])]), names[-1]))
    return WrongNetworkError(f"an address of {owners}, not of {network}: {_shown(text)}", names)


# base58check: version byte, 20-byte hash and the first 4 bytes of their double SHA-256, in base58


def _base58check_encode(version: int, payload: bytes) -> str:
    from bitcoin.base58 import encode

    raw = bytes((version,)) + payload
    return str(encode(raw + sha256d(raw)[:4]))


def _base58_to_script(text: str, network: Network) -> bytes:
    from bitcoin.base58 import InvalidBase58Error, decode

    try:
        raw: bytes = decode(text)
    except InvalidBase58Error:
        at, char = next((at, char) for at, char in enumerate(text, 1) if char not in _BASE58_DIGITS)
        raise _no_base58(f"bad base58 character {char!r} at position {at}", text) from None
    if sha256d(raw[:-4])[:4] != raw[-4:]:
        raise _no_base58("bad base58 checksum", text)
    version, payload = raw[0], raw[1:-4]
    if len(payload) != 20:
        raise _bad(f"{len(payload)} bytes in base58, an address has 20", text)
    if version == network.p2pkh_version:
        return b"\x76\xa9\x14" + payload + b"\x88\xac"
    if version == network.p2sh_version:
        return b"\xa9\x14" + payload + b"\x87"
    raise _refuse_network(
        text, network, lambda known: version in (known.p2pkh_version, known.p2sh_version), f"base58 version byte {version}"
    )


def _no_base58(cause: str, text: str) -> AddressError:
    """The error for a string that is neither base58 nor bech32 with a known prefix; it may still be bech32 of another currency."""
    try:
        hrp, _, _ = bech32_decode(text)
    except AddressError:
        return _bad(cause, text)
    return _bad(f"human-readable part {hrp!r} belongs to no known network", text)


# bech32: human-readable part, "1", then 5-bit values as characters: witness version, program, six checksum values

_BECH32_DIGITS = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_NO_DIGIT = 0xFF
_VALUE_OF_CHAR = bytes(_BECH32_DIGITS.find(char) & _NO_DIGIT for char in range(256))
_CHAR_OF_VALUE = _BECH32_DIGITS.ljust(256, b"?")
_BASE32_DIGITS = b"0123456789abcdefghijklmnopqrstuv".ljust(256, b"?")  # the digits of int(…, 32)
_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)  # BIP-173 § Checksum


def _generator_sum(top: int) -> int:
    total = 0
    for bit, term in enumerate(_GENERATOR):
        if top >> bit & 1:
            total ^= term
    return total


_GENERATOR_SUMS = tuple(_generator_sum(top) for top in range(32))


class Bech32Encoding(IntEnum):
    """The two checksums of segwit addresses; the value is the residue of a valid string."""

    BECH32 = 1  # BIP-173
    BECH32M = 0x2BC830A3  # BIP-350


@lru_cache(maxsize=16)
def _expanded(hrp: str) -> bytes:
    prefix = hrp.encode("ascii")
    return bytes(char >> 5 for char in prefix) + b"\x00" + bytes(char & 31 for char in prefix)


def _residue(hrp: str, values: bytes) -> int:
    """The BCH residue of BIP-173 § Checksum over the expanded human-readable part and 5-bit values."""
    state = 1
    for value in _expanded(hrp) + values:
        state = (state & 0x1FFFFFF) << 5 ^ value ^ _GENERATOR_SUMS[state >> 25]
    return state


def bech32_encode(hrp: str, values: bytes, encoding: Bech32Encoding) -> str:
    """The bech32 string of a lower-case human-readable part and 5-bit values; the checksum is appended (BIP-173, BIP-350).

    Raises ParameterError if there is no valid string.
    """
    if not hrp or hrp != hrp.lower() or not all(33 <= ord(char) <= 126 for char in hrp):
        raise ParameterError(f"a human-readable part is lower-case printable ASCII, not {hrp[:100]!r}")
    if max(values, default=0) > 31:
        raise ParameterError(f"a bech32 value has 5 bits, not {max(values)}")
    if len(hrp) + len(values) + 7 > MAX_ADDRESS_LENGTH:
        raise ParameterError(f"{len(hrp) + len(values) + 7} characters, bech32 has at most {MAX_ADDRESS_LENGTH}")
    residue = _residue(hrp, values + bytes(6)) ^ encoding
    checksum = bytes(residue >> shift & 31 for shift in (25, 20, 15, 10, 5, 0))
    return f"{hrp}1{(values + checksum).translate(_CHAR_OF_VALUE).decode('ascii')}"


def bech32_decode(text: str) -> tuple[str, bytes, Bech32Encoding]:
    """The human-readable part (lower case), the 5-bit values without checksum, and the kind of checksum (BIP-173 § Bech32, BIP-350).

    Raises AddressError for an invalid string. Does not check the witness version and program.
    """
    if len(text) > MAX_ADDRESS_LENGTH:
        raise _bad(f"{len(text)} characters, bech32 has at most {MAX_ADDRESS_LENGTH}", text)
    _check_characters(text)
    lower = text.lower()
    if text not in (lower, text.upper()):
        raise _bad("mixed case", text)
    hrp, separator, data = lower.rpartition("1")
    if not separator:
        raise _bad("no separator '1'", text)
    if not hrp:
        raise _bad("empty human-readable part", text)
    if len(data) < 6:
        raise _bad("too short for a bech32 checksum", text)
    values = data.encode("ascii").translate(_VALUE_OF_CHAR)
    if _NO_DIGIT in values:
        at = values.index(_NO_DIGIT) + len(hrp) + 1
        raise _bad(f"bad bech32 character {text[at]!r} at position {at + 1}", text)
    try:
        encoding = Bech32Encoding(_residue(hrp, values))
    except ValueError:
        raise _bad("bad bech32 checksum", text) from None
    return hrp, values[:-6], encoding


def _segwit_to_script(text: str, network: Network) -> bytes:
    """The scriptPubKey of a segwit address (BIP-173 § Segwit address format, BIP-350)."""
    hrp, values, encoding = bech32_decode(text)
    if not values:
        raise _bad("no witness version", text)
    version = values[0]
    if version > 16:
        raise _bad(f"witness version {version}, the highest is 16", text)
    if version == 0 and encoding is not Bech32Encoding.BECH32:
        raise _bad("bech32m checksum on witness version 0, which uses bech32", text)
    if version > 0 and encoding is not Bech32Encoding.BECH32M:
        raise _bad(f"bech32 checksum on witness version {version}, which uses bech32m", text)
    program = _to_8_bits(values[1:], text)
    if not 2 <= len(program) <= 40:
        raise _bad(f"witness program of {len(program)} byte(s), 2 to 40 expected", text)
    if version == 0 and len(program) not in (20, 32):
        raise _bad(f"witness program of {len(program)} bytes, version 0 has 20 or 32", text)
    if hrp != network.hrp:
        raise _refuse_network(text, network, lambda known: known.hrp == hrp, f"human-readable part {hrp!r}")
    return bytes((0x50 + version if version else 0, len(program))) + program


def _to_8_bits(values: bytes, text: str) -> bytes:
    size, padding = divmod(len(values) * 5, 8)
    if padding > 4:
        raise _bad(f"{padding} bits of padding, at most 4", text)
    number = int(b"0" + values.translate(_BASE32_DIGITS), 32)
    if number & ((1 << padding) - 1):
        raise _bad("padding bits that are not zero", text)
    return (number >> padding).to_bytes(size, "big")


def _to_5_bits(data: bytes) -> bytes:
    count = (len(data) * 8 + 4) // 5
    number = int.from_bytes(data, "big") << count * 5 - len(data) * 8
    return bytes(number >> 5 * left & 31 for left in range(count - 1, -1, -1))
