"""Conversion between addresses and scriptPubKeys: base58check, bech32 (BIP-173) and bech32m (BIP-350)."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum

from spvfilter._public import naming
from spvfilter.errors import AddressError, FormatError, WrongNetworkError, alternatives
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
    "from_5_bits",
    "script_to_address",
]

# Longest text, in characters, that a message shows: base58 addresses are no longer, but keys and seed phrases are.
_MAX_BASE58_SHOWN = 36
# Letters and digits as in an address. Words of a seed phrase are shorter, and a mini private key begins with S.
_ADDRESS_LIKE = re.compile(r"(?<![^\W_])(?!S)[^\W_]{14}")
_SEGWIT_PREFIXES = tuple({f"{known.hrp}1" for known in NETWORKS})
_BASE58_LENGTHS = range(26, _MAX_BASE58_SHOWN + 1)  # Lengths of text that may be a base58 address.
_EXTENDED_KEY_LETTERS = "xyzYZtuvUV"  # The letter before "pub" or "prv" in an extended key, BIP-32 and SLIP-132.
_DESCRIPTORS = tuple(
    f"{name}("
    for name in ["addr", "combo", "multi", "pk", "pkh", "raw", "rawtr", "sh", "sortedmulti", "sp", "tr", "wpkh", "wsh"]
)  # First characters of an output descriptor, BIP-380 to BIP-386 and BIP-392.
_SILENT_PREFIXES = ("sp1", "tsp1")  # of silent payment addresses, BIP-352
_SILENT_KEY = re.compile(r"t?sp(scan|spend)1", re.IGNORECASE)  # private keys of silent payments, BIP-392
_PUBLIC_KEYS_ADVICE = "give one address, or call add_descriptor, which watches all its addresses"
_WIF_LETTERS = {51: "59", 52: "KLc"}  # First characters of a private key in WIF, by its length.


def address_to_script(address: str, network: Network | str) -> bytes:
    """Return the scriptPubKey of an address on a network (Core key_io.cpp DecodeDestination).

    `network` may be a Network or its name. Raises WrongNetworkError if the address belongs to another network, and
    AddressError if the text is not a valid address. The message never repeats text that may be a private key or a seed
    phrase.
    """
    if type(network) is not Network:
        network = Network.of(network)
    script = decode_address(address, network.p2pkh_version, network.p2sh_version, network.hrp)
    return _decode(address, network) if script is None else script


def _decode(address: str, network: Network) -> bytes:
    """Decode an address that the kernel did not decode. Without the compiled kernel, that is every address."""
    _check_text(address)
    lower = address.lower()
    if lower.startswith(_SEGWIT_PREFIXES) or (network.hrp and lower.startswith(f"{network.hrp}1")):
        return _segwit_to_script(address, network)
    return _base58_to_script(address, network)


def script_to_address(script_pubkey: bytes, network: Network | str) -> str | None:
    """Return the address of a P2PKH, P2SH or witness scriptPubKey on a network (Core key_io.cpp EncodeDestination).

    Returns None for a script without an address: a bare public key, bare multisig, OP_RETURN, or a witness v0 program
    of neither 20 nor 32 bytes. On a network without a human-readable part, no witness program has an address.
    """
    if type(network) is not Network:
        network = Network.of(network)
    return encode_address(script_pubkey, network.p2pkh_version, network.p2sh_version, network.hrp)


def owner_of(text: str) -> Network | None:
    """Return the first network on which `text` is a valid address, or None if there is none."""
    for network in NETWORKS:
        try:
            address_to_script(text, network)
        except AddressError:
            continue
        return network
    return None


def _shown(text: str) -> str:
    """Return the part of `text` that an error message may show: a short piece, and nothing that may be a secret."""
    is_short = len(text) <= _MAX_BASE58_SHOWN and _ADDRESS_LIKE.search(text) is not None
    # bech32 uses a single case, but a private key appended to it does not
    has_one_case = text in (text.lower(), text.upper())
    if is_short or (text.lower().startswith(_SEGWIT_PREFIXES) and text.isalnum() and has_one_case):
        return repr(text[:MAX_ADDRESS_LENGTH]) + ("…" if len(text) > MAX_ADDRESS_LENGTH else "")
    return f"{len(text)} characters, not shown because they may be a secret"


def _bad(cause: str, text: str) -> AddressError:
    return AddressError(f"{cause}: {_shown(text)}")


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"an address must be a str, not {type(text).__name__}")
    if not text:
        raise AddressError("the address is empty")
    if text[1:4] in ("pub", "prv") and text[0] in _EXTENDED_KEY_LETTERS:
        kind = "private" if text[1:4] == "prv" else "public"
        advice = "give the addresses derived from it" if kind == "private" else _PUBLIC_KEYS_ADVICE
        raise AddressError(f"expected an address, got an extended {kind} key ({text[:4]}…): {advice}")
    if text[:8].lower() == "bitcoin:":
        raise AddressError(
            "expected an address, got a bitcoin: URI: give the part between bitcoin: and the question mark"
        )
    if text.startswith(_DESCRIPTORS):
        raise AddressError(f"expected an address, got an output descriptor: {_PUBLIC_KEYS_ADVICE}")
    if _SILENT_KEY.match(text):
        raise AddressError("expected an address, got a private scan or spend key of silent payments")
    if text.lower().startswith(_SILENT_PREFIXES):
        raise AddressError(
            "this is a silent payment address, which never appears on the chain: only its owner's scan key finds its"
            " payments"
        )
    # The checksum is not verified: a mistyped private key is a secret too.
    if text[0] in _WIF_LETTERS.get(len(text), "") and text.isalnum():
        raise AddressError("expected an address, but this looks like a private key (WIF)")
    if len(text) > MAX_ADDRESS_LENGTH:  # Checked first, because base58 decoding takes quadratic time.
        raise _bad(f"an address must be at most {MAX_ADDRESS_LENGTH} characters long, not {len(text)}", text)
    _check_characters(text)


def _check_characters(text: str) -> None:
    """Raise AddressError unless every character is printable ASCII other than a space (33 to 126)."""
    if text.isascii() and text.isprintable() and " " not in text:
        return
    at, char = next((at, char) for at, char in enumerate(text, 1) if not 33 <= ord(char) <= 126)
    kind = "whitespace" if char.isspace() else "control" if ord(char) < 128 else "non-ASCII"
    raise _bad(f"{kind} character U+{ord(char):04X} at position {at}", text)


def _refuse_network(text: str, network: Network, belongs: Callable[[Network], bool], what: str) -> AddressError:
    """Return the error for an address that is valid, but whose prefix (described by `what`) `network` does not use."""
    names = tuple(known.name for known in NETWORKS if belongs(known))
    if not names:
        return _bad(f"{what} belongs to no known network", text)
    advice = "choose its network, or give another address"
    return WrongNetworkError(
        f"this address is for {alternatives(names)}, not for {network}: {_shown(text)}; {advice}", names
    )


# A base58check address encodes a version byte, a 20-byte hash and the first 4 bytes of their double SHA-256 in base58.


def _base58_to_script(text: str, network: Network) -> bytes:
    from bitcoin.base58 import InvalidBase58Error, decode

    try:
        raw: bytes = decode(text)
    except InvalidBase58Error:
        at, char = next((at, char) for at, char in enumerate(text, 1) if char not in BASE58_DIGITS)
        raise _no_base58(f"bad base58 character {char!r} at position {at}", text) from None
    if sha256d(raw[:-4])[:4] != raw[-4:]:
        raise _no_base58("bad base58 checksum, so a character is wrong", text)
    version, payload = raw[0], raw[1:-4]
    if len(payload) != 20:
        raise _bad(f"a base58 address must encode 20 bytes, not {len(payload)}", text)
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
    """Return the error for a string that is not base58. It says so if the string is bech32 of another currency."""
    try:
        hrp, _, _ = bech32_decode(text)
    except AddressError:
        return _bad(cause if len(text) in _BASE58_LENGTHS else "not an address", text)
    return _bad(f"human-readable part {hrp!r} belongs to no known network", text)


# A segwit address in bech32 consists of a human-readable part, "1", and characters that encode 5 bits each: witness
# version, witness program, six checksum values.

_NO_DIGIT = 0xFF
_VALUE_OF_CHAR = bytes(BECH32_DIGITS.find(char) & _NO_DIGIT for char in range(256))
_BASE32_DIGITS = b"0123456789abcdefghijklmnopqrstuv".ljust(256, b"?")  # Digits of int(text, 32).


class Bech32Encoding(IntEnum):
    """The two checksums of segwit addresses. Each member's value is the residue of a valid string."""

    BECH32 = BECH32_RESIDUE
    """Checksum of witness version 0 (BIP-173)."""
    BECH32M = BECH32M_RESIDUE
    """Checksum of witness versions 1 to 16 (BIP-350)."""


@naming
def bech32_encode(hrp: str, values: bytes, encoding: Bech32Encoding, *, limit: int = MAX_ADDRESS_LENGTH) -> str:
    """Encode 5-bit values as a bech32 string and append the checksum (BIP-173, BIP-350).

    Args:
        hrp: Human-readable part, in lower case.
        values: Values from 0 to 31, one per byte.
        encoding: The checksum to append.
        limit: Largest length of the string in characters.

    Raises:
        ParameterError: The human-readable part or a value is invalid, or the string is longer than `limit`.
    """
    return bech32(hrp, values, encoding, limit)


@naming
def bech32_decode(text: str, *, limit: int = MAX_ADDRESS_LENGTH) -> tuple[str, bytes, Bech32Encoding]:
    """Decode a bech32 string (BIP-173 § Bech32, BIP-350). The witness version and program are not checked.

    Args:
        text: The string.
        limit: Largest length of the string in characters.

    Returns:
        The human-readable part in lower case, the 5-bit values without the checksum, and the kind of checksum.

    Raises:
        AddressError: The string is not valid.
    """
    if len(text) > limit:
        raise _bad(f"a bech32 string must be at most {limit} characters long, not {len(text)}", text)
    _check_characters(text)
    lower = text.lower()
    if text not in (lower, text.upper()):
        raise _bad("upper and lower case are mixed", text)
    hrp, separator, data = lower.rpartition("1")
    if not separator:
        raise _bad("the separator '1' is missing", text)
    if not hrp:
        raise _bad("the human-readable part is empty", text)
    if len(data) < 6:
        raise _bad("too short for a bech32 checksum", text)
    values = data.encode("ascii").translate(_VALUE_OF_CHAR)
    if _NO_DIGIT in values:
        at = values.index(_NO_DIGIT) + len(hrp) + 1
        raise _bad(f"bad bech32 character {text[at]!r} at position {at + 1}", text)
    try:
        encoding = Bech32Encoding(residue(hrp, values))
    except ValueError:
        raise _bad("bad bech32 checksum, so a character is wrong", text) from None
    return hrp, values[:-6], encoding


def _segwit_to_script(text: str, network: Network) -> bytes:
    """Return the scriptPubKey of a segwit address (BIP-173 § Segwit address format, BIP-350)."""
    hrp, values, encoding = bech32_decode(text)
    if not values:
        raise _bad("the witness version is missing", text)
    version = values[0]
    if version > 16:
        raise _bad(f"the witness version must be at most 16, not {version}", text)
    if version == 0 and encoding is not Bech32Encoding.BECH32:
        raise _bad("witness version 0 must have a bech32 checksum, not bech32m", text)
    if version > 0 and encoding is not Bech32Encoding.BECH32M:
        raise _bad(f"witness version {version} must have a bech32m checksum, not bech32", text)
    program = _to_8_bits(values[1:], text)
    if not 2 <= len(program) <= 40:
        raise _bad(f"a witness program must be 2 to 40 bytes long, not {len(program)}", text)
    if version == 0 and len(program) not in (20, 32):
        raise _bad(f"a witness program of version 0 must be 20 or 32 bytes long, not {len(program)}", text)
    if hrp != network.hrp:
        raise _refuse_network(text, network, lambda known: known.hrp == hrp, f"human-readable part {hrp!r}")
    return bytes((0x50 + version if version else 0, len(program))) + program


@naming
def from_5_bits(values: bytes) -> bytes:
    """Return the bytes that 5-bit values encode.

    Raises FormatError if a value is above 31, or if the padding is longer than 4 bits or is not zero.
    """
    size, padding = divmod(len(values) * 5, 8)
    if padding > 4:
        raise FormatError(f"the padding must be at most 4 bits long, not {padding}", offset=0, field="5-bit values")
    if values and max(values) > 31:
        raise FormatError(f"a value must be at most 31, not {max(values)}", offset=0, field="5-bit values")
    number = int(b"0" + values.translate(_BASE32_DIGITS), 32)
    if number & ((1 << padding) - 1):
        raise FormatError("the padding bits must be zero", offset=0, field="5-bit values")
    return (number >> padding).to_bytes(size, "big")


def _to_8_bits(values: bytes, text: str) -> bytes:
    try:
        return from_5_bits(values)
    except FormatError as error:
        raise _bad(error.message, text) from None
