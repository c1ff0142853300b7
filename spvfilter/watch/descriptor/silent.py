"""Silent payment descriptors, sp() (BIP-392): a private scan key and a public spend key, with their origins.

    sp([ORIGIN]spscan1…)     the scan key and the spend key encoded together, derived at ORIGIN/1h/0 and ORIGIN/0h/0
    sp(SCAN,SPEND)           SCAN is a private key: a compressed WIF, or an xprv with a path; SPEND is a public key

No error or repr ever shows the scan key. A private spend key is refused, like any private key elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any  # wallycore ships no types

from spvfilter.address import Bech32Encoding, bech32_decode, from_5_bits
from spvfilter.errors import AddressError, DescriptorError, FormatError, WrongNetworkError, alternatives, remedy
from spvfilter.hashes import sha256d
from spvfilter.network import MAINNET, NETWORKS, Network
from spvfilter.silent import curve
from spvfilter.silent.address import MAX_SILENT_LENGTH, SilentAddress, silent_prefix
from spvfilter.watch.descriptor import keyexpression
from spvfilter.watch.descriptor.checksum import checksum, split_checksum
from spvfilter.watch.descriptor.expression import Expression, fault, parse_expression

HARDENED = 1 << 31
_SCAN_STEPS, _SPEND_STEPS = (1 + HARDENED, 0), (HARDENED, 0)
"""Steps from the account key to the scan key, and to the spend key (BIP-352 § Key derivation)."""
_LONGEST = 4_000
"""Largest length of a descriptor in characters (our choice). A musig() of 15 extended keys fits."""
_PAYLOAD = 65
"""Size of the contents of spscan1… in bytes: the private scan key, and the compressed spend key."""
_SCAN_TEXT = re.compile(r"t?spscan1", re.IGNORECASE)
_SPEND_TEXT = re.compile(r"t?spspend1", re.IGNORECASE)
_EXTENDED = re.compile(r"[xt]p(rv|ub)[0-9A-Za-z]*")
_PRIVATE_VERSIONS = {"xprv": 0x0488ADE4, "tprv": 0x04358394}
"""Version numbers of extended private keys. Source: BIP-32 § Serialization format."""
_EXTENDED_SIZE = 78
"""Size of a serialized extended key in bytes, without its checksum."""
_WIF_VERSIONS = {0x80: True, 0xEF: False}
"""First byte of a private key in WIF, with True for mainnet and False for the test networks."""
_LONGEST_KEY = 120
"""Largest length of a base58 key in characters (our choice). Decoding takes time quadratic in the length."""

Origin = tuple[bytes, tuple[int, ...]]
"""Fingerprint of the master key, and the path from it. Hardened steps are 2^31 or more."""


@dataclass(frozen=True, slots=True)
class SilentDescriptor:
    """An sp() descriptor with its private scan key, which finds payments but cannot spend them."""

    secret: str = field(repr=False)
    """The descriptor with the scan key and its checksum. Only a file of mode 0600 may contain it."""
    text: str
    """The descriptor with the public scan key instead of the private one, and its checksum."""
    scan_key: bytes = field(repr=False)
    """Private scan key, 32 bytes."""
    spend_pubkey: bytes
    """Compressed public spend key, 33 bytes."""
    network: Network
    """Network of the keys."""
    spend_origin: Origin | None
    """Origin of the spend key, or None if the descriptor gives none or the key is a musig()."""

    @property
    def address(self) -> SilentAddress:
        """The address without a label."""
        return SilentAddress(curve.public_key(self.scan_key), self.spend_pubkey, self.network)


def parse_silent(text: str, network: Network) -> SilentDescriptor:
    """Parse an sp() descriptor, with or without a checksum.

    Raises:
        DescriptorError: The text is not such a descriptor, or contains a private spend key. No message repeats a key.
        WrongNetworkError: A key belongs to another network.
        ParameterError: The `silent` extra is not installed.
    """
    curve.library()
    text = text.strip()
    if len(text) > _LONGEST:
        raise DescriptorError(f"an sp() descriptor must be at most {_LONGEST:,} characters long, not {len(text):,}")
    if found := re.search(r"\s", text):
        raise fault(found.start(), "a descriptor must not contain a space or line break: remove it")
    if _SPEND_TEXT.search(text):
        raise DescriptorError(
            "spspend1… contains the private spend key, which was not kept: export the scan key, sp(spscan1…)"
        )
    body, stated = split_checksum(text)
    whole = parse_expression(body)
    if whole.text != "sp" or whole.arguments is None or whole.suffix:
        raise DescriptorError("expected sp(spscan1…) or sp(SCAN,SPEND), and nothing after it but #CHECKSUM")
    if len(whole.arguments) == 1:
        scan_key, spend_pubkey, origin = _single(whole.arguments[0], network)
        scan_origin = None if origin is None else (origin[0], (*origin[1], *_SCAN_STEPS))
        spend_origin = None if origin is None else (origin[0], (*origin[1], *_SPEND_STEPS))
        spend = _origin_text(spend_origin) + spend_pubkey.hex()
    elif len(whole.arguments) == 2:
        scan_key, scan_origin = _scan_key(whole.arguments[0], network)
        spend_pubkey, spend_origin = _spend_key(whole.arguments[1], network)
        spend = body[whole.arguments[1].at : -1]
    else:
        raise DescriptorError(f"expected sp(spscan1…) or sp(SCAN,SPEND), found sp() with {len(whole.arguments)} keys")
    public = f"sp({_origin_text(scan_origin)}{curve.public_key(scan_key).hex()},{spend})"
    return SilentDescriptor(
        f"{body}#{stated}",
        f"{public}#{checksum(public)}",
        scan_key,
        spend_pubkey,
        network,
        spend_origin,
    )


def _origin_text(origin: Origin | None) -> str:
    if origin is None:
        return ""
    steps = "".join(f"/{step % HARDENED}{'h' if step >= HARDENED else ''}" for step in origin[1])
    return f"[{origin[0].hex()}{steps}]"


def _atom(expression: Expression) -> tuple[int, str, Origin | None]:
    """Return the offset and the text of a key after its origin, and the origin if there is one."""
    if expression.arguments is not None:
        raise fault(expression.at, f"expected a key, found {expression.shown}")
    return keyexpression.without_origin(expression)


def _single(expression: Expression, network: Network) -> tuple[bytes, bytes, Origin | None]:
    """Return the scan key, the spend key and the origin in sp(spscan1…)."""
    at, text, origin = _atom(expression)
    if not _SCAN_TEXT.match(text):
        raise fault(at, "sp() with one key needs spscan1… (tspscan1… on a test network), the export of the scan key")
    try:
        hrp, values, encoding = bech32_decode(text, limit=MAX_SILENT_LENGTH)
        payload = from_5_bits(values[1:])
    except (AddressError, FormatError):
        raise fault(at, "spscan1… was mistyped or is incomplete: copy it from the wallet again") from None
    if encoding is not Bech32Encoding.BECH32M or not values:
        raise fault(at, "spscan1… has the checksum of a different encoding: copy it from the wallet again")
    if values[0]:
        raise fault(at, f"spscan1… must have version 0 (q after the 1), not {values[0]}")
    _check_network(is_main=hrp == "spscan", network=network)
    if len(payload) != _PAYLOAD or payload[32] not in (2, 3) or curve.parse_key(payload[32:]) is None:
        raise fault(at, "spscan1… does not contain a 32-byte scan key and a compressed 33-byte spend key")
    return _checked_scan_key(payload[:32], at), payload[32:], origin


def _check_network(*, is_main: bool, network: Network) -> None:
    if is_main != (silent_prefix(network) == "sp"):
        owners = tuple(known.name for known in NETWORKS if is_main == (known is MAINNET))
        raise WrongNetworkError(
            f"the scan key of sp() is for {alternatives(owners)}, not for {network}: choose its network, or give the "
            "right"
            " key",
            owners,
        )


def _checked_scan_key(key: bytes, at: int) -> bytes:
    try:
        curve.public_key(key)
    except ValueError:
        raise fault(at, "the private scan key is zero or not below the order of the secp256k1 curve") from None
    return key


def _scan_key(expression: Expression, network: Network) -> tuple[bytes, Origin | None]:
    """Return the private scan key, which is the first of two keys, and its origin."""
    at, text, origin = _atom(expression)
    name, slash, path = text.partition("/")
    if _SCAN_TEXT.match(name):
        raise fault(at, "spscan1… must be the only argument of sp(), because it contains the spend key")
    if found := _EXTENDED.match(name):
        if found[1] == "ub":
            raise fault(at, "sp() needs the private scan key, not an extended public key: give its xprv or WIF")
        return _extended_scan_key(at, name, path if slash else None, network, origin)
    if re.fullmatch(r"[0-9a-fA-F]{66}", name):
        raise fault(at, "sp() needs the private scan key, not a public key: give its WIF, or sp(spscan1…)")
    raw = _base58(name)
    if raw is None or len(raw) not in (33, 34) or raw[0] not in _WIF_VERSIONS:
        raise fault(at, "expected the private scan key: a compressed WIF, or an xprv or tprv with its path")
    if len(raw) == 33 or raw[33] != 1:
        raise fault(at, "the private key is uncompressed, but silent payments only use compressed keys (BIP-352)")
    if slash:
        raise fault(at, "a WIF has no child keys: remove the path after it")
    _check_network(is_main=_WIF_VERSIONS[raw[0]], network=network)
    return _checked_scan_key(raw[1:33], at), origin


def _base58(text: str) -> bytes | None:
    """Decode base58 text, and return its bytes without the checksum, or None if the checksum is wrong."""
    from bitcoin.base58 import InvalidBase58Error, decode

    try:
        raw = bytes(decode(text[: _LONGEST_KEY + 1])) if len(text) <= _LONGEST_KEY else b""
    except InvalidBase58Error:
        return None
    return raw[:-4] if len(raw) > 4 and sha256d(raw[:-4])[:4] == raw[-4:] else None


def _extended_scan_key(
    at: int, name: str, path: str | None, network: Network, origin: Origin | None
) -> tuple[bytes, Origin | None]:
    """Return the key that an extended private key derives at a path, and its origin."""
    raw = _base58(name)
    if raw is None or len(raw) != _EXTENDED_SIZE or int.from_bytes(raw[:4]) != _PRIVATE_VERSIONS[name[:4]]:
        raise fault(at, f"{name[:4]}… was mistyped or is incomplete: copy it from the wallet again")
    _check_network(is_main=name[:4] == "xprv", network=network)
    steps: list[int] = []
    for step in [] if path is None else path.split("/"):
        if step.startswith(("*", "<")):
            raise fault(at, "the scan key is a single key: give its whole path, without a wildcard or multipath")
        steps.append(keyexpression.number_of_step(step, at))
    library = _wally()
    try:
        key = library.bip32_key_unserialize(raw)
        own = bytes(library.bip32_key_get_fingerprint(key))
        if steps:
            flags = library.BIP32_FLAG_KEY_PRIVATE | library.BIP32_FLAG_SKIP_HASH
            key = library.bip32_key_from_parent_path(key, steps, flags)
        private = bytes(library.bip32_key_get_priv_key(key))
    except (ValueError, RuntimeError):
        raise fault(at, f"no key can be derived from {name[:4]}… at its path") from None
    master, before = origin if origin is not None else (own, ())
    return _checked_scan_key(private, at), (master, (*before, *steps))


def _wally() -> Any:
    try:
        return keyexpression.wally()
    except ImportError:
        raise DescriptorError(
            f"sp(SCAN,SPEND) needs wallycore; {remedy('descriptors')}, or give sp(spscan1…)"
        ) from None


def _spend_key(expression: Expression, network: Network) -> tuple[bytes, Origin | None]:
    """Return the public spend key of sp(SCAN,SPEND), and its origin. Raises DescriptorError."""
    _wally()
    if expression.arguments is None:
        at, text, stated = _atom(expression)
        if _SCAN_TEXT.match(text):
            raise fault(at, "spscan1… must be the only argument of sp(), because it contains the spend key")
        raw = _base58(text.partition("/")[0])
        if text[1:4] == "prv" or (raw is not None and len(raw) in (33, 34)):
            raise fault(at, "this is a private spend key, which was not kept: give the public key instead")
    else:
        stated = None

    def refuse(error: DescriptorError) -> None:
        raise error

    reading = keyexpression.Reading(network, refuse)
    key = keyexpression.read_key(expression, keyexpression.KeyPlace.SILENT, reading)
    if key.is_ranged or key.paths > 1:
        raise fault(key.at, "the spend key is a single key: give its whole path, without a wildcard or multipath")
    try:
        (public,) = key.bind(0)([0])
    except (ValueError, RuntimeError):
        raise fault(key.at, "the spend key cannot be derived at its path") from None
    has_origin = stated is not None or (expression.arguments is None and reading.has_extended)
    return public, (key.fingerprint, key.path(0, 0)) if has_origin else None
