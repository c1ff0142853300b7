"""Facts about transactions for tests of `canonical`: a hand-made world, random worlds, and a naive oracle."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from spvfilter.protocol import MAX_MONEY
from spvfilter.wallet.canonical import Status, Verdict, canonical
from spvfilter.wallet.txgraph import Anchor, Component, DropReason, LatestDrop, Signatures, TxGraph, TxRecord
from support.blocks.build import TxIn, TxOut, coinbase, outpoint, p2wpkh, tx, txid

SCRIPT = p2wpkh(b"\x01" * 20)
INACTIVE = {Status.ABANDONED, Status.REJECTED, Status.EXPIRED}


def coin(number: int) -> bytes:
    """An outpoint of an unknown transaction."""
    return outpoint(bytes([number]) * 32, 0)


class Facts:
    """Records of transactions, the blocks of the best chain, and one counter for all numbers."""

    def __init__(self, script: bytes = SCRIPT) -> None:
        self.script = script
        self.graph = TxGraph()
        self.chain: set[Anchor] = set()
        self.spends: dict[bytes, list[bytes]] = {}  # txid → outpoints, known without the package
        self.faulty: set[bytes] = set()  # txids of coinbases and of transactions with amounts out of range
        self.number = 0
        self._made = 0

    def __getitem__(self, digest: bytes) -> TxRecord:
        record = self.graph.get(digest)
        assert record is not None
        return record

    @property
    def records(self) -> dict[bytes, TxRecord]:
        return {record.txid: record for record in self.graph}

    def next_number(self) -> int:
        self.number += 1
        return self.number

    # Transactions

    def make(self, *spends: bytes, value: int | None = None) -> bytes:
        """The txid of a new transaction that spends these outpoints. Nothing was observed of it yet."""
        self._made += 1
        amount = 1_000 + self._made if value is None else value
        inputs = [TxIn(each[:32], int.from_bytes(each[32:], "little")) for each in spends]
        digest = self._add(tx(inputs, [TxOut(amount, self.script), TxOut(1, self.script)]), spends)
        if amount > MAX_MONEY:
            self.faulty.add(digest)
        return digest

    def make_coinbase(self) -> bytes:
        self._made += 1
        digest = self._add(coinbase(self._made, [TxOut(5_000, self.script), TxOut(1, self.script)]), ())
        self.faulty.add(digest)
        return digest

    def _add(self, raw: bytes, spends: Iterable[bytes]) -> bytes:
        record = TxRecord.parse(raw)
        assert record.txid == txid(raw)
        self.spends[record.txid] = list(spends)
        self.graph.put(record)
        return record.txid

    # Facts

    def observe(self, digest: bytes, *, counts: bool = True) -> bytes:
        number = self.next_number()
        since = number if counts and self[digest].counts_since is None else self[digest].counts_since
        self.graph.put(self[digest]._replace(last_seen=number, counts_since=since))
        return digest

    def sign(self, digest: bytes) -> bytes:
        """The wallet verifies the signatures of a foreign transaction."""
        record = self[digest]
        since = self.next_number() if record.counts_since is None else record.counts_since
        self.graph.put(record._replace(signatures=Signatures.VALID, counts_since=since))
        return digest

    def request(self, digest: bytes) -> bytes:
        """A peer requests an own transaction."""
        self.graph.put(self[digest]._replace(was_requested=True))
        return digest

    def broadcast(self, digest: bytes) -> bytes:
        self.graph.put(self[digest]._replace(broadcast_seq=self.next_number()))
        return digest

    def drop(self, digest: bytes, reason: DropReason) -> None:
        self.graph.put(self[digest]._replace(dropped=LatestDrop(reason, self.next_number())))

    def abandon(self, digest: bytes) -> None:
        self.drop(digest, DropReason.ABANDONED)

    def anchor(self, digest: bytes, height: int, branch: int = 0) -> Anchor:
        """A block that contains the transaction. The block belongs to the best chain if it is on branch 0."""
        found = Anchor(height, bytes([branch]) + height.to_bytes(31, "big"))
        self.graph.put(
            self[digest]._replace(anchors=self[digest].anchors | {found}, dropped=None, counts_since=self.next_number())
        )
        if not branch:
            self.chain.add(found)
        return found

    def foreign(self, *spends: bytes, counts: bool = True) -> bytes:
        return self.observe(self.make(*spends), counts=counts)

    def own(self, *spends: bytes) -> bytes:
        return self.broadcast(self.make(*spends))

    def mined(self, *spends: bytes, height: int = 1) -> bytes:
        digest = self.make(*spends)
        self.anchor(digest, height)
        return digest

    # Verdicts

    def verdict(self, digest: bytes) -> Verdict:
        if self[digest].is_anchored(self.chain):  # it belongs to no component
            return Verdict(Status.CONFIRMED)
        return canonical(self.graph.component(digest, self.chain), self.chain)[digest]

    def status(self, digest: bytes) -> Status:
        return self.verdict(digest).status

    def verdicts(self) -> dict[bytes, Verdict]:
        """The verdict on every record, found by component; confirmed transactions are in no component."""
        found = {txid: Verdict(Status.CONFIRMED) for txid, each in self.records.items() if each.is_anchored(self.chain)}
        for component in self.graph.components(self.chain):
            assert component.records.keys().isdisjoint(found)
            found |= canonical(component, self.chain)
        assert found.keys() == self.records.keys()
        return found

    def whole(self) -> dict[bytes, Verdict]:
        """The verdicts if all records are given to `canonical` at once, without a border."""
        return canonical(Component(self.records, {}), self.chain)

    def has_missing_input(self, digest: bytes) -> bool:
        """True if a transaction spends an output that its known parent does not have."""
        named = [(self.graph.get(each[:32]), int.from_bytes(each[32:], "little")) for each in self.spends[digest]]
        return any(parent is not None and index >= parent.outputs for parent, index in named)

    def family(self, digest: bytes) -> set[bytes]:
        """A transaction and its known ancestors."""
        found: set[bytes] = set()
        waiting = [digest]
        while waiting:
            if (each := waiting.pop()) not in found:
                found.add(each)
                waiting += (spent[:32] for spent in self.spends[each] if spent[:32] in self.spends)
        return found


def out(digest: bytes, index: int = 0) -> bytes:
    return outpoint(digest, index)


def naive_statuses(facts: Facts) -> dict[bytes, Status | None]:
    """The status of each transaction by a word-for-word reading of the rules. None: inactive for any reason."""
    records, spends = facts.records, facts.spends
    families = {digest: facts.family(digest) for digest in records}
    anchored = {digest for digest, record in records.items() if record.anchors & facts.chain}
    confirmed = set[bytes]().union(*(families[digest] for digest in anchored))
    claims = {spent: digest for digest in confirmed for spent in spends[digest]}
    found: dict[bytes, Status | None] = dict.fromkeys(confirmed, Status.CONFIRMED)
    for digest in records.keys() - confirmed:
        family = families[digest] - confirmed
        spent = [each for member in family for each in spends[member]]
        is_faulty = bool(family & facts.faulty) or any(map(facts.has_missing_input, family))
        if is_faulty or len(set(spent)) < len(spent) or any(each in claims for each in spent):
            found[digest] = Status.CONFLICTED
        elif any(_is_inactive(records[member]) for member in family):
            found[digest] = None
    supported = set[bytes]().union(*(families[digest] for digest, record in records.items() if _has_evidence(record)))
    found |= dict.fromkeys(records.keys() - found.keys() - supported, Status.WAITING)
    for digest in sorted(records.keys() - found.keys(), key=lambda digest: _naive_rank(records[digest]), reverse=True):
        family = families[digest] - confirmed
        if all(claims.get(spent, member) == member for member in family for spent in spends[member]):
            found |= dict.fromkeys(family, Status.CANONICAL)
            claims |= {spent: member for member in family for spent in spends[member]}
        else:
            found[digest] = Status.REPLACED
    for digest in [digest for digest, status in found.items() if status is Status.REPLACED]:
        lost, family = records[digest], families[digest] - confirmed
        rivals = {claims.get(spent, member) for member in family for spent in spends[member]} - family
        counted = [each for each, status in found.items() if status is Status.CANONICAL]
        relying = [
            [records[each].broadcast_seq or 0 for each in counted if rival in families[each]] for rival in rivals
        ]
        is_earlier = [0 < max(numbers) < (lost.broadcast_seq or 0) for numbers in relying]
        if lost.broadcast_seq is not None and not lost.was_requested and all(is_earlier):
            mine = [each for each in family if records[each].broadcast_seq is not None]
            found |= {each: Status.WAITING for each in mine if found[each] is Status.REPLACED}
    return found


def _has_evidence(record: TxRecord) -> bool:
    return record.broadcast_seq is not None or record.counts_since is not None


def _is_inactive(record: TxRecord) -> bool:
    if record.dropped is None:
        return False
    later = [record.broadcast_seq or 0]
    if record.dropped.reason != "abandoned":
        later.append(record.last_seen)
    return max(later) <= record.dropped.number


def _naive_rank(record: TxRecord) -> tuple[bool, bool, int, bool, bool, int, int, bytes]:
    height = max([each.height for each in record.anchors], default=-1)
    own = record.broadcast_seq is not None
    seen = 0 if own else record.last_seen
    is_signed = seen > 0 and record.signatures == "valid"
    requested = own and record.was_requested
    return own, requested, record.broadcast_seq or 0, seen > 0, is_signed, seen, 0 if seen else height, record.txid


def random_facts(rng: Random, *, script: bytes = SCRIPT, has_faults: bool = True) -> Facts:
    """A few transactions that spend a few outpoints again and again, and random facts about them.

    Without `has_faults` there are no coinbases, and every input of a known parent exists.
    """
    facts = Facts(script)
    for _ in range(rng.randint(1, 14)):
        made = list(facts.spends)
        if has_faults and rng.random() < 0.03:
            facts.make_coinbase()
            continue
        places = [coin(number) for number in range(1, 6)]
        places += [out(digest, index) for digest in made[-6:] for index in (0, 1)]
        if has_faults and made and rng.random() < 0.03:
            places = [out(rng.choice(made), 2)]  # its parent lacks this output
        spends = rng.sample(places, min(len(places), rng.choice((1, 1, 1, 1, 2, 3))))
        if has_faults and rng.random() < 0.03:
            spends.append(spends[0])
        facts.make(*spends, value=MAX_MONEY + 1 if has_faults and rng.random() < 0.03 else None)
    _mine_some(facts, rng)
    _number(facts, rng)
    return facts


def _mine_some(facts: Facts, rng: Random) -> None:
    """Put some transactions into valid blocks of the best chain, and some into stale blocks."""
    heights: dict[bytes, int] = {}
    spent: set[bytes] = set()
    share = rng.choice((0.0, 0.1, 0.3))
    for digest, spends in facts.spends.items():  # parents first
        parents = [each[:32] for each in spends if each[:32] in facts.spends]
        has_outputs = all(each[:32] not in facts.spends or each[32] < 2 for each in spends)
        is_minable = digest not in facts.faulty or not spends
        is_minable = is_minable and has_outputs and len(set(spends)) == len(spends) and spent.isdisjoint(spends)
        if rng.random() < share and is_minable and all(parent in heights for parent in parents):
            heights[digest] = max([rng.randint(1, 4), *(heights[parent] for parent in parents)])
            spent |= set(spends)
    for digest in facts.spends:
        if digest in heights and rng.random() < 0.8:  # otherwise the wallet did not see it in its block
            facts.anchor(digest, heights[digest])
        while rng.random() < 0.15:
            facts.anchor(digest, rng.randint(1, 4), branch=1)


def _number(facts: Facts, rng: Random) -> None:
    """Observe, broadcast and drop transactions in any order."""
    digests = list(facts.spends)
    share_own, share_evident = rng.choice((0.0, 0.2, 0.5, 1.0)), rng.choice((0.2, 0.6, 1.0))
    is_own = {digest: rng.random() < share_own for digest in digests}
    for _ in range(2 * len(digests)):
        digest, chance = rng.choice(digests), rng.random()
        if chance < 0.25 and is_own[digest]:
            facts.broadcast(digest)
        elif chance < 0.35 and facts[digest].is_own:
            facts.request(digest)
        elif chance < 0.4 and not is_own[digest]:
            facts.sign(digest)
        elif chance < 0.8:
            facts.observe(digest, counts=rng.random() < share_evident)
            facts.number -= rng.random() < 0.1  # so that two numbers are equal
        elif chance < 0.9:
            facts.drop(digest, rng.choice(list(DropReason)))
    for digest, record in facts.records.items():  # each has a reason to be recorded
        if not (record.last_seen or record.is_own or record.anchors):
            facts.observe(digest)
