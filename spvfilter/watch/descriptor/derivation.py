"""The script functions of descriptors (BIP-381 to 387 and rawtr): their arguments, and the scripts that they derive.

This module assembles all scripts itself; libwally derives the keys, and tweaks those of taproot outputs.

A taproot output commits to a script tree (BIP-341 § Constructing and spending Taproot outputs). A leaf is hashed
with its version, 0xc0, and its length. A branch is the hash of the two hashes below it, the smaller one first. The root
hash tweaks the internal key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple  # wallycore ships no types

from spvfilter.errors import DescriptorError
from spvfilter.hashes import hash160
from spvfilter.primitives import compact_size
from spvfilter.watch.descriptor.expression import TREE, Expression, fault
from spvfilter.watch.descriptor.keyexpression import KeyPlace, Reading, read_key, wally
from spvfilter.watch.descriptor.miniscript import (
    MAX_MULTI_A_KEYS,
    MAX_MULTI_KEYS,
    is_miniscript,
    multi_a_script,
    multi_script,
    read_miniscript,
    read_multi,
)
from spvfilter.watch.descriptor.spending import KeyOrigin, Spending, TapLeaf
from spvfilter.watch.descriptor.template import (
    Bind,
    Derive,
    Key,
    Script,
    assemble,
    keys_of,
    pushed_key,
    pushed_key_hash,
    size_of,
)

_NEVER_INNER = ("addr", "combo", "raw", "rawtr", "sh", "tr", "wpkh", "wsh")
"""Functions that are allowed neither in wsh() nor in a leaf of tr()."""
_MAX_DEPTH = 128
"""Largest depth of a leaf in a taproot tree (BIP-341)."""
_MAX_BARE_KEYS = 3
"""Largest number of keys in a bare multisig script. Core does not relay larger ones, and rejects their descriptors."""
_LEAF_VERSION = 0xC0
"""Version of a leaf of a taproot tree (BIP-342)."""
_MAX_P2SH = 520
"""Largest size of a script in sh(), in bytes (Core script.h MAX_SCRIPT_ELEMENT_SIZE)."""
_IN_SH = ("pk", "pkh", "wpkh", "wsh", "multi", "sortedmulti")


class Leaf(NamedTuple):
    """A leaf of a taproot tree."""

    script: Script
    """Template of its script."""


class Branch(NamedTuple):
    """A branch of a taproot tree."""

    left: Tree
    """The subtree that comes first in the descriptor."""
    right: Tree
    """The second subtree."""


Tree = Leaf | Branch
"""A taproot tree."""


class Output(NamedTuple):
    """An output of a descriptor, with the scripts and keys needed to spend it."""

    bind: Bind
    """Function that derives the scriptPubKey, by path and index."""
    keys: tuple[Key, ...]
    """Keys of its script, except those in a taproot tree."""
    redeem: Bind | None = None
    """Function that derives the redeem script of a P2SH output."""
    witness: Bind | None = None
    """Function that derives the witness script of a P2WSH output, even one nested in P2SH."""
    internal: Key | None = None
    """Internal key of tr(), which is also in `keys`."""
    tree: Tree | None = None
    """Script tree of tr()."""


class Outputs(NamedTuple):
    """The outputs of a descriptor."""

    scripts: Callable[[int], Callable[[Sequence[int]], list[tuple[bytes, ...]]]]
    """Function that takes the number of a path, and returns a function that derives the scriptPubKeys of each index."""
    each: tuple[Output, ...]
    """The outputs of an index, in the order of `scripts`."""


def read_outputs(expression: Expression, reading: Reading) -> Outputs:
    """Return the outputs of a descriptor that is neither addr() nor raw().

    Raises DescriptorError if the descriptor is invalid, and WrongNetworkError if a key belongs to another network.
    """
    name = expression.text
    if expression.suffix:
        raise fault(expression.end, "unexpected text after the last bracket: expected #CHECKSUM or nothing")
    if name == "combo":
        return _combo(expression, reading)
    output = _output(expression, reading)
    return Outputs(lambda path: _single(output.bind(path)), (output,))


def _single(derive: Derive) -> Callable[[Sequence[int]], list[tuple[bytes, ...]]]:
    return lambda indexes: [(script,) for script in derive(indexes)]


def _output(expression: Expression, reading: Reading) -> Output:
    """Return the output of a descriptor with one script for each index."""
    match expression.text:
        case "sh":
            return _sh(expression, reading)
        case "wpkh" | "wsh":
            return _witness(expression, reading)
        case "tr":
            return _taproot(expression, reading)
        case "rawtr":
            (key,) = _arguments(expression, 1, "rawtr(KEY)")
            return _bare((b"\x51", pushed_key(read_key(key, KeyPlace.TAPROOT, reading))))
        case _:
            return _bare(_plain(expression, KeyPlace.LEGACY, reading, _MAX_BARE_KEYS))


def _arguments(expression: Expression, count: int, expected: str) -> tuple[Expression, ...]:
    found = expression.arguments or ()
    if len(found) != count:
        raise fault(expression.at, f"{expression.shown} has {len(found)} arguments: expected {expected}")
    return found


def _bound(script: Script) -> Bind:
    return lambda path: assemble(script, path)


def _bare(script: Script) -> Output:
    """Return the output with this scriptPubKey."""
    return Output(_bound(script), tuple(keys_of(script)))


def _after(bind: Bind, change: Callable[[bytes], bytes]) -> Bind:
    """Return the function that derives scripts with `bind` and applies `change` to them."""

    def bound(path: int) -> Derive:
        derive = bind(path)
        return lambda indexes: list(map(change, derive(indexes)))

    return bound


def _plain(expression: Expression, purpose: KeyPlace, reading: Reading, most: int) -> Script:
    """Return the template of pk(), pkh(), multi() or sortedmulti(). `most` is the largest number of keys."""
    name = expression.text
    if name in ("multi", "sortedmulti"):
        needed, keys = read_multi(name, expression.arguments or (), expression.at, purpose, reading, most)
        return multi_script(needed, keys, is_sorted=name == "sortedmulti")
    (argument,) = _arguments(expression, 1, f"{name}(KEY)")
    key = read_key(argument, purpose, reading)
    return _pk_script(key) if name == "pk" else _pkh_script(key)


def _pk_script(key: Key) -> Script:
    return pushed_key(key), b"\xac"


def _pkh_script(key: Key) -> Script:
    return b"\x76\xa9", pushed_key_hash(key), b"\x88\xac"


def _script_argument(expression: Expression, where: str) -> Expression:
    """Return the only argument of sh() or wsh(), which must be a function."""
    (inner,) = _arguments(expression, 1, f"{where}(SCRIPT)")
    if inner.arguments is None and (where == "sh" or not is_miniscript(inner.text)):
        raise fault(inner.at, f"{where}() needs a script such as pkh(KEY), not a key")
    if inner.suffix:
        raise fault(inner.end, "unexpected text after a closing bracket: expected a bracket")
    return inner


# P2SH and segwit


def _sh(expression: Expression, reading: Reading) -> Output:
    inner = _script_argument(expression, "sh")
    name = inner.text
    if name in ("wpkh", "wsh"):
        return _in_sh(_witness(inner, reading))
    if name in _IN_SH:
        script = _plain(inner, KeyPlace.LEGACY, reading, MAX_MULTI_KEYS)
    elif is_miniscript(name):
        reading.refuse(
            fault(inner.at, f"{inner.shown} is not allowed in sh(): BIP-379 allows miniscript only in wsh() and tr()")
        )
        script = read_miniscript(inner, reading, is_tapscript=False)
    else:
        raise fault(
            inner.at,
            f"{inner.shown} is not allowed in sh(): expected one of {', '.join(f'{each}()' for each in _IN_SH)}",
        )
    if (size := size_of(script)) > _MAX_P2SH:
        raise fault(
            inner.at, f"the script in sh() must be at most {_MAX_P2SH} bytes, not {size}: use at most 15 keys, or wsh()"
        )
    return _in_sh(_bare(script))


def _in_sh(inner: Output) -> Output:
    """Return the P2SH output that wraps another output."""
    return inner._replace(bind=_after(inner.bind, _p2sh), redeem=inner.bind)


def _p2sh(script: bytes) -> bytes:
    return b"\xa9\x14" + hash160(script) + b"\x87"


def _witness(expression: Expression, reading: Reading) -> Output:
    """Return the output of wpkh() or wsh()."""
    if expression.suffix:
        raise fault(expression.end, "unexpected text after a closing bracket: expected a bracket")
    if expression.text == "wpkh":
        (argument,) = _arguments(expression, 1, "wpkh(KEY)")
        return _bare((b"\x00", pushed_key_hash(read_key(argument, KeyPlace.SEGWIT, reading))))
    inner = _script_argument(expression, "wsh")
    name = inner.text
    if name in ("pk", "pkh", "multi", "sortedmulti"):
        script = _plain(inner, KeyPlace.SEGWIT, reading, MAX_MULTI_KEYS)
    elif name in _NEVER_INNER:
        raise fault(
            inner.at, f"{name}() is not allowed in wsh(): expected pk(), pkh(), multi(), sortedmulti() or miniscript"
        )
    else:
        script = read_miniscript(inner, reading, is_tapscript=False)
    bare = _bare(script)
    bind = _after(bare.bind, lambda program: b"\x00\x20" + sha256(program).digest())
    return bare._replace(bind=bind, witness=bare.bind)


def _combo(expression: Expression, reading: Reading) -> Outputs:
    """Return the outputs of combo() (BIP-384).

    Their scripts are P2PK and P2PKH and, for a compressed key, also P2WPKH and P2SH-P2WPKH.
    """
    (argument,) = _arguments(expression, 1, "combo(KEY)")
    key = read_key(argument, KeyPlace.LEGACY, reading)

    def scripts(public_key: bytes) -> tuple[bytes, ...]:
        key_hash = hash160(public_key)
        witness = b"\x00\x14" + key_hash
        legacy = (
            bytes((key.size,)) + public_key + b"\xac",
            b"\x76\xa9\x14" + key_hash + b"\x88\xac",
        )
        return legacy if key.size != 33 else (*legacy, witness, _p2sh(witness))

    def bind(path: int) -> Callable[[Sequence[int]], list[tuple[bytes, ...]]]:
        derive = key.bind(path)
        return lambda indexes: list(map(scripts, derive(indexes)))

    segwit = _bare((b"\x00", pushed_key_hash(key)))
    outputs = _bare(_pk_script(key)), _bare(_pkh_script(key)), segwit, _in_sh(segwit)
    return Outputs(bind, outputs[: 2 if key.size != 33 else 4])


# Taproot


def _taproot(expression: Expression, reading: Reading) -> Output:
    """Return the output of tr()."""
    arguments = expression.arguments or ()
    if not 1 <= len(arguments) <= 2:
        raise fault(expression.at, f"tr() takes a key and one tree, tr(KEY,{{A,B}}), not {len(arguments)} arguments")
    key = read_key(arguments[0], KeyPlace.TAPROOT, reading)
    tree = _tree(arguments[1], 0, reading) if len(arguments) == 2 else None
    return Output(lambda path: _output_script(_tweaked(key, tree, path)), (key,), internal=key, tree=tree)


def _tweaked(key: Key, tree: Tree | None, path: int) -> Derive:
    """Return the function that derives the output key of tr() with a leading byte, 2 or 3, for its parity."""
    internal, root = key.bind(path), None if tree is None else _root(tree, path)
    tweak: Any = wally().ec_public_key_bip341_tweak

    def derive(indexes: Sequence[int]) -> list[bytes]:
        roots = [None] * len(indexes) if root is None else root(indexes)
        return [bytes(tweak(b"\x02" + key, each, 0)) for key, each in zip(internal(indexes), roots, strict=True)]

    return derive


def _output_script(output_key: Derive) -> Derive:
    return lambda indexes: [b"\x51\x20" + key[1:] for key in output_key(indexes)]


def _tree(expression: Expression, depth: int, reading: Reading) -> Tree:
    """Return a taproot tree. `depth` is the depth of its top in the whole tree."""
    if depth > _MAX_DEPTH:
        raise fault(expression.at, f"the script tree is deeper than {_MAX_DEPTH} levels")
    if expression.text != TREE:
        return Leaf(_leaf(expression, reading))
    if len(expression.arguments or ()) != 2 or expression.suffix:
        raise fault(expression.at, "expected a script tree: SCRIPT or {TREE,TREE}")
    left, right = (_tree(each, depth + 1, reading) for each in expression.arguments or ())
    return Branch(left, right)


def _root(tree: Tree, path: int) -> Derive:
    """Return the function that derives the hash of a taproot tree."""
    if isinstance(tree, Leaf):
        derive = assemble(tree.script, path)
        return lambda indexes: list(map(_leaf_hash, derive(indexes)))
    one, other = _root(tree.left, path), _root(tree.right, path)
    return lambda indexes: list(map(_branch_hash, one(indexes), other(indexes)))


def _branch_hash(one: bytes, other: bytes) -> bytes:
    """Return the hash of a branch of a taproot tree."""
    return _tagged("TapBranch", b"".join(sorted((one, other))))


def _leaf_hash(script: bytes) -> bytes:
    """Return the hash of a leaf of a taproot tree."""
    return _tagged("TapLeaf", bytes((_LEAF_VERSION,)) + compact_size(len(script)) + script)


def _leaf(expression: Expression, reading: Reading) -> Script:
    """Return the template of a leaf of a taproot tree."""
    name = expression.text
    if (expression.arguments is None and not is_miniscript(name)) or name in _NEVER_INNER:
        raise fault(expression.at, f"{expression.shown} cannot be a leaf of tr(): expected a script such as pk(KEY)")
    if name in ("multi_a", "sortedmulti_a"):
        needed, keys = read_multi(
            name, expression.arguments or (), expression.at, KeyPlace.TAPROOT, reading, MAX_MULTI_A_KEYS
        )
        if expression.suffix:
            raise fault(expression.end, "unexpected text after a closing bracket: expected a comma or a bracket")
        return multi_a_script(needed, keys, is_sorted=name == "sortedmulti_a")
    if name == "sortedmulti":
        raise fault(expression.at, "sortedmulti() is not allowed in a leaf of tr(): write sortedmulti_a()")
    return read_miniscript(expression, reading, is_tapscript=True)


@cache
def _tag(name: str) -> bytes:
    return sha256(name.encode("ascii")).digest() * 2


def _tagged(name: str, data: bytes) -> bytes:
    """Return the tagged hash of BIP-340 § Design."""
    return sha256(_tag(name) + data).digest()


# Spending


def spending_of(output: Output, path: int, index: int) -> Spending:
    """Return the scripts and keys needed to spend an output. `path` is the number of the path in the multipath.

    Raises DescriptorError if the output uses musig().
    """
    script, redeem, witness = (
        None if bind is None else bind(path)([index])[0] for bind in (output.bind, output.redeem, output.witness)
    )
    assert script is not None
    if output.internal is None:
        return Spending(script, tuple(_origin(key, path, index) for key in output.keys), redeem, witness)
    origins = [_origin(output.internal, path, index)]
    internal = origins[0].public_key
    root, leaves = (None, []) if output.tree is None else _walked(output.tree, path, index)
    parity = _tweaked(output.internal, output.tree, path)([index])[0][0] & 1
    head = bytes((_LEAF_VERSION | parity,)) + internal
    hashes: dict[bytes, list[bytes]] = {}
    for leaf, hashed, _, _ in leaves:
        for key in keys_of(leaf.script):
            origin = _origin(key, path, index)
            if origin.public_key not in hashes:
                origins.append(origin)
            hashes.setdefault(origin.public_key, []).append(hashed)
    keys = {each.public_key: each for each in reversed(origins)}  # the internal key may be in a leaf as well
    found = (
        KeyOrigin(key, each.fingerprint, each.path, tuple(dict.fromkeys(hashes.get(key, ()))))
        for key, each in reversed(keys.items())
    )
    proven = tuple(TapLeaf(each, head + proof) for _, _, each, proof in leaves)
    return Spending(script, tuple(found), internal_key=internal, merkle_root=root, leaves=proven)


def _origin(key: Key, path: int, index: int) -> KeyOrigin:
    if not key.fingerprint:
        raise DescriptorError("a PSBT cannot describe the keys of musig() yet: sign with a program that knows them")
    return KeyOrigin(key.bind(path)([index])[0], key.fingerprint, key.path(path, index))


_Walked = tuple[Leaf, bytes, bytes, bytes]
"""A leaf, its hash, its script, and the hashes on its path to the root."""


def _walked(tree: Tree, path: int, index: int) -> tuple[bytes, list[_Walked]]:
    """Return the hash of a tree, and its leaves."""
    if isinstance(tree, Leaf):
        (script,) = assemble(tree.script, path)([index])
        hashed = _leaf_hash(script)
        return hashed, [(tree, hashed, script, b"")]
    (one, left), (other, right) = _walked(tree.left, path, index), _walked(tree.right, path, index)
    return _branch_hash(one, other), [*_under(left, other), *_under(right, one)]


def _under(leaves: list[_Walked], sibling: bytes) -> Iterator[_Walked]:
    return ((leaf, hashed, script, proof + sibling) for leaf, hashed, script, proof in leaves)
