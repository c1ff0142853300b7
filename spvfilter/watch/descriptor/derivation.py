"""Derivation of a descriptor's scripts by libwally (extra `descriptors`), with taproot trees and multi_a().

libwally derives keys and leaf scripts, and tweaks keys. This module composes taproot trees and multi_a() from these
keys and scripts. It derives the steps of a path before the '*' only once, because they are the same for every index.
This also avoids an error of libwally 1.5.6, which refuses some keys with long paths.

A taproot output commits to a tree of scripts (BIP-341 § Constructing and spending Taproot outputs). A leaf is hashed
with its version, 0xc0, and its length. The hashes of two branches are hashed together, the lesser hash first. The root
hash tweaks the internal key.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from typing import Any  # wallycore ships no types

from spvfilter.errors import DescriptorError
from spvfilter.hashes import hash160
from spvfilter.primitives import compact_size

Derive = Callable[[int], tuple[bytes, ...]]
"""A function that returns the scriptPubKeys of an index."""
_Script = Callable[[int], bytes]
_MAX_DEPTH = 128
"""Largest depth of a leaf in a taproot tree (BIP-341)."""
_MAX_LEAF_KEYS = 999
"""Largest number of keys in multi_a() in a leaf of a taproot tree (Core script.h MAX_PUBKEYS_PER_MULTI_A)."""
_HEX_KEY = re.compile(r"(?<![0-9A-Za-z])0[23]([0-9a-fA-F]{64})(?![0-9A-Za-z])")
_KEY_WITH_PATH = re.compile(r"(?<![0-9A-Za-z])([xt]pub[0-9A-Za-z]+)((?:/\d{1,10})+)(?![0-9'hH])")
_LACKING = re.compile(r"(?<![a-z_0-9])(pkh|multi_a|sortedmulti_a)\(")
_OP_CHECKSIG, _OP_CHECKSIGVERIFY, _OP_NUMEQUAL, _OP_NUMEQUALVERIFY, _OP_CHECKSIGADD = (
    b"\xac",
    b"\xad",
    b"\x9c",
    b"\x9d",
    b"\xba",
)
_VERIFY = {_OP_CHECKSIG: _OP_CHECKSIGVERIFY, _OP_NUMEQUAL: _OP_NUMEQUALVERIFY}
_CUT = "the brackets of the descriptor do not match: it is incomplete"
_ELSEWHERE = "if your wallet accepts it, derive the scripts there and pass them to add_keychain"


@cache
def wally() -> Any:
    """Import and return the module wallycore. Raises ImportError if the extra `descriptors` is not installed."""
    with warnings.catch_warnings():
        # SWIG's types warn on import; if warnings are errors, the interpreter crashes at its end
        warnings.simplefilter("ignore", DeprecationWarning)
        import wallycore
    return wallycore


def deriving(body: str) -> Derive:
    """Return the function that derives the scripts of a descriptor, which has no checksum and no multipath.

    Raises DescriptorError if the descriptor is invalid or unknown.
    """
    try:
        wally()
    except ImportError:
        raise DescriptorError(
            "an output descriptor needs another package: pip install 'spvfilter[descriptors]', or give its addresses"
        ) from None
    name, _, inner = body[:-1].partition("(")
    if name == "combo":
        return _combo(inner)
    if name == "tr" and len(parts := list(_arguments(inner))) > 1:
        if len(parts) > 2:
            raise DescriptorError(f"tr() has {len(parts)} arguments, expected a key and one tree: tr(KEY,{{A,B}})")
        return _taproot(parts[0], parts[1])
    return _OneScript(_by_wally(body))


class _OneScript:
    """A function that derives one script for each index, and needs less memory than a closure."""

    __slots__ = ("_script",)

    def __init__(self, script: _Script) -> None:
        self._script = script

    def __call__(self, index: int) -> tuple[bytes, ...]:
        return (self._script(index),)


class _WallyScript:
    """A function that derives a script with libwally from a parsed descriptor."""

    __slots__ = ("_is_ranged", "_parsed")

    def __init__(self, parsed: object, *, is_ranged: bool) -> None:
        self._parsed = parsed
        self._is_ranged = is_ranged

    def __call__(self, index: int) -> bytes:
        try:
            return bytes(wally().descriptor_to_script(self._parsed, 0, 0, 0, 0, index if self._is_ranged else 0, 0))
        except (ValueError, RuntimeError):
            raise DescriptorError(f"libwally cannot derive index {index} of the descriptor: {_ELSEWHERE}") from None


def _by_wally(text: str, flags: int = 0) -> _Script:
    """Return the function that derives the script of an index with libwally, for the descriptor `text`.

    The function ignores the index if the descriptor has no '*'.

    Raises DescriptorError if libwally refuses the descriptor.
    """
    library = wally()
    try:
        parsed = library.descriptor_parse(_KEY_WITH_PATH.sub(_stepped, text), None, library.WALLY_NETWORK_NONE, flags)
        is_private = library.descriptor_get_features(parsed) & library.WALLY_MS_IS_PRIVATE
    except (ValueError, RuntimeError):  # libwally gives no reason
        raise DescriptorError(
            "libwally refuses the descriptor: a function, a key, a number or the nesting is wrong; copy it again;"
            f" {_ELSEWHERE}"
        ) from None
    if is_private:
        raise DescriptorError(
            "the descriptor has a private key, which was not kept: give the wallet's descriptor with public keys"
        )
    return _WallyScript(parsed, is_ranged="*" in text)


def _stepped(found: re.Match[str]) -> str:
    """Return the extended public key at the end of a path. It replaces the key and the path that `found` matched.

    Raises ValueError if the key is invalid.
    """
    library = wally()
    steps = [int(step) for step in found[2].split("/")[1:]]
    parent = library.bip32_key_from_base58(found[1])
    child = library.bip32_key_from_parent_path(parent, steps, library.BIP32_FLAG_KEY_PUBLIC)
    return str(library.bip32_key_to_base58(child, library.BIP32_FLAG_KEY_PUBLIC))


def _combo(key: str) -> Derive:
    """Return the function that derives the scripts of combo() (BIP-384).

    They are P2PK and P2PKH, and for a compressed key also P2WPKH and P2SH-P2WPKH.
    """
    p2pk = _by_wally(f"pk({key})")

    def scripts(index: int) -> tuple[bytes, ...]:
        bare = p2pk(index)
        pubkey = bare[1:-1]
        key_hash = hash160(pubkey)
        witness = b"\x00\x14" + key_hash
        legacy = (bare, b"\x76\xa9\x14" + key_hash + b"\x88\xac")
        return legacy if len(pubkey) != 33 else (*legacy, witness, b"\xa9\x14" + hash160(witness) + b"\x87")

    return scripts


# Taproot


def _taproot(key: str, tree: str) -> Derive:
    """Return the function that derives the taproot output script of an internal key and a tree of scripts."""
    internal, root = _xonly(key), _node(tree, 0)
    tweak: Any = wally().ec_public_key_bip341_tweak

    def scripts(index: int) -> tuple[bytes, ...]:
        output: bytes = bytes(tweak(b"\x02" + internal(index), root(index), 0))
        return (b"\x51\x20" + output[1:],)

    return scripts


def _xonly(key: str) -> _Script:
    """Return the function that derives the x-only public key (32 bytes) of a key expression."""
    script = _by_wally(f"rawtr({key})")
    return lambda index: script(index)[2:]


def _node(text: str, depth: int) -> _Script:
    """Return the function that derives the hash of a taproot tree or of a leaf. `depth` is its depth in the tree."""
    if depth > _MAX_DEPTH:
        raise DescriptorError(f"the tree of scripts has more than {_MAX_DEPTH} levels")
    if not text.startswith("{"):
        script = _leaf(text)
        return lambda index: _tagged("TapLeaf", b"\xc0" + compact_size(len(leaf := script(index))) + leaf)
    parts = list(_arguments(text[1:-1]))
    if not text.endswith("}") or len(parts) != 2:
        raise DescriptorError("expected a tree of scripts: SCRIPT or {TREE,TREE}")
    left, right = (_node(part, depth + 1) for part in parts)
    return lambda index: _tagged("TapBranch", b"".join(sorted((left(index), right(index)))))


def _leaf(text: str) -> _Script:
    """Return the function that derives the script of a leaf of a taproot tree. `text` is the leaf's miniscript.

    libwally lacks multi_a() and pkh() in leaves. Like pk(), both end in an operation (NUMEQUAL or CHECKSIG) that may
    become its VERIFY form. libwally therefore compiles pk(PLACEHOLDER) in their place. The function then replaces the
    compiled pk(PLACEHOLDER) by the script of multi_a() or pkh().
    """
    parts: list[tuple[bytes, _Script, _Script]] = []  # placeholder, its script, and the script in VERIFY form
    at = 0
    while found := _LACKING.search(text, at):
        inner = text[found.end() : _closing(text, found.end())]
        make = (
            _pkh(inner)
            if found[1] == "pkh"
            else _multi_a(list(_arguments(inner)), is_sorted=found[1] == "sortedmulti_a")
        )
        placeholder = _placeholder(len(parts))
        parts.append((placeholder, make, _verifying(make)))
        text = f"{text[: found.start()]}pk({placeholder.hex()}){text[found.end() + len(inner) + 1 :]}"
        at = found.start()
    flags: int = wally().WALLY_MINISCRIPT_TAPSCRIPT | wally().WALLY_MINISCRIPT_ONLY
    script = _by_wally(_HEX_KEY.sub(r"\1", text), flags)

    def composed(index: int) -> bytes:
        made = script(index)
        for placeholder, plain, verifying in parts:
            made = made.replace(b"\x20" + placeholder + _OP_CHECKSIG, plain(index))
            made = made.replace(b"\x20" + placeholder + _OP_CHECKSIGVERIFY, verifying(index))
        return made

    return composed if parts else script


def _verifying(script: _Script) -> _Script:
    """Return the function that derives a script with its last operation in its VERIFY form."""
    return lambda index: (made := script(index))[:-1] + _VERIFY[made[-1:]]


def _placeholder(number: int) -> bytes:
    """Return the x coordinate (32 bytes) of a point whose private key is unknown. Each number has another point."""
    for salt in range(256):
        made = sha256(b"spvfilter placeholder" + number.to_bytes(4) + bytes((salt,))).digest()
        try:
            wally().ec_xonly_public_key_verify(made)
        except ValueError:  # half of all numbers are no x coordinate of a point
            continue
        return made
    raise AssertionError(number)


def _closing(text: str, start: int) -> int:
    """Return the offset of the bracket that closes the bracket before `start`.

    Raises DescriptorError if no bracket closes it.
    """
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth:
            return at
    raise DescriptorError(_CUT)


def _pkh(key: str) -> _Script:
    """Return the function that derives DUP HASH160 HASH EQUALVERIFY CHECKSIG, where HASH is of the x-only key."""
    xonly = _xonly(key)
    return lambda index: b"\x76\xa9\x14" + hash160(xonly(index)) + b"\x88" + _OP_CHECKSIG


def _multi_a(parts: list[str], *, is_sorted: bool) -> _Script:
    """Return the function that derives the script of multi_a() or sortedmulti_a() (BIP-387).

    The script is KEY CHECKSIG, KEY CHECKSIGADD …, NUMBER OF SIGNATURES, NUMEQUAL.
    """
    needed = int(parts[0]) if re.fullmatch(r"[1-9]\d{0,2}", parts[0]) else 0
    keys = [_xonly(part) for part in parts[1:]]
    if not 1 <= needed <= len(keys) <= _MAX_LEAF_KEYS:
        raise DescriptorError(f"expected multi_a(NUMBER,KEY,…) with at least NUMBER and at most {_MAX_LEAF_KEYS} keys")
    number = bytes((0x50 + needed,)) if needed <= 16 else _push(needed)

    def script(index: int) -> bytes:
        chosen = [key(index) for key in keys]
        if is_sorted:
            chosen.sort()
        signed = b"".join(b"\x20" + key + (_OP_CHECKSIGADD if at else _OP_CHECKSIG) for at, key in enumerate(chosen))
        return signed + number + _OP_NUMEQUAL

    return script


def _push(number: int) -> bytes:
    """Return the bytes that push a number from 17 to 999 in a script: little endian, with a sign bit."""
    raw = number.to_bytes(number.bit_length() // 8 + 1, "little")
    return bytes((len(raw),)) + raw


def _arguments(text: str) -> Iterator[str]:
    """Yield the arguments of a descriptor function. `text` is split at the commas outside brackets.

    Raises DescriptorError if the brackets do not match.
    """
    depth = start = 0
    for at, char in enumerate(text):
        if char in "({":
            depth += 1
        elif char in ")}":
            depth -= 1
            if depth < 0:
                break
        elif char == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise DescriptorError(_CUT)
    yield text[start:]


@cache
def _tag(name: str) -> bytes:
    return sha256(name.encode("ascii")).digest() * 2


def _tagged(name: str, data: bytes) -> bytes:
    """Return the tagged hash of BIP-340 § Design."""
    return sha256(_tag(name) + data).digest()
