"""In which order related transactions of ours are announced to a peer: parents first, or a child that pays for its
parent alone.

A peer ignores a parent below its fee filter. Announced a child, it lacks the parent, asks for it by txid, and looks at
both as a package (Core since 28, opportunistic 1p1c); a parent that it has refused shortly before, some nodes do not
look at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spvfilter.light.engine.fees import fee_of
from spvfilter.light.engine.owntx import OwnTx
from spvfilter.light.engine.peers import Peer
from spvfilter.wallet.books import Books


def arranged(
    books: Books, peer: Peer, due: Sequence[OwnTx], known: Mapping[bytes, OwnTx]
) -> tuple[list[OwnTx], list[OwnTx]]:
    """What to announce to a peer, in order, and what it may only ask for.

    `known` has all that is ours by txid, parents first.
    """
    if not due:
        return [], []
    wanted = {own.tx.txid for own in due}
    waiting = list(due)
    while waiting:  # what they spend of ours, unless the peer was offered it or others have it
        for txid in dict.fromkeys(outpoint[:32] for outpoint in waiting.pop().tx.inputs):
            parent = known.get(txid)
            if parent is not None and txid not in wanted and peer not in parent.offers and not parent.is_with_others:
                wanted.add(txid)
                waiting.append(parent)
    found = [own for txid, own in known.items() if txid in wanted]
    held = {txid for own in found for txid in _paid_for(books, peer.fee_filter or 0, own, known)} & wanted
    return [own for own in found if own.tx.txid not in held], [own for own in found if own.tx.txid in held]


def _paid_for(books: Books, floor: int, child: OwnTx, known: Mapping[bytes, OwnTx]) -> list[bytes]:
    """The parents of a child that are below a fee rate (satoshi / kvB) by themselves, and not below it with the
    child.
    """
    found: list[bytes] = []
    fee = fee_of(child.tx, books, child.input_values) if floor else None
    for txid in dict.fromkeys(outpoint[:32] for outpoint in child.tx.inputs) if fee is not None else ():
        parent = known.get(txid)
        paid = fee_of(parent.tx, books, parent.input_values) if parent is not None else None
        if fee is None or parent is None or paid is None or paid * 1_000 >= floor * parent.tx.virtual_size:
            continue
        if (paid + fee) * 1_000 >= floor * (parent.tx.virtual_size + child.tx.virtual_size):
            found.append(txid)
    return found
