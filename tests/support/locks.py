"""A wallet's scripts of every type, and foreign scripts, from numbered keys."""

from __future__ import annotations

from hashlib import sha256

from spvfilter.node.scripts import Lock, multisig, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh


def key(number: int) -> bytes:
    return b"\x02" + sha256(b"key %d" % number).digest()


LOCKS: list[Lock] = [
    p2pkh(key(1)),
    p2wpkh(key(2)),
    p2sh(p2wpkh(key(3))),
    p2wsh(b"\x54"),
    p2sh(p2wsh(b"\x52")),
    p2tr(sha256(b"taproot").digest()),
    p2sh(Lock(b"\x53")),
    p2pk(key(8)),
    multisig(1, [key(9), key(10)]),
]
STRANGER = p2wpkh(key(99))
FOREIGN = p2wpkh(key(77))  # pays miners and foreign wallets
