"""The BIP-37 relevance test: against an oracle over real transactions, and its rules one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from bitcoin.core import CBlock, CTransaction

from spvfilter.errors import FormatError
from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.realdata import all_blocks, single_blocks
from support.oracles.oracle import Filter, pushed
from support.vectors import effort, vector_file

NONE, ALL, P2PUBKEY_ONLY, UNDEFINED = UpdateFlags
HASH = b"\x0a" * 20
KEYS = [b"\x02" + bytes((number,)) * 32 for number in range(17)]
LONG_KEY = b"\x04" + b"\x0b" * 64
SOURCE = TxIn(b"\x55" * 32, 1)
SIZE = 5_000  # bytes: large enough that nothing below matches by chance


def holding(*elements: bytes, flags: int = ALL) -> Bip37Filter:
    made = Filter(bytes(SIZE), 10, 12_345, flags)
    for element in elements:
        made.insert(element)
    return Bip37Filter.parse(made.payload())


def paying(*scripts: bytes) -> bytes:
    return build.tx([SOURCE], [TxOut(1, script) for script in scripts])


def point(raw: bytes, index: int = 0) -> bytes:
    return build.outpoint(build.txid(raw), index)


def learned(found: Bip37Filter, raw: bytes, count: int) -> list[int]:
    return [index for index in range(count) if point(raw, index) in found]


# Against the oracle


def random_filter(rng: random.Random, txs: Sequence[CTransaction]) -> Filter:
    """A filter of any size and fill, which may contain parts of the transactions."""
    size = rng.choice((0, 1, 2, rng.randint(3, 60), rng.randint(60, 2_000)))
    field = rng.randbytes(size) if rng.random() < 0.15 else bytes(size)
    made = Filter(
        field,
        rng.choice((0, 1, rng.randint(2, 20), 50)),
        rng.getrandbits(32),
        rng.choice((0, 1, 1, 2, 2, 3, rng.randrange(256))),
    )
    for _ in range(rng.randint(0, 3)):
        tx = rng.choice(txs)
        scripts = [bytes(o.scriptPubKey) for o in tx.vout] * 2 + [bytes(i.scriptSig) for i in tx.vin]
        parts = [push for script in rng.sample(scripts, min(3, len(scripts))) for push in pushed(script)]
        parts += (
            [tx.GetTxid(), rng.choice(tx.vin).prevout.serialize(), build.outpoint(tx.GetTxid(), 0)]
            if rng.random() < 0.5 or not parts
            else []
        )
        made.insert(rng.choice(parts))
    return made


@pytest.mark.slow
@pytest.mark.vectors
def test_real_transactions_are_judged_like_the_oracle() -> None:
    rng = random.Random(37)
    names = [
        "core_tx_valid",
        "core_tx_invalid",
        "real_transactions",
        "sighash_random",
        "taproot_reference",
        "size_64_bytes",
    ]
    raws = [
        bytes.fromhex(case["raw"]) for name in names for case in vector_file(f"07_transactions/{name}.json")["vectors"]
    ]
    for block in single_blocks():
        txs = CBlock.deserialize(block.raw).vtx
        raws += [tx.serialize() for tx in rng.sample(list(txs), min(len(txs), effort(3, 10, 400)))]
    answers = {True: 0, False: 0}
    changed = 0
    for raw in raws:
        tx = CTransaction.deserialize(raw)
        for _ in range(effort(2, 4, 20)):
            second = random_filter(rng, [tx])
            before = second.payload()
            found = Bip37Filter.parse(before)
            expected = second.relevant(tx)
            assert found.matches_tx(raw if rng.random() < 0.5 else tx) == expected
            assert bytes(found) == second.payload()
            answers[expected] += 1
            changed += second.payload() != before
    assert min(answers.values()) > 200
    assert changed > effort(20, 80, 500)


@pytest.mark.vectors
@pytest.mark.parametrize("flags", range(4))
def test_real_blocks_are_answered_like_the_oracle(flags: int) -> None:
    rng = random.Random(flags)
    blocks = [block.raw for block in all_blocks() if 300 < len(block.raw) < 60_000]
    matched = 0
    for raw in rng.sample(blocks, effort(10, 60, len(blocks))):
        txs = CBlock.deserialize(raw).vtx
        second = random_filter(rng, txs)
        second.flags = flags
        found = Bip37Filter.parse(second.payload())
        expected = [(number, tx.GetTxid(), tx.serialize()) for number, tx in enumerate(txs) if second.relevant(tx)]
        assert [tuple(tx) for tx in found.scan_block(raw)] == expected
        assert bytes(found) == second.payload()
        matched += len(expected)
    assert matched


# Rule by rule


def test_an_empty_filter_matches_everything_and_stays_empty() -> None:
    found = Bip37Filter.parse(Filter(b"", 5, 0, ALL).payload())
    before = bytes(found)
    assert found.matches_tx(paying(b""))
    assert bytes(found) == before


def test_a_filter_without_functions_matches_and_stays_unchanged() -> None:
    found = Bip37Filter.parse(Filter(bytes(9), 0, 0, ALL).payload())
    before = bytes(found)
    assert found.matches_tx(paying(build.p2pkh(HASH)))
    assert bytes(found) == before


def test_an_empty_bit_field_matches_no_transaction() -> None:
    assert not holding().matches_tx(paying(build.p2pkh(HASH)))


def test_a_txid_matches_and_outpoints_are_inserted() -> None:
    raw = paying(build.p2pkh(HASH), b"\x51", build.p2pkh(HASH))
    found = holding(build.txid(raw))
    assert found.matches_tx(raw)
    assert learned(found, raw, 3) == []
    found = holding(build.txid(raw), HASH)
    assert found.matches_tx(raw)
    assert learned(found, raw, 3) == [0, 2]  # other implementations stop at the txid


def test_the_txid_is_that_of_the_stripped_transaction() -> None:
    raw = build.tx([TxIn(b"\x55" * 32, 1, witness=(b"sig",))], [TxOut(1, b"\x51")])
    assert holding(build.txid(raw)).matches_tx(raw)
    assert not holding(build.wtxid(raw)).matches_tx(raw)


def test_witnesses_are_never_tested() -> None:
    raw = build.tx([TxIn(b"\x55" * 32, 1, witness=(KEYS[0], HASH))], [TxOut(1, b"\x51")])
    assert not holding(KEYS[0], HASH).matches_tx(raw)


@pytest.mark.parametrize(
    "tail",
    [b"\x05\x01", b"\x4c", b"\x4c\x05\x01", b"\x4d\x05", b"\x4d\xff\xff", b"\x4e\x00\x00", b"\x4e\xff\xff\xff\xff"],
)
def test_an_overlong_push_hides_only_later_data(tail: bytes) -> None:
    good = build.push(HASH) + tail
    assert holding(HASH).matches_tx(paying(good))
    assert holding(HASH).matches_tx(build.tx([TxIn(b"\x55" * 32, 1, good)], []))
    assert not holding(HASH).matches_tx(paying(b"\x4c\xff" + build.push(HASH)))  # it hides all data after it
    assert holding(HASH).matches_tx(paying(b"\x4c\xff", build.push(HASH)))  # it affects only its own script


@pytest.mark.parametrize(
    "code",
    [b"\x00", b"\x4c\x00", b"\x4d\x00\x00", b"\x4e\x00\x00\x00\x00", b"\x4f", b"\x50", b"\x51", b"\x60", b"\x61"],
)
def test_operations_without_data_are_not_tested(code: bytes) -> None:
    small = [b"", code, *(bytes((n,)) for n in range(17)), b"\x81"]
    assert not holding(*small).matches_tx(paying(code))
    assert not holding(*small).matches_tx(build.tx([TxIn(b"\x55" * 32, 1, code)], []))
    assert holding(HASH).matches_tx(paying(code + build.push(HASH)))  # later pushes are tested


@pytest.mark.parametrize("size", [1, 75, 76, 255, 256, 520, 521, 70_000])
def test_pushes_of_every_size_are_tested(size: int) -> None:
    data = b"\x07" * size
    forms = [b"\x4e" + size.to_bytes(4, "little") + data]
    forms += [b"\x4d" + size.to_bytes(2, "little") + data] if size < 1 << 16 else []
    forms += [b"\x4c" + bytes((size,)) + data] if size < 256 else []
    forms += [bytes((size,)) + data] if size <= 75 else []
    for form in forms:
        assert holding(data).matches_tx(paying(form))
        assert not holding(data + b"\x07").matches_tx(paying(form))


def test_a_coinbase_input_is_not_special() -> None:
    raw = build.coinbase(300, [TxOut(1, b"\x51")], build.push(b"pool name"))
    assert holding(b"pool name").matches_tx(raw)
    assert holding(b"\x2c\x01").matches_tx(raw)  # its height
    assert holding(bytes(32) + b"\xff" * 4).matches_tx(raw)  # its outpoint


def test_inputs_match_but_teach_no_outpoint() -> None:
    raw = build.tx(
        [TxIn(b"\x66" * 32, 2), TxIn(b"\x55" * 32, 1, build.push(b"sig") + build.push(KEYS[0]))], [TxOut(1, b"\x51")]
    )
    for element in (build.outpoint(b"\x66" * 32, 2), build.outpoint(b"\x55" * 32, 1), b"sig", KEYS[0]):
        found = holding(element)
        before = bytes(found)
        assert found.matches_tx(raw)
        assert bytes(found) == before
    for element in (build.outpoint(b"\x66" * 32, 1), b"\x66" * 32, build.push(KEYS[0])):
        assert not holding(element).matches_tx(raw)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(NONE, []), (ALL, [0, 1, 2, 3]), (P2PUBKEY_ONLY, [2, 3]), (UNDEFINED, []), (0xFD, [0, 1, 2, 3])],
)
def test_flags_decide_which_outpoints_are_inserted(flags: int, expected: list[int]) -> None:
    scripts = [
        build.p2pkh(HASH),
        b"\x6a" + build.push(HASH),
        build.p2pk(KEYS[0]),
        build.multisig(1, KEYS[:2]),
        build.p2pkh(b"\x0c" * 20),
    ]
    raw = paying(*scripts)
    found = holding(HASH, KEYS[0], flags=flags)
    assert found.matches_tx(raw)
    assert learned(found, raw, 5) == expected
    assert bytes(found)[-1] == flags  # the flags byte is serialized unchanged
    if not expected:
        assert bytes(found) == bytes(holding(HASH, KEYS[0], flags=flags))


@pytest.mark.parametrize(
    "script",
    [
        build.p2pk(KEYS[0]),
        build.p2pk(LONG_KEY),
        build.p2pk(b"\x03" + KEYS[0][1:]),
        build.p2pk(b"\x06" + LONG_KEY[1:]),
        build.p2pk(b"\x07" + LONG_KEY[1:]),
        build.multisig(1, [KEYS[0]]),
        build.multisig(2, [KEYS[0], LONG_KEY, KEYS[1]]),
        build.multisig(16, KEYS[:16]),
        b"\x51\x4c" + build.push(KEYS[0]) + b"\x51\xae",  # a key behind OP_PUSHDATA1
    ],
)
def test_p2pubkey_only_inserts_outpoints_of_bare_keys(script: bytes) -> None:
    raw, element = paying(script), next(pushed(script))
    found = holding(element, flags=P2PUBKEY_ONLY)
    assert found.matches_tx(raw)
    assert learned(found, raw, 1) == [0]


@pytest.mark.parametrize(
    "script",
    [
        build.multisig(2, KEYS[:1]),  # m > n
        build.multisig(0, KEYS[:1]),
        build.multisig(1, KEYS, total=17),
        build.multisig(1, KEYS[:2], total=3),
        build.multisig(1, [KEYS[0], b"\x05" + KEYS[1][1:]]),
        build.multisig(1, [KEYS[0], KEYS[1] + b"\x00"]),
        build.multisig(1, KEYS[:1]) + b"\x61",
        build.multisig(1, KEYS[:1])[:-1] + b"\xaf",
        b"\x51" + build.push(KEYS[0]) + b"\x75\x51\xae",
        build.p2pk(KEYS[0]) + b"\x61",
        b"\x61" + build.p2pk(KEYS[0]),
        b"\x4c" + build.p2pk(KEYS[0]),  # a lone key behind OP_PUSHDATA1
        build.push(KEYS[0]) + b"\xad",
        build.p2pk(KEYS[0] + b"\x00"),
        build.p2pk(b"\x05" + KEYS[0][1:]),
        build.p2pk(b"\x02" + LONG_KEY[1:]),
        build.p2pkh(HASH),
        build.p2sh(HASH),
        build.p2wpkh(HASH),
        build.p2tr(b"\x0d" * 32),
    ],
)
def test_p2pubkey_only_inserts_no_other_outpoints(script: bytes) -> None:
    raw, element = paying(script), next(pushed(script))
    found = holding(element, flags=P2PUBKEY_ONLY)
    assert found.matches_tx(raw)
    assert learned(found, raw, 1) == []
    found = holding(element, flags=ALL)
    assert found.matches_tx(raw)
    assert learned(found, raw, 1) == [0]


def test_later_outputs_see_earlier_insertions() -> None:
    # No script can push the outpoint of its own transaction. But in a one-byte filter of one function, an insertion can
    # decide the next test.
    seen = set()
    for tweak in range(4_000):
        raw = paying(build.push(b"\xaa"), build.push(b"\xbb"), build.push(b"\xcc"))
        second = Filter(b"\x00", 1, tweak, ALL)
        second.insert(b"\xbb")
        before = [data in second for data in (b"\xaa", b"\xbb", b"\xcc")]
        after = Filter(bytes(second.field), 1, tweak, ALL)
        after.insert(point(raw, 1))
        if before != [False, True, False] or build.txid(raw) in second:
            continue
        for index, data in ((0, b"\xaa"), (2, b"\xcc")):
            if data in after:
                found = Bip37Filter.parse(second.payload())
                found.matches_tx(raw)
                expected = Filter(bytes(after.field), 1, tweak, ALL)
                if b"\xcc" in after:
                    expected.insert(point(raw, 2))
                assert bytes(found) == expected.payload()
                seen.add(index)
    assert seen == {0, 2}


def test_later_transactions_see_earlier_insertions() -> None:
    funding = paying(b"\x51", build.p2wpkh(HASH))
    spending = build.tx([TxIn(build.txid(funding), 1, witness=(b"sig", KEYS[0]))], [TxOut(1, b"\x51")])
    for flags, expected in ((ALL, [1, 2]), (NONE, [1]), (P2PUBKEY_ONLY, [1]), (UNDEFINED, [1])):
        block = build.block_of(build.GENESIS, 1, [funding, spending])
        assert [tx.position for tx in holding(HASH, flags=flags).scan_block(block)] == expected
        backwards = build.block_of(build.GENESIS, 1, [spending, funding])
        found = holding(HASH, flags=flags)
        assert [tx.position for tx in found.scan_block(backwards)] == [2]
        assert found.matches_tx(spending) == (flags == ALL)  # kept for later blocks


@pytest.mark.parametrize("damaged", [lambda raw: raw[:-1], lambda raw: raw + b"\x00", lambda raw: b""])
def test_malformed_bytes_raise_and_leave_the_filter_unchanged(damaged: object) -> None:
    assert callable(damaged)
    funding = paying(build.p2pkh(HASH))
    found = holding(HASH)
    before = bytes(found)
    with pytest.raises(FormatError):
        found.matches_tx(damaged(funding))
    with pytest.raises(FormatError):
        found.scan_block(damaged(build.block_of(build.GENESIS, 1, [funding])))
    assert bytes(found) == before
    empty = Bip37Filter.parse(Filter(b"", 0, 0, 0).payload())
    with pytest.raises(FormatError):  # even a filter that matches everything raises
        empty.matches_tx(damaged(funding))
