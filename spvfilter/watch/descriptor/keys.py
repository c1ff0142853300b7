"""Extended public keys in text:

BIP-32's serialisation, SLIP-132's prefixes, the network that a key belongs to, and private keys, refused.

No error repeats what may be a private key, and none repeats a key whose checksum is wrong.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from spvfilter.errors import DescriptorError, WrongNetworkError
from spvfilter.hashes import sha256d
from spvfilter.network import MAINNET, NETWORKS, Network

_PUBLIC = {"main": 0x0488B21E, "test": 0x043587CF}  # BIP-32 § Serialization format: the versions of xpub and tpub
_SIZE = 78  # bytes of a serialised key, without its checksum
_LONGEST = 120  # characters; checked before base58 decoding, which is quadratic
_ACCOUNT_DEPTH = 3  # BIP-44: purpose, coin, account; below are receiving and change


class Prefix(NamedTuple):
    """What the first four characters of an extended public key say (SLIP-132)."""

    version: int
    network: str
    """"main" or "test"."""
    wrapped: str | None
    """The descriptor of its addresses, KEY in the place of the key; None if it names no script type."""
    is_multisig: bool = False


PREFIXES = {
    "xpub": Prefix(_PUBLIC["main"], "main", None),
    "ypub": Prefix(0x049D7CB2, "main", "sh(wpkh(KEY))"),
    "zpub": Prefix(0x04B24746, "main", "wpkh(KEY)"),
    "Ypub": Prefix(0x0295B43F, "main", None, is_multisig=True),
    "Zpub": Prefix(0x02AA7ED3, "main", None, is_multisig=True),
    "tpub": Prefix(_PUBLIC["test"], "test", None),
    "upub": Prefix(0x044A5262, "test", "sh(wpkh(KEY))"),
    "vpub": Prefix(0x045F1CF6, "test", "wpkh(KEY)"),
    "Upub": Prefix(0x024289EF, "test", None, is_multisig=True),
    "Vpub": Prefix(0x02575483, "test", None, is_multisig=True),
}
_EXTENDED = re.compile(r"(?<![0-9A-Za-z])([xyzYZtuvUV]pub[0-9A-Za-z]*)((?:/[^/,(){}#]*)*)")
# where a word starts: a public key may have "prv" within
_PRIVATE_EXTENDED = re.compile(r"(?<![0-9A-Za-z])[xyzYZtuvUV]prv")
# judged by shape: mistyped ones, too
_WIF = re.compile(r"(?<![0-9A-Za-z])(?:[59][0-9A-Za-z]{50}|[KLc][0-9A-Za-z]{51})(?![0-9A-Za-z])")


def is_extended_key(text: str) -> bool:
    """Whether a text, perhaps with an origin [...] before it, starts as an extended key, public or private."""
    return bool(re.match(r"(?:\[[^\]]*\])?[xyzYZtuvUV](?:pub|prv)[0-9A-Za-z]{8}", text))


def refuse_private_keys(text: str) -> None:
    """Raises DescriptorError for a text with what may be a private key; the error repeats none of it."""
    for pattern, what in (
        (_PRIVATE_EXTENDED, "an extended private key (…prv…)"),
        (_WIF, "what looks like a private key (WIF)"),
    ):
        if pattern.search(text):
            raise DescriptorError(
                f"this has {what}; nothing of it was kept: give the wallet's descriptor with public keys"
            )


def extended_keys(text: str) -> list[tuple[str, str]]:
    """The extended public keys in a descriptor, each with the path behind it: `/0/*`."""
    return [(found[1], found[2]) for found in _EXTENDED.finditer(text)]


def check_key(key: str, network: Network) -> bytes:
    """The 78 bytes of an extended public key of this network. Raises DescriptorError, WrongNetworkError."""
    from bitcoin.base58 import InvalidBase58Error, decode

    prefix, name = PREFIXES[key[:4]], f"the extended key {key[:4]}…"
    if len(key) > _LONGEST:
        raise DescriptorError(f"{name} has {len(key)} characters, expected 111")
    try:
        raw: bytes = decode(key)
    except InvalidBase58Error:
        raise DescriptorError(f"{name} has a character that is not base58: copy it anew from the wallet") from None
    if len(raw) != _SIZE + 4 or sha256d(raw[:-4])[:4] != raw[-4:]:
        raise DescriptorError(f"{name} does not fit its checksum: it was mistyped or cut; copy it anew from the wallet")
    raw = raw[:-4]
    if int.from_bytes(raw[:4]) != prefix.version:
        raise DescriptorError(f"{name} is of an unknown version, {raw[:4].hex()}")
    if not raw[4] and any(raw[5:13]):
        raise DescriptorError(f"{name} is a master key that states a parent or an index")
    is_test = prefix.network == "test"
    if is_test == (network.p2pkh_version == MAINNET.p2pkh_version):
        owners = tuple(known.name for known in NETWORKS if is_test != (known is MAINNET))
        raise WrongNetworkError(f"{name} is of {' or '.join(owners)}, not of {network}", owners)
    return raw


def as_plain(key: str, raw: bytes) -> str:
    """The same key as xpub or tpub, as descriptors have it."""
    from bitcoin.base58 import encode

    plain = _PUBLIC[PREFIXES[key[:4]].network].to_bytes(4) + raw[4:]
    return str(encode(plain + sha256d(plain)[:4]))


def descriptor_of_key(text: str, network: Network) -> str:
    """The descriptor that a single extended public key stands for.

    Raises DescriptorError where it stands for none, WrongNetworkError.
    """
    key = re.sub(r"^\[[^\]]*\]", "", text)
    origin = text[: len(text) - len(key)]
    key, slash, _ = key.partition("/")
    prefix = PREFIXES[key[:4]]
    raw = check_key(key, network)
    if prefix.is_multisig:
        raise DescriptorError(
            f"{key[:4]}… is one key of a multisig wallet, and all of them are needed: give the wallet's descriptor,"
            " wsh(sortedmulti(…))"
        )
    if prefix.wrapped is None:
        raise DescriptorError(
            f"{key[:4]}… does not say which kind of addresses it stands for: write pkh(KEY/<0;1>/*),"
            " sh(wpkh(KEY/<0;1>/*)), wpkh(KEY/<0;1>/*) or tr(KEY/<0;1>/*), as the wallet does"
        )
    if slash or raw[4] > _ACCOUNT_DEPTH:
        why = "a path behind it" if slash else f"depth {raw[4]}, below that of an account"
        raise DescriptorError(
            f"{key[:4]}… with {why}: write the descriptor, {prefix.wrapped} with PATH/* behind the key, as xpub or tpub"
        )
    return prefix.wrapped.replace("KEY", f"{origin}{as_plain(key, raw)}/<0;1>/*")
