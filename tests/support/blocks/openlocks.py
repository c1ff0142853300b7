"""Scripts that anybody can spend without a key by Core's rules, and random payments to them."""

from __future__ import annotations

import random

from spvfilter.errors import RefusedError
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import Lock, p2sh, p2wsh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signing import build_tx

DATA = b"\x6a\x04data"  # OP_RETURN, and a push


def open_lock(rng: random.Random) -> Lock:
    """Return a random lock of a random kind."""
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


def live(made: Regtest, rng: random.Random, locks: dict[bytes, Lock]) -> None:
    """Pay some locks, spend some of their coins, reorganize now and then, and mine a block."""
    for _ in range(rng.randrange(5)):
        made.pay(*(rng.choice(list(locks.values())).pays(rng.randrange(1, 10**8)) for _ in range(rng.randrange(1, 4))))
    coins = [(place, coin) for place, coin in made.chain.coins.items() if coin.script_pubkey in locks]
    for place, coin in rng.sample(coins, min(len(coins), rng.randrange(4))):
        spend = locks[coin.script_pubkey].spends(OutPoint.parse(place))
        try:
            made.submit_tx(build_tx([spend], [TxOut(coin.value // 2, rng.choice(list(locks))), TxOut(0, DATA)]))
        except RefusedError as error:
            if error.reason not in {"insufficient fee", "min relay fee not met"}:
                raise
    if rng.random() < 0.3:
        made.reorg(rng.randrange(1, 4))
    made.mine()
