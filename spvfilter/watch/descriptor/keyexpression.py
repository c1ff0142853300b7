"""Key expressions of descriptors (BIP-380, 389 and 390): origins, public keys, paths, wildcards and musig().

libwally derives single child keys (BIP-32), and the kernel derives many in one call. btclib-secp256k1 aggregates the
keys of musig() (BIP-327).
"""

from __future__ import annotations

import hmac
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any  # wallycore ships no types

from spvfilter.errors import DescriptorError, remedy
from spvfilter.hashes import hash160
from spvfilter.kernel import BACKEND, child_keys
from spvfilter.network import Network
from spvfilter.watch.descriptor import keys
from spvfilter.watch.descriptor.expression import Expression, fault
from spvfilter.watch.descriptor.template import Bind, Derive, Key, Step

_HARDENED = 1 << 31
_MAX_KEY_DEPTH = 255
"""Largest depth of a derived key (BIP-32 § Serialization format: the depth is one byte)."""
_MAX_MUSIG_KEYS = 999
"""Largest number of keys in musig() (our choice: the number of keys that multi_a() may have)."""
_MUSIG_CHAIN_CODE = bytes.fromhex("868087ca02a6f974c4598924c36b57762d32cb45717167e300622c7167e38965")
"""Chain code of the extended key that is made from an aggregate key (BIP-328)."""
_MANY = 150
"""Smallest number of keys that the kernel derives (our choice): building its table takes as long as deriving 100."""
_HEX = re.compile(r"[0-9a-fA-F]+")
_STEP = re.compile(r"(\d{1,10})([hH']?)")


class KeyPlace(Enum):
    """The place of a key expression, which determines the kinds of keys that are allowed."""

    LEGACY = "at the top level or in sh()"
    """Compressed and uncompressed keys."""
    SEGWIT = "in segwit"
    """Compressed keys."""
    TAPROOT = "in tr() and rawtr()"
    """Compressed keys, x-only keys and musig()."""
    MUSIG = "in musig()"
    """Compressed keys, which are aggregated."""
    SILENT = "in sp()"
    """Compressed keys and musig()."""


@dataclass(slots=True)
class Reading:
    """The state of the parser while it reads one descriptor."""

    network: Network
    """Network of the keys."""
    refuse: Callable[[DescriptorError], None]
    """Function to call with an error if a script can be derived but should not be used. It may raise the error."""
    paths: int = 1
    """Number of paths in each multipath <…> read so far; 1 if there was none."""
    is_ranged: bool = False
    """True if a key with a wildcard has been read."""
    has_extended: bool = False
    """True if an extended key has been read."""
    keys: int = 0
    """Number of keys read so far."""


@cache
def wally() -> Any:
    """Import and return the wallycore module. Raises ImportError if the `descriptors` extra is not installed."""
    with warnings.catch_warnings():
        # SWIG's types warn on import; if warnings are errors, the interpreter crashes at its end
        warnings.simplefilter("ignore", DeprecationWarning)
        import wallycore
    return wallycore


def read_key(expression: Expression, purpose: KeyPlace, reading: Reading) -> Key:
    """Return the key that an expression describes.

    Raises DescriptorError if the expression is not a valid key, or is not allowed in this place, and WrongNetworkError
    if an extended key belongs to another network.
    """
    if expression.arguments is not None:
        if expression.text != "musig":
            raise fault(expression.at, f"expected a key, found {expression.shown}")
        made = _musig(expression, purpose, reading)
    else:
        at, text, origin = without_origin(expression)
        made = _plain(at, text, purpose, reading)
        if origin is not None:
            made = made._replace(fingerprint=origin[0], steps=(*origin[1], *made.steps))
    if made.paths > 1:
        if reading.paths not in (1, made.paths):
            raise fault(
                made.at,
                f"the multipaths <…> of a descriptor must have the same number of parts, not {reading.paths} and "
                f"{made.paths}",
            )
        reading.paths = made.paths
    reading.is_ranged |= made.is_ranged
    reading.keys += 1
    return made


# Origins


Origin = tuple[bytes, tuple[int, ...]]
"""Fingerprint of the master key, and the path from it."""


def without_origin(expression: Expression) -> tuple[int, str, Origin | None]:
    """Return the offset and the text of a key after its origin […], and the origin if there is one."""
    at, text, origin = expression.at, expression.text, None
    if text.startswith("["):
        content, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise fault(at, "the key origin is not closed: expected [FINGERPRINT/PATH] and the key after it")
        origin = _origin(content, at + 1)
        at, text = at + len(content) + 2, rest
        if not text:
            raise fault(at, "there is no key after the key origin […]")
        if text.startswith("["):
            raise fault(at, "a key must have at most one key origin […], not two")
    if "]" in text:
        raise fault(at, "']' has no '[' before it: a key origin is [FINGERPRINT/PATH]")
    return at, text, origin


def _origin(content: str, at: int) -> Origin:
    fingerprint, *steps = content.split("/")
    if not re.fullmatch(r"[0-9a-fA-F]{8}", fingerprint):
        raise fault(at, f"{_origin_fault(fingerprint)}: expected the master key's 8 hex digits, [FINGERPRINT/PATH]")
    at += len(fingerprint) + 1
    numbers: list[int] = []
    for step in steps:
        if step in ("m", "M"):
            raise fault(at, "a key origin must not contain m/, because the fingerprint replaces it: remove m/")
        if step.startswith(("*", "<")):
            raise fault(at, "a key origin must not contain a wildcard or multipath: write it after the key")
        numbers.append(number_of_step(step, at))
        at += len(step) + 1
    return bytes.fromhex(fingerprint), tuple(numbers)


def _origin_fault(fingerprint: str) -> str:
    """Return what is wrong with the fingerprint of a key origin."""
    if fingerprint in ("", "m", "M"):
        return "the key origin has no fingerprint"
    if fingerprint[:2] in ("0x", "0X"):
        return "the fingerprint of the key origin starts with 0x"
    if _HEX.fullmatch(fingerprint):
        return f"the fingerprint of the key origin has {len(fingerprint)} hex digits"
    return "the fingerprint of the key origin is not hex"


def number_of_step(step: str, at: int) -> int:
    """Return the number of a step in a path, which is 2^31 or more for a hardened step."""
    found = _STEP.fullmatch(step)
    if found is None:
        if not step:
            raise fault(at, "a step of a path is empty: there is one '/' too many")
        raise fault(at, "each step of a path must be a number, followed by h if it is hardened")
    number = int(found[1])
    if number >= _HARDENED:
        raise fault(at, f"step {number} of a path is above 2147483647, the largest number that BIP-32 allows")
    return number + _HARDENED if found[2] else number


# Keys


def _plain(at: int, text: str, purpose: KeyPlace, reading: Reading) -> Key:
    """Return the key that text describes: a public key in hex, or an extended public key with a path."""
    name, slash, path = text.partition("/")
    if _HEX.fullmatch(name):
        if slash:
            raise fault(at + len(name), "a public key in hex has no child keys: remove the path after it")
        return _hex_key(at, bytes.fromhex(name) if len(name) % 2 == 0 else b"", len(name), purpose, reading)
    if name[:4] not in keys.PREFIXES:
        raise fault(at, _not_a_key(name))
    raw = keys.check_key(name, reading.network, f"character {at + 1}: ")
    if name[:4] not in ("xpub", "tpub"):
        raise fault(
            at, f"a descriptor needs an xpub or tpub, not {name[:4]}…: write the key as {keys.as_plain(name, raw)}"
        )
    try:
        parent = wally().bip32_key_from_base58(name)
    except ValueError:
        raise fault(at, f"the extended key {name[:4]}… does not contain a valid public key: copy it again") from None
    reading.has_extended = True
    steps, is_ranged = _path(path, at + len(name) + 1, f"{name[:4]}…") if slash else ((), False)
    if (depth := raw[4] + len(steps) + is_ranged) > _MAX_KEY_DEPTH:
        raise fault(at, f"the path leads to depth {depth}, but the maximum is {_MAX_KEY_DEPTH} (BIP-32)")
    size = 32 if purpose is KeyPlace.TAPROOT else 33
    derive = _children(lambda path: parent, steps, size, is_ranged=is_ranged)
    return Key(at, size, _paths_of(steps), is_ranged, derive, hash160(raw[-33:])[:4], steps)


def _not_a_key(name: str) -> str:
    """Return an error message for text that is not a key. The text may be a secret, so the message omits it."""
    if name[:2] in ("0x", "0X"):
        return "a key must not start with 0x: remove 0x"
    if re.match(r"@\d", name):
        return "expected a key, found a placeholder @N of a wallet policy (BIP-388): write the key in its place"
    if name in ("m", "M"):
        return "expected a key, found m/…: write the account's extended public key in its place"
    return "expected a key: an xpub or tpub, or a public key of 66 hex digits"


def _hex_key(at: int, raw: bytes, digits: int, purpose: KeyPlace, reading: Reading) -> Key:
    """Parse a public key in hex. `digits` is the number of its hex digits."""
    in_taproot = purpose is KeyPlace.TAPROOT
    if digits == 64:
        if not in_taproot:
            raise fault(
                at,
                f"an x-only key of 64 hex digits is not allowed {purpose.value}: write the public key of 66 hex digits",
            )
        raw = b"\x02" + raw
    elif digits not in (66, 130):
        raise fault(at, f"a key must have 66 hex digits, or 64 in tr(), or 130 if it is uncompressed, not {digits}")
    first = raw[0]
    if first not in ((2, 3) if digits < 130 else (4, 6, 7)):
        expected = "02 or 03" if digits < 130 else "04"
        raise fault(at, f"a public key of {digits} hex digits must start with {expected}, not {first:02x}")
    if len(raw) == 65:
        if purpose is not KeyPlace.LEGACY:
            raise fault(at, f"an uncompressed key is not allowed {purpose.value}: nobody could spend the coins")
        if first != 4:
            reading.refuse(
                fault(at, f"this is a hybrid key (it starts with {first:02x}): write it in its compressed form")
            )
    if not _is_point(raw):
        raise fault(at, "the public key is not a point on the secp256k1 curve: copy it from the wallet again")
    used = raw[1:] if in_taproot else raw
    return Key(at, len(used), 1, False, lambda path: lambda indexes: [used] * len(indexes), hash160(raw)[:4])


def _is_point(raw: bytes) -> bool:
    try:
        wally().ec_public_key_verify(raw)
    except ValueError:
        return False
    return True


# Paths


def _path(text: str, at: int, owner: str) -> tuple[tuple[Step, ...], bool]:
    """Return the steps of a path, and whether a wildcard follows them. `owner` names the key before the path."""
    steps: list[Step] = []
    parts = text.split("/")
    for number, part in enumerate(parts):
        if part.startswith("*"):
            _check_wildcard(part, at, owner, is_last=number == len(parts) - 1)
            return tuple(steps), True
        if part.startswith("<"):
            if any(isinstance(step, tuple) for step in steps):
                raise fault(at, f"there are two multipaths <…> after one {owner}, but at most one is allowed")
            steps.append(_multipath(part, at, owner))
        else:
            if part in ("m", "M"):
                raise fault(at, f"a path after {owner} starts at the key before it: remove m/")
            steps.append(_unhardened(part, at, owner))
        at += len(part) + 1
    return tuple(steps), False


def _check_wildcard(part: str, at: int, owner: str, *, is_last: bool) -> None:
    if part == "**":
        raise fault(at, "/** is the short form of wallet policies (BIP-388): in a descriptor write /<0;1>/*")
    if part in ("*h", "*H", "*'"):
        raise fault(at, _hardened(owner))
    if part != "*":
        raise fault(at, "unexpected text after the wildcard '*' of a path: expected a comma or a bracket")
    if not is_last:
        raise fault(at, "the wildcard '*' must be the last step of a path: remove the steps after it")


def _multipath(part: str, at: int, owner: str) -> tuple[int, ...]:
    """Return the numbers of a multipath such as <0;1> (BIP-389)."""
    if not part.endswith(">"):
        raise fault(at, "the multipath is not closed: expected numbers such as <0;1>")
    texts = part[1:-1].split(";")
    if len(texts) < 2 or "" in texts:
        raise fault(at, "expected a multipath of two or more numbers, such as <0;1>")
    steps = tuple(_unhardened(text, at, owner) for text in texts)
    if len(set(steps)) < len(steps):
        raise fault(at, "a multipath <…> contains a number twice")
    return steps


def _unhardened(part: str, at: int, owner: str) -> int:
    """Return the number of a step. It must not be hardened, because a public key cannot derive such a step."""
    number = number_of_step(part, at)
    if number >= _HARDENED:
        raise fault(at, _hardened(owner))
    return number


def _hardened(owner: str) -> str:
    return f"only the private key can derive a hardened step after {owner}: give the public key after that step"


def _paths_of(steps: tuple[Step, ...]) -> int:
    return next((len(step) for step in steps if isinstance(step, tuple)), 1)


def _children(parent_of: Callable[[int], Any], steps: tuple[Step, ...], size: int, *, is_ranged: bool) -> Bind:
    """Return the function that derives the children at a path below an extended key of libwally.

    The steps before the wildcard are derived only once, because they are the same for every index.
    """
    library = wally()
    flags: int = library.BIP32_FLAG_KEY_PUBLIC | library.BIP32_FLAG_SKIP_HASH
    public_key = library.bip32_key_get_pub_key

    def bind(path: int) -> Derive:
        parent = parent_of(path)
        numbers = [step if isinstance(step, int) else step[path] for step in steps]
        if numbers:
            parent = library.bip32_key_from_parent_path(parent, numbers, flags)
        if not is_ranged:
            constant = bytes(public_key(parent))[-size:]
            return lambda indexes: [constant] * len(indexes)
        return lambda indexes: [key[-size:] for key in children_at(parent, indexes, flags)]

    return bind


def children_at(parent: Any, indexes: Sequence[int], flags: int) -> list[bytes]:
    """Return the compressed public keys of children of an extended key of libwally (BIP-32 CKDpub).

    libwally derives one child at a time. For many children, the kernel takes a third of the time.
    """
    library = wally()
    public_key = library.bip32_key_get_pub_key
    if len(indexes) < _MANY or BACKEND == "pure":
        return [bytes(public_key(library.bip32_key_from_parent(parent, index, flags))) for index in indexes]
    key, chain_code = bytes(public_key(parent)), bytes(library.bip32_key_get_chain_code(parent))
    tweaks = b"".join(hmac.digest(chain_code, key + index.to_bytes(4, "big"), "sha512")[:32] for index in indexes)
    keys = child_keys(key, tweaks)
    found = [keys[at : at + len(key)] for at in range(0, len(keys), len(key))]
    if found[-1] != bytes(public_key(library.bip32_key_from_parent(parent, indexes[-1], flags))):
        raise ValueError("the kernel and libwally derive different keys")
    if bytes(len(key)) in found:
        raise ValueError("an extended key lacks one of these children")
    return found


# musig()


def _musig(expression: Expression, purpose: KeyPlace, reading: Reading) -> Key:
    """Parse musig(KEY,…) with an optional path after it (BIP-390)."""
    at = expression.at
    if purpose is KeyPlace.MUSIG:
        raise fault(at, "musig() cannot be nested in musig()")
    if purpose not in (KeyPlace.TAPROOT, KeyPlace.SILENT):
        raise fault(at, f"musig() is not allowed {purpose.value}, only in tr() and rawtr() (BIP-390), and in sp()")
    arguments = expression.arguments or ()
    if len(arguments) > _MAX_MUSIG_KEYS:
        raise fault(at, f"musig() takes at most {_MAX_MUSIG_KEYS} keys, not {len(arguments)}")
    aggregate = aggregation()
    members = [read_key(argument, KeyPlace.MUSIG, reading) for argument in arguments]
    steps, is_ranged = _musig_path(expression)
    if expression.suffix:
        _check_members(expression, members, steps)

    def joint(path: int) -> Derive:
        derived = [member.bind(path) for member in members]
        if any(member.is_ranged for member in members):
            return lambda indexes: [
                aggregate(sorted(each)) for each in zip(*(derive(indexes) for derive in derived), strict=True)
            ]
        constant = aggregate(sorted(derive([0])[0] for derive in derived))
        return lambda indexes: [constant] * len(indexes)

    paths = max((_paths_of(steps), *(member.paths for member in members)))
    size = 32 if purpose is KeyPlace.TAPROOT else 33
    if not expression.suffix:
        bind = joint if size == 33 else lambda path: _xonly(joint(path))
        return Key(at, size, paths, any(member.is_ranged for member in members), bind)

    def parent_of(path: int) -> Any:
        (public_key,) = joint(path)([0])
        raw = bytes.fromhex("0488b21e000000000000000000") + _MUSIG_CHAIN_CODE + public_key
        return wally().bip32_key_unserialize(raw)

    return Key(at, size, paths, is_ranged, _children(parent_of, steps, size, is_ranged=is_ranged))


def _musig_path(expression: Expression) -> tuple[tuple[Step, ...], bool]:
    if not expression.suffix:
        return (), False
    if not expression.suffix.startswith("/"):
        raise fault(expression.end, "unexpected text after musig(…): expected a path, a comma or a bracket")
    return _path(expression.suffix[1:], expression.end + 1, "musig(…)")


def _check_members(expression: Expression, members: list[Key], steps: tuple[Step, ...]) -> None:
    """Check the keys of a musig() that has a path: they must be extended keys without a wildcard (BIP-390)."""
    for argument, member in zip(expression.arguments or (), members, strict=True):
        if not keys.extended_keys(argument.text):
            raise fault(member.at, "a musig() with a path must contain only extended keys, not a public key in hex")
        if member.is_ranged:
            raise fault(member.at, "a wildcard is not allowed within a musig() with a path: write it after musig(…)")
        if member.paths > 1 and _paths_of(steps) > 1:
            raise fault(
                member.at, "a multipath is not allowed within a musig() that has one after it: keep only one of them"
            )


def _xonly(derive: Derive) -> Derive:
    return lambda indexes: [key[1:] for key in derive(indexes)]


@cache
def aggregation() -> Callable[[list[bytes]], bytes]:
    """Return the function that aggregates public keys (KeyAgg of BIP-327) into a compressed public key.

    Raises DescriptorError if btclib-secp256k1 is not installed.
    """
    try:
        from btclib_secp256k1.musig import KeyAggCache
    except ImportError:
        raise DescriptorError(f"musig() needs btclib-secp256k1, which aggregates keys; {remedy('musig')}") from None
    return lambda public_keys: bytes(KeyAggCache(public_keys).pubkey_get())
