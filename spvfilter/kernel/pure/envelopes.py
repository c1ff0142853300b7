"""Inscriptions in the witness of an input, as ord reads them. This is the readable reference.

An envelope occurs in the script of a taproot script path: OP_FALSE OP_IF "ord" …pushes… OP_ENDIF. Its pushes are pairs
of a tag and a value. Tag 1 is the content type. An empty push in place of a tag means that all later pushes are the
body.

An envelope with an opcode that pushes nothing does not count. A script that ends within a push has no envelopes.

Source: ordinals/ord, src/inscriptions/envelope.rs, and its handbook, "Inscriptions".
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from spvfilter.kernel.pure.scripts import next_op
from spvfilter.primitives import read_compact_size

_OP_IF, _OP_ENDIF, _OP_1NEGATE, _OP_1, _OP_16, _LAST_PUSH = 0x63, 0x68, 0x4F, 0x51, 0x60, 0x4E
_MARK, _CONTENT_TYPE, _ANNEX = b"ord", b"\1", 0x50


class Inscription(NamedTuple):
    """The first inscription in a script, and the number of inscriptions."""

    envelopes: int
    """Number of envelopes in the script, at least 1."""
    content_type: bytes | None
    """Content type of the first inscription, or None if there is no tag 1."""
    body: bytes | None
    """Body of the first inscription, or None if it has none."""


def leaf_script(witness: bytes) -> bytes | None:
    """Return the script of a taproot script path in a serialized witness stack, or None if there is none.

    The stack is read as a script path no matter what output it spends, as ord does. BIP-341 defines the annex.
    """
    if not witness:
        return None
    count, at = read_compact_size(witness, 0, "witness item count")
    items: list[bytes] = []
    for _ in range(count):
        size, at = read_compact_size(witness, at, "witness item length")
        items.append(witness[at : at + size])
        at += size
    has_annex = len(items) >= 2 and items[-1][:1] == bytes((_ANNEX,))
    place = 3 if has_annex else 2
    return items[-place] if len(items) >= place else None


def inscription_in(script: bytes) -> Inscription | None:
    """Return the inscription of a script, or None if it has none."""
    found: list[list[bytes]] = []
    at = 0
    while at < len(script):
        op = next_op(script, at)
        if op is None:
            return None
        at = op[2]
        if op[0] > _LAST_PUSH or op[1]:
            continue
        several, at = _envelope(script, at)
        if at < 0:
            return None
        if several is not None:
            found.append(several)
    if not found:
        return None
    pushes = found[0]
    ends = [place for place in range(0, len(pushes), 2) if not pushes[place]]
    fields = pushes[: ends[0]] if ends else pushes
    types = [value for tag, value in zip(fields[::2], fields[1::2], strict=False) if tag == _CONTENT_TYPE]
    return Inscription(len(found), types[0] if types else None, b"".join(pushes[ends[0] + 1 :]) if ends else None)


def content_hash(body: bytes) -> bytes:
    """Return the SHA-256 of a body."""
    return sha256(body).digest()


def _envelope(script: bytes, at: int) -> tuple[list[bytes] | None, int]:
    """Return the pushes of the envelope whose OP_FALSE ends at `at`, or None, and the offset after it.

    The offset is -1 if a push is truncated.
    """
    pushes: list[bytes] = []
    step = 0  # 0 before OP_IF, 1 before the mark, 2 in the envelope
    while at < len(script):
        op = next_op(script, at)
        if op is None:
            return None, -1
        opcode, data, end = op
        is_push = opcode <= _LAST_PUSH
        if step == 0 and opcode != _OP_IF:
            return None, at
        if step == 1 and not (is_push and data == _MARK):
            return None, at
        at = end
        if step < 2:
            step += 1
        elif opcode == _OP_ENDIF:
            return pushes, at
        elif is_push:
            pushes.append(data)
        elif opcode == _OP_1NEGATE:
            pushes.append(b"\x81")
        elif _OP_1 <= opcode <= _OP_16:
            pushes.append(bytes((opcode - _OP_1 + 1,)))
        else:
            return None, at
    return None, at
