"""Foreign scripts: ordinary ones, and scripts whose spends look like those of another type."""

from __future__ import annotations

import random

from spvfilter.node.scripts import SCHNORR_SIGNATURE, SIGNATURE, Lock, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh, push


def lock(rng: random.Random) -> Lock:
    """Draw a foreign script."""
    key = b"\x02" + rng.randbytes(32)
    kind = rng.randrange(14)
    match kind:
        case 0:
            return p2pkh(key)
        case 1:
            return p2sh(p2wpkh(key))
        case 2:
            return p2tr(key[1:])
        case 3:
            return p2pk(key)
        case 4:  # a redeem script of 33 bytes that starts with 02: the spend looks like one of P2PKH
            return p2sh(Lock(key, push(SIGNATURE)))
        case 5:  # the same in a witness: looks like P2WPKH
            return p2wsh(key, (SIGNATURE,))
        case 6:  # a bare script that drops data like the redeem script of P2SH-P2WPKH
            return Lock(b"\x75\x51", push(b"\x00\x14" + key[:20]))
        case 7:  # a bare script that drops data like the signature and the key of P2PKH
            return Lock(b"\x6d\x51", push(SIGNATURE) + push(key))
        case 8:  # taproot by script path: the last item is no script
            return Lock(b"\x51\x20" + key[1:], witness=(b"\x51", b"\xc0" + rng.randbytes(32)))
        case 9:  # taproot with an annex
            return Lock(b"\x51\x20" + key[1:], witness=(SCHNORR_SIGNATURE, b"\x50annex"))
        case 10:  # anyone can spend
            return Lock(b"\x51")
        case 11:  # a future version of a witness program
            return Lock(b"\x52\x02\x4e\x73", witness=(SIGNATURE, key))
        case _:
            return p2wpkh(key)
