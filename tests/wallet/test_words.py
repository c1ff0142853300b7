"""On whose word unconfirmed transactions rest, and whose make room; the queue before them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from spvfilter.wallet import unconfirmed
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, Reason
from spvfilter.wallet.queue import Queue
from spvfilter.wallet.unconfirmed import MAX_SPARED
from spvfilter.wallet.words import MANY, Words
from support.build import TxIn, TxOut, tx, txid
from support.vectors import effort
from wallet.test_rivals import OURS, Wallet, coin, out, pay


def name(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_room_is_made_by_the_group_on_whose_word_alone_there_are_most() -> None:
    words = Words([])
    for number in range(10):
        words.said(name(number), "a")
    words.said(name(10), "b")
    assert list(words.spare(["a"])) == []
    assert next(words.spare(["b"])) == name(9)
    assert next(words.spare(["c"])) == name(8)  # the latest, but for those that were given before


def test_what_fewer_groups_say_makes_room_first_and_what_many_say_makes_none() -> None:
    words = Words([])
    for number in range(10):
        words.said(name(number), "a")
    for number in range(2, 10):
        words.said(name(number), "b")
    for number in range(4, 10):
        words.said(name(number), "a", "c")
    for number in range(6, 10):
        words.said(name(number), "d")
    assert [words.rank(name(number)) for number in (1, 3, 5, 7)] == [1, 2, 3, MANY]
    assert list(words.spare(["e"])) == [name(1), name(0), name(3), name(2), name(5), name(4)]
    assert set(words.spare(["a"])) == set()  # it would have as many as any party
    words.said(name(10), "a", "b")
    # what two say is kept before what one says
    assert set(words.spare(["a", "c"])) == set(map(name, (0, 1, 2, 3, 10, 4, 5)))
    words.forget(name(1))
    words.forget(name(5))
    # those of one group, and of three, have as many as it would have
    assert set(words.spare(["e"])) == set(map(name, (2, 3, 10)))
    assert set(words.spare("efgh")) == set(map(name, (2, 3, 10)))


def test_what_an_earlier_run_has_left_is_on_nobodys_word_until_it_is_told_again() -> None:
    words = Words(map(name, range(5)))
    assert set(words.spare(["a"])) == set(map(name, range(5)))
    words.said(name(0), "a")
    assert words.rank(name(0)) == 1
    words.said(name(0), "b")
    assert words.rank(name(0)) == 2


def test_words_that_are_kept_are_those_of_what_is_kept() -> None:
    rng, words, kept = random.Random(2), Words([]), dict[bytes, frozenset[str]]()
    levels = Counter[int]()
    for _ in range(effort(2_000, 5_000, 100_000)):
        txid, group = name(rng.randrange(60)), rng.choice("abcde")
        if rng.random() < 0.3:
            words.forget(txid)
            kept.pop(txid, None)
        else:
            words.said(txid, group)
            kept[txid] = kept.get(txid, frozenset()) | {group}
        assert len(words) == len(kept)
        assert all(words.rank(each) == min(len(groups), MANY) for each, groups in kept.items())
        parties: dict[frozenset[str], set[bytes]] = {}
        for each, groups in kept.items():
            parties.setdefault(groups, set()).add(each)
        given = set(words.spare(["f"]))
        for number in range(1, MANY):
            most = max((len(txids) for groups, txids in parties.items() if len(groups) == number), default=0)
            of_it = {each for each in given if len(kept[each]) == number}
            assert len(of_it) == (min(most, 8) if most > 1 else 0)
            assert not of_it or any(of_it <= txids and len(txids) == most for txids in parties.values())
            levels[number] += bool(of_it)
        assert all(len(kept[each]) < MANY for each in given)
    assert min(levels[number] for number in range(1, MANY)) > 100


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_who_speaks_for_several_groups_and_invents_payments_keeps_no_others_out(
    monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    """Each of them is on the word of all these groups; a payment of others is first on the word of one."""
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 40)
    wallet, invented = Wallet(), [pay(1, coin(number)) for number in range(1, 100)]
    books, liars = wallet.books, [f"10.{number}.0.0/16" for number in range(groups)]

    def flood() -> None:
        for raw in invented:
            tell(wallet, raw, liars[0])
            if txid(raw) in books.unconfirmed.pending:
                books.unconfirmed.words.said(txid(raw), *liars)

    flood()
    assert len(books.unconfirmed) == 40
    honest = [pay(7, coin(number)) for number in range(101, 111)]
    for raw in honest:
        assert any(isinstance(event, MatchFound) for event in tell(wallet, raw, "10.77.0.0/16"))
        flood()
        for word in ("10.78.0.0/16", "10.79.0.0/16", "10.80.0.0/16"):
            books.unconfirmed.words.said(txid(raw), word)
        flood()
    assert all(txid(raw) in books.unconfirmed.pending for raw in honest)
    assert len(books.unconfirmed) == 40


def test_what_cannot_make_room_keeps_what_more_groups_tell_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three on one group's word that cannot go first, since what spends from them is on the word of two."""
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 20)
    wallet = Wallet()
    parents = [pay(9, coin(number)) for number in (1, 2, 3)]
    children = [pay(8, out(raw)) for raw in parents]
    others = [pay(1, coin(number)) for number in range(4, 18)]
    for raw in (*parents, *others, *children):
        tell(wallet, raw, "a")
    for raw in (*others, *children):
        wallet.books.unconfirmed.words.said(txid(raw), "b")
    assert len(wallet.books.unconfirmed) == 20
    for number in range(50, 55):
        assert any(isinstance(event, MatchFound) for event in tell(wallet, pay(5, coin(number)), "c"))
    assert len(wallet.books.unconfirmed) == 20


def test_who_invents_payments_keeps_no_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 20)
    wallet = Wallet()
    books = wallet.books

    def hear(raw: bytes, word: str) -> list[object]:
        return list(wallet.tell(books.add_unconfirmed(raw, wallet.now, words=[word])))

    invented = [pay(1, coin(number)) for number in range(1, 41)]
    first = pay(5, coin(100))
    hear(first, "10.2.0.0/16")
    for raw in invented:
        hear(raw, "10.1.0.0/16")
    assert len(books.unconfirmed) == 20
    honest = [pay(7, coin(101)), pay(8, coin(102))]
    honest.append(pay(3, out(honest[1])))
    for raw in honest:
        withdrawn, found, *_ = hear(raw, "10.2.0.0/16")
        assert isinstance(withdrawn, MatchWithdrawn)
        assert withdrawn.reason is Reason.SIZELIMIT
        assert isinstance(found, MatchFound)
    for raw in invented:
        assert not hear(raw, "10.1.0.0/16")
    assert all(txid(raw) in books.unconfirmed.pending for raw in (first, *honest))
    assert len(books.unconfirmed) == 20
    wallet.restart()
    assert len(wallet.books.unconfirmed) == 20


def test_what_makes_room_goes_with_what_spends_from_it_and_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 5)  # and ours
    wallet = Wallet()
    chain = [pay(9, coin(1))]
    chain += [pay(8, out(chain[0]))]
    own = pay(6, out(chain[1]))
    other = [pay(9, coin(number)) for number in (2, 3, 4)]
    for raw in (*chain, *other[:1]):
        wallet.tell(wallet.books.add_unconfirmed(raw, wallet.now, words=["a"]))
    wallet.hear(own, own=True)
    for raw in other[1:]:
        wallet.tell(wallet.books.add_unconfirmed(raw, wallet.now, words=["a"]))
    assert len(wallet.books.unconfirmed) == 6
    for number in range(10, 14):
        wallet.tell(wallet.books.add_unconfirmed(pay(4, coin(number)), wallet.now, words=["b"]))
    assert all(txid(raw) in wallet.books.unconfirmed.pending for raw in (*chain, own))
    assert len(wallet.books.unconfirmed) == 6
    assert txid(pay(4, coin(10))) in wallet.books.unconfirmed.pending


def tell(wallet: Wallet, raw: bytes, word: str) -> list[object]:
    """A transaction comes, on the word of one group."""
    return list(wallet.tell(wallet.books.add_unconfirmed(raw, wallet.now, words=[word])))


def test_what_makes_room_is_nothing_that_the_other_spends_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the spend of a coin would count that does not."""
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 6)
    wallet = Wallet()
    raws = [pay(1, coin(number)) for number in range(1, 7)]
    for raw in raws:
        tell(wallet, raw, "a")
    child = pay(2, out(raws[-1]))
    withdrawn, *found = tell(wallet, child, "b")
    assert isinstance(withdrawn, MatchWithdrawn)
    assert withdrawn.match.txid == txid(raws[-2])
    assert [isinstance(event, MatchFound) for event in found] == [True, True]
    assert txid(raws[-1]) in wallet.books.unconfirmed.pending


def test_several_small_ones_make_room_for_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_PENDING_SIZE", 3_000)
    wallet = Wallet()
    for number in range(1, 40):
        tell(wallet, pay(1, coin(number)), "a")
    assert len(wallet.books.unconfirmed) < 39
    large = pay(1, *(coin(number) for number in range(101, 106)))
    assert len(large) > 2 * len(pay(1, coin(1)))
    assert any(isinstance(event, MatchFound) for event in tell(wallet, large, "b"))
    assert wallet.books.unconfirmed.size <= 3_000


def test_a_chain_that_came_in_the_reverse_order_makes_room_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 100)
    wallet = Wallet()
    chain = [pay(200, coin(1))]
    for number in range(99):
        chain.append(pay(199 - number, out(chain[-1])))
    for raw in reversed(chain):
        tell(wallet, raw, "a")
    assert len(wallet.books.unconfirmed) == 100
    for number in range(2, 42):
        assert any(isinstance(event, MatchFound) for event in tell(wallet, pay(5, coin(number)), "b"))
    assert len(wallet.books.unconfirmed) == 100


def test_what_makes_room_with_what_spends_from_it_has_no_more_matches_than_one_of_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a few bytes of another peer's would have 70,000 matches withdrawn in one step."""
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 4)
    monkeypatch.setattr(unconfirmed, "MAX_SPARED_MATCHES", 30)
    wallet = Wallet()
    raws, spent = list[bytes](), coin(1)
    for _ in range(4):
        raws.append(tx([TxIn(spent[:32], 0)], [TxOut(1, OURS) for _ in range(20)]))
        spent = out(raws[-1])
        tell(wallet, raws[-1], "a")
    words = wallet.books.unconfirmed.words
    words._party[txid(raws[0])].txids.move_to_end(txid(raws[0]))  # it is tried first, with all that spends from it
    *withdrawn, found = tell(wallet, pay(5, coin(9)), "b")
    assert isinstance(found, MatchFound)
    assert {event.match.txid for event in withdrawn if isinstance(event, MatchWithdrawn)} == {txid(raws[-1])}
    assert len(wallet.books.unconfirmed) == 4


def chain_of_an_earlier_run(wallet: Wallet, length: int) -> list[bytes]:
    """The txids of a chain of payments, which a group announces from its end."""
    raws = [pay(1_000, coin(1))]
    while len(raws) < length:
        raws.append(pay(1_000 - len(raws), out(raws[-1])))
    for raw in raws:
        tell(wallet, raw, "a")
    wallet.restart()
    txids = list(map(txid, raws))
    for each in reversed(txids):
        wallet.books.unconfirmed.words.said(each, "a")
    return txids


def test_a_chain_that_is_announced_from_its_end_after_a_restart_makes_room_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 150)
    wallet = Wallet()
    chain_of_an_earlier_run(wallet, 150)
    for number in range(2, 42):
        assert any(isinstance(event, MatchFound) for event in tell(wallet, pay(5, coin(number)), "b"))
    assert len(wallet.books.unconfirmed) > 150 - MAX_SPARED


def test_a_chain_whose_end_is_on_the_word_of_several_keeps_the_rest_of_its_group_from_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 150)
    wallet = Wallet()
    chain = chain_of_an_earlier_run(wallet, 100)
    wallet.books.unconfirmed.words.said(chain[-1], "c")
    others = [pay(5, coin(number)) for number in range(2, 52)]
    for raw in others:
        tell(wallet, raw, "a")
    for each in chain[:-1]:  # they are tried first
        words = wallet.books.unconfirmed.words
        words._party[each].txids.move_to_end(each)
    found = [tell(wallet, pay(5, coin(number)), "b") for number in range(52, 102)]
    assert sum(any(isinstance(event, MatchFound) for event in events) for events in found) >= 20
    assert all(each in wallet.books.unconfirmed.pending for each in chain)


@pytest.mark.parametrize("others", [5, 20])
def test_ours_take_no_room_and_are_on_nobodys_word(monkeypatch: pytest.MonkeyPatch, others: int) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", others)
    wallet = Wallet()
    for number in range(1, others + 1):
        tell(wallet, pay(1, coin(number)), "a")
    for number in range(50, 80):
        wallet.hear(pay(1, coin(number)), own=True)
    found = tell(wallet, pay(5, coin(102)), "b")
    assert [type(event) for event in found] == [MatchWithdrawn, MatchFound]
    assert len(wallet.books.unconfirmed) == others + 30
    assert wallet.books.unconfirmed.size == others * len(pay(1, coin(1)))


def test_the_queue_takes_groups_in_turn_and_room_from_the_one_that_has_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "MOST", 10)
    queue = Queue()
    flood = [b"a%d" % number for number in range(12)]
    assert [queue.put(raw, "a") for raw in flood] == [[]] * 10 + [None] * 2
    assert not queue.has_room("a")
    assert queue.has_room("b")
    assert queue.put(b"b0", "b") == [b"a9"]
    assert queue.put(b"b1", "b") == [b"a8"]
    assert len(queue) == 10
    assert [queue.take() for _ in range(5)] == [(b"a0", "a"), (b"b0", "b"), (b"a1", "a"), (b"b1", "b"), (b"a2", "a")]
    assert [queue.take()[0] for _ in range(len(queue))] == flood[3:8]


def test_the_queue_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "MOST_SIZE", 1_000)
    queue, rng, held = Queue(), random.Random(1), 0
    for _ in range(2_000):
        raw, group = rng.randbytes(rng.randrange(1, 100)), rng.choice("aaab")
        if rng.random() < 0.2 and len(queue):
            held -= len(queue.take()[0])
        elif (gone := queue.put(raw, group)) is not None:
            held += len(raw) - sum(map(len, gone))
        assert held == queue._size <= 1_000 + 2 * 100
    while len(queue):
        queue.take()
    assert not queue._size
    assert not queue._waiting
    assert not queue._sizes


def test_who_has_half_of_what_another_has_is_asked_for_more_though_the_queue_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Queue, "MOST", 10)
    queue = Queue()
    for at in range(8):
        queue.put(bytes([at]) * 100, "a")
    assert not queue.is_half_free
    assert (queue.has_much_room("a"), queue.has_much_room("b")) == (False, True)
    for at in range(5):
        queue.put(bytes([at]) * 99, "b")
    assert not queue.has_much_room("b")


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_who_invents_rivals_has_no_payment_forgotten_that_more_tell_of(groups: int) -> None:
    wallet = Wallet()
    honest = pay(1_000, coin(1))
    words = ["a", "b", "c", "d"]
    wallet.tell(wallet.books.add_unconfirmed(honest, wallet.now, words=words[: groups + 1]))
    liars = ["x", "y", "z"][:groups]
    for value in range(3 * unconfirmed.MAX_RIVALS_OF_COIN):
        wallet.tell(wallet.books.add_unconfirmed(pay(value, coin(1)), wallet.now, words=liars))
    assert wallet.statuses()[txid(honest)] == "replaced"
    assert len(wallet.books.unconfirmed) == unconfirmed.MAX_RIVALS_OF_COIN + 1
    wallet.mine(honest)
    assert wallet.statuses()[txid(honest)] == "confirmed"
