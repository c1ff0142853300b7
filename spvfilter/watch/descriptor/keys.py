"""Extended public keys as text: serialization (BIP-32), prefixes (SLIP-132) and networks. Private keys are refused.

Errors never repeat text that may be a private key, or a key whose checksum is wrong.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from spvfilter.errors import DescriptorError, WrongNetworkError, alternatives
from spvfilter.hashes import hash160, sha256d
from spvfilter.network import MAINNET, NETWORKS, Network

_PUBLIC = {"main": 0x0488B21E, "test": 0x043587CF}
"""Version numbers of an xpub ("main") and a tpub ("test"). Source: BIP-32 § Serialization format."""
_SIZE = 78
"""Size of a serialized extended key in bytes, without its checksum."""
_LONGEST = 120
"""Largest length of an extended key in characters (our choice). Longer text is not decoded.

Decoding base58 takes time quadratic in the length.
"""
_ACCOUNT_DEPTH = 3
"""Depth of an account key (BIP-44 path: purpose, coin, account). Receiving and change addresses are derived from it."""


class Prefix(NamedTuple):
    """The meaning of the first four characters of an extended public key (SLIP-132)."""

    version: int
    """Version number at the start of a serialized key with this prefix."""
    network: str
    """Network of a key with this prefix: "main" for mainnet, "test" for the test networks."""
    wrapped: str | None
    """Descriptor of the key's addresses, with KEY in place of the key, or None if the prefix implies no script type."""
    is_multisig: bool = False
    """True if the key is one of several keys of a multisig wallet."""


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
_PLACED = re.compile(r"(?:\[([0-9a-fA-F]{8}(?:/\d{1,10}[hH']?)*)\])?([xt]pub[0-9A-Za-z]+)")
_ORIGIN = re.compile(r"\[[0-9a-fA-F]{8}(?:/\d{1,10}[hH']?)*\]")
# at the start of a word only, because a public key may contain "prv"
_PRIVATE_EXTENDED = re.compile(r"(?<![0-9A-Za-z])[xyzYZtuvUV]prv")
# only the shape counts, so that a mistyped key is refused too
_PHRASE = re.compile(r"\s*(?:[a-z]{3,8}\s+){11,23}[a-z]{3,8}\s*", re.IGNORECASE)
# only with part of a key, since the prefix alone is not a secret
_SILENT_KEY = re.compile(r"(?<![0-9A-Za-z])t?sp(?:scan|spend)1[0-9A-Za-z]{20}", re.IGNORECASE)
_WIF = re.compile(r"(?<![0-9A-Za-z])(?:[59][0-9A-Za-z]{50}|[KLc][0-9A-Za-z]{51})(?![0-9A-Za-z])")

_ANY_PRIVATE = re.compile(
    r"(?<![0-9A-Za-z])(?:[xyzYZtuvUV]prv|(?i:t?sp(?:scan|spend)1[0-9A-Za-z]{20})"
    r"|(?:[59][0-9A-Za-z]{50}|[KLc][0-9A-Za-z]{51})(?![0-9A-Za-z]))"
)


def is_extended_key(text: str) -> bool:
    """Return True if text starts like an extended public or private key. A key origin [...] may precede the key."""
    return bool(re.match(r"(?:\[[^\]]*\])?[xyzYZtuvUV](?:pub|prv)[0-9A-Za-z]{8}", text))


def private_key_in(text: str) -> str | None:
    """Return a description of the private key that text may contain, or None. It never repeats the key."""
    if _ANY_PRIVATE.search(text) is None:  # almost every text: one search is cheaper than three
        return None
    for pattern, what in (
        (_PRIVATE_EXTENDED, "an extended private key (…prv…)"),
        (_WIF, "a word that looks like a private key (WIF)"),
        (_SILENT_KEY, "a private key of silent payments (spscan1… or spspend1…)"),
    ):
        if pattern.search(text):
            return what
    return None


def secret_in(text: str) -> str | None:
    """Return a description of the secret that a label or other free text may contain, or None."""
    is_phrase = _PHRASE.fullmatch(text) is not None and len(text.split()) % 3 == 0
    return "text that looks like a seed phrase" if is_phrase else private_key_in(text)


def refuse_private_keys(text: str) -> None:
    """Raise DescriptorError if text may contain a private key. The error does not repeat the text."""
    if (what := private_key_in(text)) is not None:
        raise DescriptorError(
            f"the text contains {what}, which was not kept: give the wallet's descriptor with public keys"
        )


def extended_keys(text: str) -> list[tuple[str, str]]:
    """Return the extended public keys in a descriptor, as pairs of a key and its path, such as `/0/*`."""
    return [(found[1], found[2]) for found in _EXTENDED.finditer(text)]


class AccountKey(NamedTuple):
    """An extended public key of a valid descriptor, with its origin."""

    text: str
    """The key."""
    raw: bytes
    """The serialized key, 78 bytes (BIP-32)."""
    fingerprint: bytes | None
    """First 4 bytes of the HASH160 of the master key, or None if the descriptor does not give the origin."""
    path: tuple[int, ...]
    """Steps of the origin. The number of a hardened step is 2^31 or more."""

    @property
    def is_found(self) -> bool:
        """True if the origin leads from the master key to this key, or this is the master key itself.

        A path with fewer steps than the key's depth leads to another key.
        """
        return not self.raw[4] or (self.fingerprint not in (None, bytes(4)) and len(self.path) >= self.raw[4])

    @property
    def place(self) -> bytes | None:
        """The fingerprint and path for a PSBT (BIP-174), or None if they are unknown or do not lead to this key."""
        master = self.fingerprint or (hash160(self.raw[-33:])[:4] if not self.raw[4] else bytes(4))
        if master == bytes(4) or len(self.path) != self.raw[4]:
            return None
        return master + b"".join(step.to_bytes(4, "little") for step in self.path)


def account_keys(text: str) -> list[AccountKey]:
    """Return the extended public keys of a descriptor that has been parsed, each once."""
    found: dict[str, AccountKey] = {}
    for origin, key in _PLACED.findall(text):
        fingerprint, *steps = origin.split("/")
        path = tuple(int(step.rstrip("hH'")) + (0 if step.isdigit() else 1 << 31) for step in steps)
        found.setdefault(key, AccountKey(key, raw_key(key), bytes.fromhex(fingerprint) or None, path))
    return list(found.values())


def check_key(key: str, network: Network, where: str = "") -> bytes:
    """Check an extended public key, and return its 78 bytes. Error messages begin with `where`.

    Raises DescriptorError if the key is invalid, and WrongNetworkError if it belongs to another network.
    """
    from bitcoin.base58 import InvalidBase58Error, decode

    prefix, name = PREFIXES[key[:4]], f"{where}the extended key {key[:4]}…"
    if len(key) > _LONGEST:
        raise DescriptorError(f"{name} must be 111 characters long, not {len(key)}")
    try:
        raw: bytes = decode(key)
    except InvalidBase58Error:
        raise DescriptorError(
            f"{name} contains a character that is not base58: copy it from the wallet again"
        ) from None
    if len(raw) != _SIZE + 4 or sha256d(raw[:-4])[:4] != raw[-4:]:
        raise DescriptorError(
            f"{where}the checksum of the extended key {key[:4]}… is wrong: it was mistyped or is incomplete; copy it"
            " from the wallet again"
        )
    raw = raw[:-4]
    if int.from_bytes(raw[:4]) != prefix.version:
        raise DescriptorError(f"{name} must have version {prefix.version:08x}, not {raw[:4].hex()}")
    if not raw[4] and any(raw[5:13]):
        raise DescriptorError(f"{name} has depth 0, like a master key, but gives a parent or an index")
    is_test = prefix.network == "test"
    if is_test == (network.p2pkh_version == MAINNET.p2pkh_version):
        owners = tuple(known.name for known in NETWORKS if is_test != (known is MAINNET))
        raise WrongNetworkError(
            f"{name} is for {alternatives(owners)}, not for {network}: choose its network, or give the right key",
            owners,
        )
    return raw


def raw_key(key: str) -> bytes:
    """Return the 78 bytes of an extended public key that `check_key` has checked."""
    from bitcoin.base58 import decode

    return bytes(decode(key))[:_SIZE]


def as_plain(key: str, raw: bytes) -> str:
    """Return an extended public key as an xpub or a tpub, as descriptors require. `raw` is the serialized key."""
    from bitcoin.base58 import encode

    plain = _PUBLIC[PREFIXES[key[:4]].network].to_bytes(4) + raw[4:]
    return str(encode(plain + sha256d(plain)[:4]))


def descriptor_of_key(text: str, network: Network) -> str:
    """Return the descriptor of the receiving and change addresses of an extended public key.

    Raises DescriptorError if the key is invalid, or if the key alone does not determine the addresses. Raises
    WrongNetworkError if the key belongs to another network.
    """
    key = re.sub(r"^\[[^\]]*\]", "", text)
    origin = text[: len(text) - len(key)]
    if origin and not _ORIGIN.fullmatch(origin):
        raise DescriptorError(
            "the origin before the extended key is invalid: expected [FINGERPRINT/PATH], where the fingerprint is"
            " 8 hex digits, with no 0x or m/"
        )
    key, slash, _ = key.partition("/")
    prefix = PREFIXES[key[:4]]
    raw = check_key(key, network)
    if prefix.is_multisig:
        raise DescriptorError(
            f"{key[:4]}… is one key of a multisig wallet, which needs all its keys: give the wallet's descriptor,"
            " wsh(sortedmulti(…))"
        )
    if prefix.wrapped is None:
        raise DescriptorError(
            f"{key[:4]}… does not say which type of addresses to derive: write pkh(KEY/<0;1>/*),"
            " sh(wpkh(KEY/<0;1>/*)), wpkh(KEY/<0;1>/*) or tr(KEY/<0;1>/*), whichever the wallet uses"
        )
    if slash or raw[4] > _ACCOUNT_DEPTH:
        why = "a path after it" if slash else f"depth {raw[4]}, deeper than an account"
        raise DescriptorError(
            f"{key[:4]}… has {why}: write the descriptor {prefix.wrapped} with the key as xpub or tpub, and PATH/*"
            " after it"
        )
    return prefix.wrapped.replace("KEY", f"{origin}{as_plain(key, raw)}/<0;1>/*")
