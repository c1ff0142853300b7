"""WatchTable: matches of its entries, the coins that it learns, and scans that change nothing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import NO_ENTRY, NO_VALUE, EntryKind, Hit, WatchedCoin, WatchTable
from support.blocks import build
from support.blocks.build import TxIn, TxOut

SCRIPT = build.p2wpkh(b"\x01" * 20)
STRANGER = build.p2wpkh(b"\x02" * 20)
KEY, OTHER_KEY = b"\x02" + b"\x03" * 32, b"\x03" + b"\x04" * 32
DATA = b"hello, world"
FUNDING = build.tx([TxIn(b"\x11" * 32, 0)], [TxOut(1, STRANGER), TxOut(5_000, SCRIPT)])
POINT = build.outpoint(build.txid(FUNDING), 1)
SPENDING = build.tx([TxIn(b"\x22" * 32, 0), TxIn(POINT[:32], 1, witness=(b"sig",))], [TxOut(4_000, SCRIPT)])
BLOCK = build.block_of(build.GENESIS, 1, [FUNDING, SPENDING])
PAID = Hit(False, 1, build.txid(FUNDING), 1, POINT, 5_000, SCRIPT, 0)
SPENT = Hit(True, 2, build.txid(SPENDING), 1, POINT, 5_000, SCRIPT, 0)
CHANGE = Hit(False, 2, build.txid(SPENDING), 0, build.outpoint(build.txid(SPENDING), 0), 4_000, SCRIPT, 0)


def table(*entries: tuple[EntryKind, bytes]) -> WatchTable:
    made = WatchTable()
    for kind, value in entries:
        made.add(kind, value)
    return made


def pays(script: bytes) -> bytes:
    return build.tx([TxIn(b"\x33" * 32, 0)], [TxOut(1, script)])


def test_entries_keep_their_numbers() -> None:
    made = WatchTable()
    entries = [
        (kind, byte * (1 if kind == EntryKind.SCRIPT_TYPE else 36)) for kind in EntryKind for byte in (b"\0", b"\1")
    ]
    numbers = list(range(len(entries)))
    assert [made.add(*entry) for entry in entries] == numbers
    assert [made.add(*entry) for entry in reversed(entries)] == numbers[::-1]
    assert [made.find(*entry) for entry in entries] == numbers
    assert [made.entry(number) for number in numbers] == list(made.entries()) == entries
    assert [made.find(kind, b"\x02" * 36) for kind in EntryKind] == [NO_ENTRY] * len(EntryKind)
    assert len(made) == len(entries)


def test_inputs_come_before_outputs_and_transactions_in_order() -> None:
    assert table((EntryKind.SCRIPT, SCRIPT)).scan_block(BLOCK) == [PAID, SPENT, CHANGE]


def test_a_scan_changes_no_table_until_hits_are_learned() -> None:
    made = table((EntryKind.SCRIPT, SCRIPT))
    hits = made.scan_block(BLOCK)
    assert made.scan_block(BLOCK) == hits
    assert list(made.coins()) == []
    made.learn(hits)
    learned = dict(made.coins())
    assert dict(made.coins()) == {POINT: WatchedCoin(0, 5_000, SCRIPT), CHANGE.outpoint: WatchedCoin(0, 4_000, SCRIPT)}
    made.learn(hits)
    assert dict(made.coins()) == learned
    assert made.scan_tx(SPENDING) == [SPENT._replace(position=0), CHANGE._replace(position=0)]


def test_blocks_of_one_run_share_found_coins() -> None:
    made, found = table((EntryKind.SCRIPT, SCRIPT)), WatchTable()
    first, second = build.chain_of([[FUNDING], [SPENDING]], height=1)
    assert made.scan_block(first, found) == [PAID]
    assert made.scan_block(second, found) == [SPENT._replace(position=1), CHANGE._replace(position=1)]
    assert made.scan_block(second) == [CHANGE._replace(position=1)]  # the table does not know the coin
    assert (len(found), len(made), list(made.coins())) == (0, 1, [])


def test_a_malformed_block_does_not_change_the_run() -> None:
    made, found = table((EntryKind.SCRIPT, SCRIPT)), WatchTable()
    for damaged in (BLOCK[:-1], BLOCK + b"\x00"):
        with pytest.raises(FormatError):
            made.scan_block(damaged, found)
    assert list(found.coins()) == list(made.coins()) == []


@pytest.mark.parametrize(("value", "script"), [(NO_VALUE, None), (5_000, None), (NO_VALUE, SCRIPT)])
@pytest.mark.parametrize("split", [False, True])
def test_a_watched_outpoint_gets_the_facts_of_its_funding(value: int, script: bytes | None, split: bool) -> None:
    made = table((EntryKind.SCRIPT, SCRIPT), (EntryKind.OUTPOINT, POINT))
    made.set_coin(POINT, 1, value, script)
    if split:  # the result is the same in one block, in one run, or with learning between
        found = WatchTable()
        first, second = build.chain_of([[FUNDING], [SPENDING]], height=1)
        paid, spent = made.scan_block(first, found), made.scan_block(second, found)
        assert paid + [hit._replace(position=2) for hit in spent] == [PAID, SPENT._replace(entry=1), CHANGE]
    assert made.scan_block(BLOCK) == [PAID, SPENT._replace(entry=1), CHANGE]
    made.learn(made.scan_tx(FUNDING))
    assert dict(made.coins()) == {POINT: WatchedCoin(1, 5_000, SCRIPT)}
    assert made.scan_tx(SPENDING)[0] == SPENT._replace(entry=1, position=0)


def test_an_outpoint_matches_only_its_own_spend() -> None:
    made = table((EntryKind.OUTPOINT, POINT))
    assert made.scan_block(BLOCK) == [Hit(True, 2, SPENT.txid, 1, POINT, NO_VALUE, None, 0)]
    for other in (build.outpoint(POINT[:32], 0), build.outpoint(b"\x01" + POINT[1:32], 1)):
        assert table((EntryKind.OUTPOINT, other)).scan_block(BLOCK) == []


def test_a_learned_outpoint_can_be_added_as_an_entry() -> None:
    made = table((EntryKind.SCRIPT, SCRIPT))
    made.learn(made.scan_tx(FUNDING))
    assert made.find(EntryKind.OUTPOINT, POINT) == NO_ENTRY
    assert made.add(EntryKind.OUTPOINT, POINT) == made.find(EntryKind.OUTPOINT, POINT) == 1
    assert dict(made.coins()) == {POINT: WatchedCoin(1, 5_000, SCRIPT)}


def test_script_matches_before_key_and_data() -> None:
    script = build.multisig(1, [KEY, OTHER_KEY])
    entries = [(EntryKind.SCRIPT, script), (EntryKind.MULTISIG_KEY, KEY), (EntryKind.DATA, KEY)]
    for chosen in itertools.permutations(entries):
        for count in (1, 2, 3):
            made = table(*chosen[:count])
            best = min(chosen[:count], key=entries.index)
            (hit,) = made.scan_tx(pays(script))
            assert made.entry(hit.entry) == best == made.entry(made.match_script(script))


def test_multisig_keys_match_only_bare_multisig() -> None:
    made = table((EntryKind.MULTISIG_KEY, KEY))
    for script in (build.multisig(1, [KEY]), build.multisig(2, [OTHER_KEY, KEY])):
        assert len(made.scan_tx(pays(script))) == 1
    for script in (build.p2pk(KEY), build.multisig(2, [KEY]), build.multisig(1, [OTHER_KEY]), build.push(KEY)):
        assert made.scan_tx(pays(script)) == []
    first = table((EntryKind.MULTISIG_KEY, OTHER_KEY), (EntryKind.MULTISIG_KEY, KEY))
    assert first.match_script(build.multisig(1, [KEY, OTHER_KEY])) == 1  # the first key in the script


def test_data_matches_pushes_but_no_witnesses() -> None:
    made = table((EntryKind.DATA, DATA))
    assert [hit.spend for hit in made.scan_tx(pays(b"\x6a" + build.push(DATA)))] == [False]
    assert [hit.spend for hit in made.scan_tx(pays(b"\x4c\x0c" + DATA))] == [False]
    spend = build.tx([TxIn(b"\x44" * 32, 7, b"\x00" + build.push(DATA))], [])
    assert made.scan_tx(spend) == [
        Hit(True, 0, build.txid(spend), 0, build.outpoint(b"\x44" * 32, 7), NO_VALUE, None, 0)
    ]
    coinbase = build.coinbase(7, script_sig=build.push(DATA))
    assert [hit.spend for hit in made.scan_tx(coinbase)] == [True]  # its input is not special
    for script in (DATA, build.push(DATA + b"!"), b"\x05" + build.push(DATA), b"\x6a" + build.push(DATA)[:-1]):
        assert made.scan_tx(pays(script)) == []
    assert made.scan_tx(build.tx([TxIn(b"\x44" * 32, 7, witness=(DATA,))], [])) == []


def test_an_overlong_push_hides_no_earlier_data() -> None:
    made = table((EntryKind.DATA, DATA))
    assert len(made.scan_tx(pays(build.push(DATA) + b"\x4c\xff\x00"))) == 1
    assert made.scan_tx(pays(b"\x4c\xff" + build.push(DATA))) == []


def test_a_known_coins_spend_with_data_matches_once() -> None:
    made = table((EntryKind.SCRIPT, SCRIPT), (EntryKind.DATA, DATA))
    made.learn(made.scan_tx(FUNDING))
    (hit,) = made.scan_tx(build.tx([TxIn(POINT[:32], 1, build.push(DATA))], []))
    assert (hit.entry, hit.value, hit.script) == (0, 5_000, SCRIPT)


@pytest.mark.parametrize(("value", "seen"), [(0, 0), (2**63 - 1, 2**63 - 1), (-1, NO_VALUE), (-(2**63), NO_VALUE)])
def test_a_negative_value_counts_as_unknown(value: int, seen: int) -> None:
    made = table((EntryKind.SCRIPT, SCRIPT))
    made.learn(made.scan_tx(build.tx([TxIn(bytes(32), 0)], [TxOut(value, SCRIPT)])))
    assert [coin.value for _, coin in made.coins()] == [seen]


def test_a_copy_shares_nothing() -> None:
    made = table((EntryKind.SCRIPT, SCRIPT))
    twin = made.copy()
    for number, kind in enumerate(EntryKind, 1):
        assert twin.add(kind, bytes((number,)) * (1 if kind == EntryKind.SCRIPT_TYPE else 36)) == number
    twin.learn(twin.scan_tx(FUNDING))
    assert (len(made), len(list(made.coins()))) == (1, 0)
    assert (len(twin), len(list(twin.coins()))) == (1 + len(EntryKind), 2)
    assert made.scan_tx(pays(b"\x01" * 36)) == []
    assert made.match_script(SCRIPT) == twin.match_script(SCRIPT) == 0


def test_a_copy_without_outpoints_lacks_only_these() -> None:
    point, other = b"\x01" * 36, b"\x02" * 36
    made = table((EntryKind.SCRIPT, SCRIPT), (EntryKind.OUTPOINT, point), (EntryKind.DATA, DATA))
    made.set_coin(other, 2, 7, STRANGER)
    made.learn(made.scan_block(BLOCK))
    coins = dict(made.coins())
    twin = made.without([POINT, point, bytes(bytearray(point)), b"\x03" * 36, POINT])
    # an entry stays
    assert dict(twin.coins()) == {outpoint: coin for outpoint, coin in coins.items() if outpoint != POINT}
    assert list(twin.entries()) == list(made.entries())
    assert dict(made.coins()) == coins
    assert SPENT not in twin.scan_tx(SPENDING) + twin.scan_block(build.block_of(build.GENESIS, 1, [SPENDING]))
    twin.learn(twin.scan_tx(FUNDING))
    assert dict(twin.coins()) == coins
    assert dict(made.without([other]).coins()) == {
        outpoint: coin for outpoint, coin in coins.items() if outpoint != other
    }


def test_a_copy_without_an_invalid_outpoint_is_refused() -> None:
    made = table((EntryKind.SCRIPT, SCRIPT))
    with pytest.raises(ParameterError, match="36 bytes"):
        made.without([POINT, POINT[:35]])
    with pytest.raises(TypeError, match="bytes-like"):
        made.without([5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="iterable of bytes"):
        made.without(POINT)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.sampled_from([SCRIPT, STRANGER, b""]), st.integers(0, 2**40)), max_size=12),
    st.integers(0, 11),
)
def test_the_division_into_blocks_changes_no_match(outputs: list[tuple[bytes, int]], cut: int) -> None:
    txs: list[bytes] = []
    previous = (b"\x55" * 32, 0)
    for script, value in outputs:  # each transaction spends the previous one
        txs.append(build.tx([TxIn(*previous)], [TxOut(value, script)]))
        previous = (build.txid(txs[-1]), 0)
    made = table((EntryKind.SCRIPT, SCRIPT))
    whole = [hit._replace(position=0) for hit in made.scan_block(build.block_of(build.GENESIS, 1, txs))]
    parts, found = [], WatchTable()
    for block in build.chain_of([txs[:cut], txs[cut:]], height=1):
        parts += [hit._replace(position=0) for hit in made.scan_block(block, found)]
    assert parts == whole
    wanted = [script == SCRIPT for script, _ in outputs]
    assert len(whole) == sum(wanted) + sum(wanted[:-1])


def test_a_table_may_change_during_iteration() -> None:
    made = WatchTable()
    for number in range(3):
        made.add(EntryKind.SCRIPT, bytes((number,)))
        made.set_coin(bytes((number,)) * 36, number, NO_VALUE, None)
    entries, coins = made.entries(), made.coins()
    assert (next(entries), next(coins)[0]) == ((EntryKind.SCRIPT, b"\x00"), bytes(36))
    for number in range(3, 5_000):
        made.add(EntryKind.DATA, number.to_bytes(2, "big"))
        made.set_coin(number.to_bytes(36, "big"), 0, 0, None)
    made.set_coin(b"\x02" * 36, 0, 5, b"script")
    assert [value for _, value in entries] == [b"\x01", b"\x02"]  # the entries at the time of the call
    assert [coin for _, coin in coins] == [(1, NO_VALUE, None), (2, 5, b"script")]  # each coin with its present state
    assert (next(entries, None), next(coins, None)) == (None, None)


def test_a_table_may_keep_the_coins_of_its_own_scan() -> None:
    made = table((EntryKind.SCRIPT, SCRIPT))
    assert made.scan_block(BLOCK, made) == [PAID, SPENT, CHANGE]
    assert dict(made.coins()) == {POINT: WatchedCoin(0, 5_000, SCRIPT), CHANGE.outpoint: WatchedCoin(0, 4_000, SCRIPT)}


def test_coins_may_belong_to_entries_of_another_table() -> None:
    made = WatchTable()
    made.set_coin(POINT, 7, 5, b"script")
    assert (made.coin(POINT), made.find(EntryKind.OUTPOINT, POINT)) == (WatchedCoin(7, 5, b"script"), NO_ENTRY)
    assert made.scan_tx(SPENDING) == [SPENT._replace(position=0, value=5, script=b"script", entry=7)]


@pytest.mark.parametrize("size", [0, 1, 3, 7, 8, 15, 16, 17, 23, 24, 40, 41, 62, 63, 64, 65, 104, 1_000, 70_000])
def test_scripts_of_every_length_differ_by_every_byte(size: int) -> None:
    script = bytes(number % 251 for number in range(size))
    others = [
        script[:at] + bytes((script[at] ^ 1,)) + script[at + 1 :]
        for at in {0, size // 3, size // 2, size - 9, size - 1}
        if 0 <= at < size
    ]
    others += [script + b"\x00", script[1:]] if size else [b"\x00"]
    made = table(*((EntryKind.SCRIPT, other) for other in others))
    assert made.match_script(script) == NO_ENTRY
    assert [made.match_script(other) for other in others] == list(range(len(others)))
    made.add(EntryKind.SCRIPT, script)
    (hit,) = made.scan_tx(pays(script))
    assert made.copy().scan_tx(pays(script)) == [hit]
    assert (hit.entry, hit.script, made.entry(hit.entry)) == (len(others), script, (EntryKind.SCRIPT, script))
