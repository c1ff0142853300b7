"""The type of a script, as Bitcoin Core's Solver determines it (script/solver.cpp). This is the readable reference."""

from __future__ import annotations

from spvfilter.kernel.blocktables import SCRIPT_TYPES
from spvfilter.kernel.pure.blocks import is_p2pk, is_pubkey

_OP_RETURN, _OP_1, _OP_16, _OP_CHECKMULTISIG = 0x6A, 0x51, 0x60, 0xAE
_MOST_KEYS = 20  # Core MAX_PUBKEYS_PER_MULTISIG.
_ANCHOR = b"\x51\x02\x4e\x73"  # Core CScript::IsPayToAnchor.


def solve(script: bytes) -> int:
    """Return the type of a scriptPubKey: its index in SCRIPT_TYPES."""
    return SCRIPT_TYPES.index(_name(script))


def _name(script: bytes) -> str:
    size = len(script)
    if size == 23 and script[:2] == b"\xa9\x14" and script[22] == 0x87:
        return "scripthash"
    if 4 <= size <= 42 and (script[0] == 0 or _OP_1 <= script[0] <= _OP_16) and script[1] == size - 2:
        return _witness_name(script)
    if size and script[0] == _OP_RETURN and _is_push_only(script):
        return "nulldata"
    if is_p2pk(script):
        return "pubkey"
    if size == 25 and script[:3] == b"\x76\xa9\x14" and script[23:] == b"\x88\xac":
        return "pubkeyhash"
    return "multisig" if _is_multisig(script) else "nonstandard"


def _witness_name(script: bytes) -> str:
    """Return the type of a witness program."""
    if script[0] == 0:
        return {22: "witness_v0_keyhash", 34: "witness_v0_scripthash"}.get(len(script), "nonstandard")
    if script[0] == _OP_1 and len(script) == 34:
        return "witness_v1_taproot"
    return "anchor" if script == _ANCHOR else "witness_unknown"


def next_op(script: bytes, at: int) -> tuple[int, bytes, int] | None:
    """Return the opcode at byte `at`, its data and the offset after it, or None if it is missing or truncated."""
    if at >= len(script):
        return None
    opcode = script[at]
    at += 1
    if opcode > 0x4E:
        return opcode, b"", at
    size = opcode
    if opcode > 0x4B:  # OP_PUSHDATA1, 2 and 4
        width = 1 << opcode - 0x4C
        if len(script) - at < width:
            return None
        size = int.from_bytes(script[at : at + width], "little")
        at += width
    return None if size > len(script) - at else (opcode, script[at : at + size], at + size)


def _is_push_only(script: bytes) -> bool:
    """Return True if only pushes follow the first opcode (Core CScript::IsPushOnly)."""
    at = 1
    while at < len(script):
        op = next_op(script, at)
        if op is None or op[0] > _OP_16:
            return False
        at = op[2]
    return True


def _is_multisig(script: bytes) -> bool:
    """Return True for a bare multisig script of m of n keys, with 1 ≤ m ≤ n ≤ 20 (Core MatchMultisig)."""
    if not script or script[-1] != _OP_CHECKMULTISIG:
        return False
    first = op = next_op(script, 0)
    keys = -1
    while op is not None:
        keys += 1
        op = next_op(script, op[2])
        if op is None or not is_pubkey(op[1]):
            break
    if first is None or op is None:
        return False
    return 1 <= _number(first) <= keys == _number(op) and op[2] + 1 == len(script)


def _number(op: tuple[int, bytes, int]) -> int:
    """Return the number from 1 to 20 that an opcode pushes in the shortest form, or 0 for any other opcode."""
    opcode, data, _ = op
    if _OP_1 <= opcode <= _OP_16:
        return opcode - _OP_1 + 1
    return data[0] if opcode == 1 and _OP_16 - _OP_1 + 1 < data[0] <= _MOST_KEYS else 0
