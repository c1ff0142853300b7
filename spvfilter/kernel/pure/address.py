"""Encoding of addresses (base58check, bech32 of BIP-173, bech32m of BIP-350), and the fast path for decoding them.

The reference does not decode addresses; it leaves them all to spvfilter.address. The compiled twin must return the
same results.
"""

from __future__ import annotations

from functools import lru_cache

from spvfilter.errors import ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.arguments import snapshot, whole

MAX_ADDRESS_LENGTH = 90  # Characters of a bech32 string, BIP-173 § Bech32.
BECH32_RESIDUE, BECH32M_RESIDUE = 1, 0x2BC830A3  # Residues of valid strings, BIP-173 and BIP-350.
BASE58_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BECH32_DIGITS = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_CHAR_OF_VALUE = BECH32_DIGITS.ljust(256, b"?")
_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)  # BIP-173 § Checksum


def check_network(p2pkh_version: int, p2sh_version: int, hrp: str) -> None:
    """Raise ParameterError for a version byte out of range, and TypeError for an argument of the wrong type."""
    for version in (p2pkh_version, p2sh_version):
        whole(version, 0, 255, "a version byte must be from 0 to 255")
    if not isinstance(hrp, str):
        raise TypeError(f"the human-readable part must be a str, not {type(hrp).__name__}")
    hrp.encode()


def decode_address(text: str, p2pkh_version: int, p2sh_version: int, hrp: str, /) -> bytes | None:
    """Return the scriptPubKey of a valid address, or None to leave the address to spvfilter.address.

    The reference always returns None. The compiled twin decodes most valid addresses, and returns None for all others.

    Args:
        text: The address.
        p2pkh_version: Version byte of the network's P2PKH addresses.
        p2sh_version: Version byte of the network's P2SH addresses.
        hrp: Human-readable part of the network's bech32 addresses.

    Raises:
        ParameterError: A version byte is not between 0 and 255.
        TypeError: An argument has the wrong type.
    """
    check_network(p2pkh_version, p2sh_version, hrp)
    return None


def encode_address(script: bytes, p2pkh_version: int, p2sh_version: int, hrp: str, /) -> str | None:
    """Return the address of a P2PKH, P2SH or witness scriptPubKey, or None for any other script.

    Args:
        script: The scriptPubKey.
        p2pkh_version: Version byte of the network's P2PKH addresses.
        p2sh_version: Version byte of the network's P2SH addresses.
        hrp: Human-readable part of the network's bech32 addresses. If it is empty, the network has no segwit addresses.

    Raises:
        ParameterError: A version byte is not between 0 and 255, or a witness program has no bech32 string with this
            human-readable part.
        TypeError: An argument has the wrong type.
    """
    script = snapshot(script)
    check_network(p2pkh_version, p2sh_version, hrp)
    return address_of(script, p2pkh_version, p2sh_version, hrp)


def address_of(script: bytes, p2pkh_version: int, p2sh_version: int, hrp: str) -> str | None:
    """Like encode_address, for arguments that have been checked."""
    size = len(script)
    if size == 25 and script[:3] == b"\x76\xa9\x14" and script[23:] == b"\x88\xac":
        return base58check(bytes((p2pkh_version,)) + script[3:23])
    if size == 23 and script[:2] == b"\xa9\x14" and script[22] == 0x87:
        return base58check(bytes((p2sh_version,)) + script[2:22])
    if not hrp or not 4 <= size <= 42 or script[1] != size - 2:
        return None
    opcode = script[0]
    if opcode == 0 and size in (22, 34):
        return bech32(hrp, b"\x00" + to_5_bits(script[2:]), BECH32_RESIDUE)
    if 0x51 <= opcode <= 0x60:  # OP_1…OP_16
        return bech32(hrp, bytes((opcode - 0x50,)) + to_5_bits(script[2:]), BECH32M_RESIDUE)
    return None


def base58check(payload: bytes) -> str:
    """Encode the payload and the first 4 bytes of its double SHA-256 in base58."""
    raw = payload + sha256d(payload)[:4]
    number, digits = int.from_bytes(raw, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        digits = BASE58_DIGITS[digit] + digits
    return "1" * (len(raw) - len(raw.lstrip(b"\0"))) + digits


def _generator_sum(top: int) -> int:
    total = 0
    for bit, term in enumerate(_GENERATOR):
        if top >> bit & 1:
            total ^= term
    return total


_GENERATOR_SUMS = tuple(_generator_sum(top) for top in range(32))


@lru_cache(maxsize=16)
def _expanded(hrp: str) -> bytes:
    prefix = hrp.encode("ascii")
    return bytes(char >> 5 for char in prefix) + b"\x00" + bytes(char & 31 for char in prefix)


def residue(hrp: str, values: bytes) -> int:
    """Return the BCH residue of BIP-173 § Checksum over the expanded human-readable part and 5-bit values."""
    state = 1
    for value in _expanded(hrp) + values:
        state = (state & 0x1FFFFFF) << 5 ^ value ^ _GENERATOR_SUMS[state >> 25]
    return state


def bech32(hrp: str, values: bytes, of: int, limit: int = MAX_ADDRESS_LENGTH) -> str:
    """Return the human-readable part, "1", the 5-bit values, and a checksum of six values that makes the residue `of`.

    The residue is BECH32_RESIDUE or BECH32M_RESIDUE. Raises ParameterError if there is no valid string of at most
    `limit` characters.
    """
    if not hrp or hrp != hrp.lower() or not all(33 <= ord(char) <= 126 for char in hrp):
        raise ParameterError(f"a human-readable part must be lower-case printable ASCII, not {hrp[:100]!r}")
    if max(values, default=0) > 31:
        raise ParameterError(f"a bech32 value must be from 0 to 31, not {max(values)}")
    if len(hrp) + len(values) + 7 > limit:
        raise ParameterError(
            f"a bech32 string must be at most {limit} characters long, not {len(hrp) + len(values) + 7}"
        )
    left = residue(hrp, values + bytes(6)) ^ of
    checksum = bytes(left >> shift & 31 for shift in (25, 20, 15, 10, 5, 0))
    return f"{hrp}1{(values + checksum).translate(_CHAR_OF_VALUE).decode('ascii')}"


def to_5_bits(data: bytes) -> bytes:
    """Return the bits of `data` in groups of five. The last group is padded with zeros."""
    count = (len(data) * 8 + 4) // 5
    number = int.from_bytes(data, "big") << count * 5 - len(data) * 8
    return bytes(number >> 5 * left & 31 for left in range(count - 1, -1, -1))
