"""The scripts and keys needed to spend a descriptor's output, as a PSBT lists them (BIP-174 and 371)."""

from __future__ import annotations

from dataclasses import dataclass

from spvfilter._public import public


@public
@dataclass(frozen=True, slots=True)
class KeyOrigin:
    """A public key of a script, and how to derive it from its master key."""

    public_key: bytes
    """The public key: 33 or 65 bytes, or 32 bytes in taproot."""
    fingerprint: bytes
    """First 4 bytes of the HASH160 of the master key, or of the key itself if the descriptor gives no origin."""
    path: tuple[int, ...]
    """Steps from the master key. Hardened steps are 2^31 or more."""
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
    """The scripts and keys needed to spend an output. Private keys are never included."""

    script_pubkey: bytes
    """Script of the output."""
    keys: tuple[KeyOrigin, ...] = ()
    """Keys of all scripts. Empty for addr() and raw()."""
    redeem_script: bytes | None = None
    """Redeem script of a P2SH output."""
    witness_script: bytes | None = None
    """Witness script of a P2WSH output, even one nested in P2SH."""
    internal_key: bytes | None = None
    """Internal key of a taproot output, 32 bytes."""
    merkle_root: bytes | None = None
    """Hash of a taproot output's script tree, 32 bytes."""
    leaves: tuple[TapLeaf, ...] = ()
    """Scripts of a taproot output, in the order of the tree."""
