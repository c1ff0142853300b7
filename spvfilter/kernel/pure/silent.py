"""Silent payments (BIP-352): the input keys that a transaction reveals, and its taproot outputs.

This is the readable reference. It does no curve arithmetic; the owner of a scan key computes with the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from spvfilter.errors import FormatError
from spvfilter.kernel.pure.arguments import offset, snapshot
from spvfilter.kernel.pure.blocks import walk_tx
from spvfilter.kernel.values import SilentCandidate, TxSpan
from spvfilter.primitives import read_compact_size
from spvfilter.protocol import OUTPOINT_SIZE

NUMS_KEY = bytes.fromhex("50929b74c1a04954b78b4b6035e97a5e078a5a0f28ec96d547bfee9ace803ac0")
"""Internal key that nobody can sign for (BIP-341 § Constructing and spending). An input that reveals it has no key."""
_ANNEX = 0x50
_CONTROL_BLOCK = range(33, 33 + 32 * 128 + 1, 32)  # sizes in bytes (BIP-341 § Script validation rules)
_TAPSCRIPT = 0xC0


class _Inputs:
    """The keys that the inputs of one transaction have revealed so far."""

    def __init__(self) -> None:
        self.taproot_keys: list[bytes] = []
        self.keys: list[bytes] = []
        self.hashed: list[tuple[bytes, bytes]] = []
        self.paths: list[tuple[bytes, bytes]] = []
        self.unknown = 0

    def read(self, script_sig: bytes, stack: list[bytes], spent: bytes) -> bool:
        """Read one input whose spent script is known. Returns False if it makes the whole transaction ineligible."""
        if len(spent) == 34 and spent[:2] == b"\x51\x20":
            self._taproot(stack, spent[2:])
        elif len(spent) == 22 and spent[:2] == b"\0\x14":
            self._witness_key(stack)
        elif len(spent) == 23 and spent[:2] == b"\xa9\x14" and spent[22] == 0x87:
            if _wraps_key_hash(script_sig):
                self._witness_key(stack)
        elif len(spent) == 25 and spent[:3] == b"\x76\xa9\x14" and spent[23:] == b"\x88\xac":
            self.hashed.append((script_sig, spent[3:23]))
        return not (4 <= len(spent) <= 42 and 0x52 <= spent[0] <= 0x60 and spent[1] == len(spent) - 2)

    def _taproot(self, stack: list[bytes], key: bytes) -> None:
        stack = _without_annex(stack)
        if stack and (len(stack) == 1 or stack[-1][1:33] != NUMS_KEY):
            self.taproot_keys.append(key)

    def _witness_key(self, stack: list[bytes]) -> None:
        if stack and _is_key(stack[-1]):
            self.keys.append(stack[-1])

    def guess(self, script_sig: bytes, stack: list[bytes]) -> None:
        """Read one input whose spent script is not known, using only what it reveals by itself."""
        if script_sig:
            if not stack:
                key = _pushed_key(script_sig)
                if key is None:
                    self.unknown += 1
                else:
                    self.keys.append(key)
            elif _wraps_key_hash(script_sig):
                self._witness_key(stack)
        elif len(stack) == 2 and _is_key(stack[1]):
            self.keys.append(stack[1])
        elif stack:
            self._guess_taproot(_without_annex(stack))

    def _guess_taproot(self, stack: list[bytes]) -> None:
        if len(stack) == 1:
            self.unknown += len(stack[0]) in (64, 65)  # else it is a witness script without arguments
        elif len(stack[-1]) in _CONTROL_BLOCK and stack[-1][0] & 0xFE == _TAPSCRIPT and stack[-1][1:33] != NUMS_KEY:
            self.paths.append((stack[-1], stack[-2]))


def silent_candidate(
    raw: bytes, at: int, spent: Sequence[bytes | None] | None, /
) -> tuple[int, SilentCandidate | None]:
    """Read the transaction that starts at byte `at`, and return its end and its candidate.

    `spent` contains the scriptPubKeys that the inputs spend, in order, with None for each unknown script. If it is
    itself None, no script is known.

    The candidate is None if the transaction cannot pay a silent payment address (BIP-352 § Scanning silent payment
    eligible transactions). It may have no taproot output or no eligible input, or it may spend an output whose witness
    version is above 1.

    Raises FormatError in the same cases as walk_tx, and if `spent` does not contain an item for each input.
    """
    raw, at = snapshot(raw), offset(at)
    scripts = None if spent is None else [None if script is None else snapshot(script) for script in spent]
    tx = walk_tx(raw, at)
    if scripts is not None and len(scripts) != len(tx.inputs):
        raise FormatError(
            f"expected {len(tx.inputs)} spent outputs, not {len(scripts)}", offset=at, field="spent outputs"
        )
    outputs = _taproot_outputs(raw, tx)
    if not outputs or not tx.inputs:
        return tx.end, None
    found = _Inputs()
    stacks = _stacks(raw, tx)
    for n, (_, start, end) in enumerate(tx.inputs):
        script = None if scripts is None else scripts[n]
        if script is None:
            found.guess(raw[start:end], stacks[n])
        elif not found.read(raw[start:end], stacks[n], script):
            return tx.end, None
    if not (found.taproot_keys or found.keys or found.hashed or found.paths or found.unknown):
        return tx.end, None
    smallest = min(raw[point : point + OUTPOINT_SIZE] for point, _, _ in tx.inputs)
    keys = b"".join(found.taproot_keys), b"".join(found.keys), found.hashed, found.paths
    return tx.end, SilentCandidate(smallest, *keys, outputs, found.unknown)


def _taproot_outputs(raw: bytes, tx: TxSpan) -> list[tuple[int, bytes]]:
    return [
        (n, raw[start + 2 : end])
        for n, (_, start, end) in enumerate(tx.outputs)
        if end - start == 34 and raw[start : start + 2] == b"\x51\x20"
    ]


def _stacks(raw: bytes, tx: TxSpan) -> list[list[bytes]]:
    """Return the witness stack of each input, without checking the lengths again."""
    if not tx.witness:
        return [[] for _ in tx.inputs]
    stacks, at = [], tx.witness
    for _ in tx.inputs:
        count, at = read_compact_size(raw, at, "witness item count")
        stack = []
        for _ in range(count):
            size, at = read_compact_size(raw, at, "witness item length")
            stack.append(raw[at : at + size])
            at += size
        stacks.append(stack)
    return stacks


def _without_annex(stack: list[bytes]) -> list[bytes]:
    """Return the stack without its annex (BIP-341 § Script validation rules)."""
    return stack[:-1] if len(stack) > 1 and stack[-1][:1] == bytes((_ANNEX,)) else stack


def _is_key(item: bytes) -> bool:
    """Return True if an item of a stack has the form of a compressed public key."""
    return len(item) == 33 and item[0] in (2, 3)


def _wraps_key_hash(script_sig: bytes) -> bool:
    """Return True if a scriptSig pushes nothing but a P2WPKH program, which a P2SH output commits to (BIP-141)."""
    return len(script_sig) == 23 and script_sig[:3] == b"\x16\0\x14"


def _pushed_key(script_sig: bytes) -> bytes | None:
    """Return the compressed key in a scriptSig that pushes a signature and a key, as for P2PKH, or None."""
    signature = script_sig[0]
    key_at = signature + 2
    is_plain = 9 <= signature <= 73 and len(script_sig) == key_at + 33 and script_sig[key_at - 1] == 33
    return script_sig[key_at:] if is_plain and _is_key(script_sig[key_at:]) else None
