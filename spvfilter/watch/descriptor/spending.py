"""The scripts and keys that a spend of a descriptor's output needs, as a PSBT states them (BIP-174 and 371)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.errors import DescriptorError
from spvfilter.watch.descriptor.derivation import Leaf, Output, Tree, branch_hash, leaf_hash, tweaked
from spvfilter.watch.descriptor.template import Key, assemble, keys_of

_LEAF_VERSION = 0xC0
"""Version of a leaf of a taproot tree (BIP-342)."""


@public
@dataclass(frozen=True, slots=True)
class KeyOrigin:
    """A public key of a script, and how to derive it from its master key."""

    public_key: bytes
    """The public key: 33 or 65 bytes, or 32 bytes in taproot."""
    fingerprint: bytes
    """First 4 bytes of the HASH160 of the master key, or of the key itself if the descriptor states no origin."""
    path: tuple[int, ...]
    """Steps from the master key. The number of a hardened step is 2^31 or more."""
    leaf_hashes: tuple[bytes, ...] = ()
    """Hashes of the taproot leaves that contain the key, 32 bytes each. Empty for the internal key."""


@public
@dataclass(frozen=True, slots=True)
class TapLeaf:
    """A script of a taproot tree."""

    script: bytes
    """The script."""
    control_block: bytes
    """Proof that the output commits to the script (BIP-341): parity, internal key and hashes of the path."""

    @property
    def depth(self) -> int:
        """Depth of the leaf in the tree: 0 if it is the only one."""
        return len(self.control_block) // 32 - 1


@public
@dataclass(frozen=True, slots=True)
class Spending:
    """The scripts and keys that a spend of an output needs. It contains no private key."""

    script_pubkey: bytes
    """Script of the output."""
    keys: tuple[KeyOrigin, ...] = ()
    """Keys of all scripts. Empty for addr() and raw()."""
    redeem_script: bytes | None = None
    """Redeem script of a P2SH output."""
    witness_script: bytes | None = None
    """Witness script of a P2WSH output, also within P2SH."""
    internal_key: bytes | None = None
    """Internal key of a taproot output, 32 bytes."""
    merkle_root: bytes | None = None
    """Hash of the tree of scripts of a taproot output, 32 bytes."""
    leaves: tuple[TapLeaf, ...] = ()
    """Scripts of a taproot output, in the order of the tree."""


def spending_of(output: Output, path: int, index: int) -> Spending:
    """Return the scripts and keys of an output, for a path of the multipath and an index.

    Raises DescriptorError for musig().
    """
    script, redeem, witness = (
        None if bind is None else bind(path)(index) for bind in (output.bind, output.redeem, output.witness)
    )
    assert script is not None
    if output.internal is None:
        return Spending(script, tuple(_origin(key, path, index) for key in output.keys), redeem, witness)
    origins = [_origin(output.internal, path, index)]
    internal = origins[0].public_key
    root, leaves = (None, []) if output.tree is None else _walked(output.tree, path, index)
    parity = tweaked(output.internal, output.tree, path)(index)[0] & 1
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
        raise DescriptorError("the keys of musig() cannot be stated in a PSBT yet: sign with a program that knows them")
    return KeyOrigin(key.bind(path)(index), key.fingerprint, key.path(path, index))


_Walked = tuple[Leaf, bytes, bytes, bytes]
"""A leaf, its hash, its script, and the hashes of its path to the root."""


def _walked(tree: Tree, path: int, index: int) -> tuple[bytes, list[_Walked]]:
    """Return the hash of a tree and its leaves."""
    if isinstance(tree, Leaf):
        script = assemble(tree.script, path)(index)
        hashed = leaf_hash(script)
        return hashed, [(tree, hashed, script, b"")]
    (one, left), (other, right) = _walked(tree.left, path, index), _walked(tree.right, path, index)
    return branch_hash(one, other), [*_under(left, other), *_under(right, one)]


def _under(leaves: list[_Walked], sibling: bytes) -> Iterator[_Walked]:
    return ((leaf, hashed, script, proof + sibling) for leaf, hashed, script, proof in leaves)
