"""Locks that anybody can open by Core's rules for scripts, without a key."""

from __future__ import annotations

import random

from spvfilter.node.scripts import Lock, p2sh, p2wsh

TRUE = b"\x51"  # OP_TRUE


def open_lock(rng: random.Random) -> Lock:
    """A random one of some locks of each kind."""
    number = bytes([rng.randrange(4)])
    script = b"\x01" + number + b"\x75\x51"  # pushes the number, drops it, and pushes true
    return rng.choice(
        (
            Lock(script),
            p2sh(Lock(script)),
            p2wsh(script),
            p2sh(p2wsh(script)),
            Lock(b"\x51\x14" + 19 * b"\x01" + number),  # witness version 1 with 20 bytes: no rules yet
            Lock(b"\x60\x02\x01" + number),  # witness version 16: no rules yet
        )
    )
