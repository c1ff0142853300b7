"""Conversion between addresses and scriptPubKeys: base58check, bech32 (BIP-173) and bech32m (BIP-350)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from spvfilter.errors import AddressError, WrongNetworkError
from spvfilter.hashes import sha256d
from spvfilter.kernel import decode_address, encode_address
from spvfilter.kernel.pure.address import (
    BASE58_DIGITS,
    BECH32_DIGITS,
    BECH32_RESIDUE,
    BECH32M_RESIDUE,
    MAX_ADDRESS_LENGTH,
    bech32,
    residue,
)
from spvfilter.network import NETWORKS, Network

__all__ = [
    "MAX_ADDRESS_LENGTH",
    "Bech32Encoding",
    "address_to_script",
    "bech32_decode",
    "bech32_encode",
    "script_to_address",
]

_MAX_BASE58_SHOWN = 36  # characters; base58 addresses are at most this long, keys and seed phrases are longer
_SEGWIT_PREFIXES = tuple({f"{known.hrp}1" for known in NETWORKS})
_EXTENDED_KEY_LETTERS = "xyzYZtuvUV"  # before "pub" or "prv", BIP-32 and SLIP-132
_DESCRIPTORS = tuple(
    f"{name}("
    for name in ["addr", "combo", "multi", "pk", "pkh", "raw", "rawtr", "sh", "sortedmulti", "tr", "wpkh", "wsh"]
)  # BIP-380 ff.
_WIF_LETTERS = {51: "59", 52: "KLc"}  # a WIF key's first character by its length


def address_to_script(address: str, network: Network) -> bytes:
    """The scriptPubKey of an address on a network (Core key_io.cpp DecodeDestination).

    Raises WrongNetworkError for a valid address of another network, AddressError for anything else. The message never
    repeats text that may be a private key or a seed phrase.
    """
    script = decode_address(address, network.p2pkh_version, network.p2sh_version, network.hrp)
    return _decode(address, network) if script is None else script


def _decode(address: str, network: Network) -> bytes:
    """Decode what the kernel's fast path did not: invalid addresses, and all addresses if the kernel is not
    compiled.
    """
    _check_text(address)
    lower = address.lower()
    if lower.startswith(_SEGWIT_PREFIXES) or (network.hrp and lower.startswith(f"{network.hrp}1")):
        return _segwit_to_script(address, network)
    return _base58_to_script(address, network)


def script_to_address(script_pubkey: bytes, network: Network) -> str | None:
    """The address of a P2PKH, P2SH or witness scriptPubKey on a network (Core key_io.cpp EncodeDestination).

    None for scripts without an address: bare public keys, multisig, OP_RETURN, witness v0 programs of neither 20 nor 32
    bytes; and for all witness programs on a network without a human-readable part.
    """
    return encode_address(script_pubkey, network.p2pkh_version, network.p2sh_version, network.hrp)


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
        raise AddressError(
            f"an extended {kind} key ({text[:4]}…) where an address is expected: give the addresses derived from it"
        )
    if text.startswith(_DESCRIPTORS):
        raise AddressError("an output descriptor where an address is expected: give the addresses derived from it")
    # judged by shape alone: a mistyped key is a secret too
    if text[0] in _WIF_LETTERS.get(len(text), "") and text.isalnum():
        raise AddressError("this looks like a private key (WIF), where an address is expected")
    if len(text) > MAX_ADDRESS_LENGTH:  # before base58 decoding, which is quadratic
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


def _base58_to_script(text: str, network: Network) -> bytes:
    from bitcoin.base58 import InvalidBase58Error, decode

    try:
        raw: bytes = decode(text)
    except InvalidBase58Error:
        at, char = next((at, char) for at, char in enumerate(text, 1) if char not in BASE58_DIGITS)
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
        text,
        network,
        lambda known: version in (known.p2pkh_version, known.p2sh_version),
        f"base58 version byte {version}",
    )


def _no_base58(cause: str, text: str) -> AddressError:
    """The error for a string that is neither base58 nor bech32 with a known prefix; it may still be bech32 of another
    currency.
    """
    try:
        hrp, _, _ = bech32_decode(text)
    except AddressError:
        return _bad(cause, text)
    return _bad(f"human-readable part {hrp!r} belongs to no known network", text)


# bech32: human-readable part, "1", then 5-bit values as characters: witness version, program, six checksum values

_NO_DIGIT = 0xFF
_VALUE_OF_CHAR = bytes(BECH32_DIGITS.find(char) & _NO_DIGIT for char in range(256))
_BASE32_DIGITS = b"0123456789abcdefghijklmnopqrstuv".ljust(256, b"?")  # the digits of int(…, 32)


class Bech32Encoding(IntEnum):
    """The two checksums of segwit addresses; the value is the residue of a valid string."""

    BECH32 = BECH32_RESIDUE
    """BIP-173."""
    BECH32M = BECH32M_RESIDUE
    """BIP-350."""


def bech32_encode(hrp: str, values: bytes, encoding: Bech32Encoding) -> str:
    """The bech32 string of a lower-case human-readable part and 5-bit values; the checksum is appended (BIP-173,
    BIP-350).

    Raises ParameterError if there is no valid string.
    """
    return bech32(hrp, values, encoding)


def bech32_decode(text: str) -> tuple[str, bytes, Bech32Encoding]:
    """The human-readable part (lower case), the 5-bit values without checksum, and the kind of checksum (BIP-173 §
    Bech32, BIP-350).

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
        encoding = Bech32Encoding(residue(hrp, values))
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
