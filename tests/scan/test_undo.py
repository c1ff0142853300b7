"""Undo files beside files of blocks: pairing, matches found by script, unusable records, and a real node's files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spvfilter.errors import FormatError, IncompleteScanError, ParameterError, SourceError, UndoError
from spvfilter.hashes import hash160
from spvfilter.kernel import SpentCoin
from spvfilter.network import REGTEST, TESTNET3
from spvfilter.primitives import hash_to_hex
from spvfilter.scan import BlockFiles, Matcher, Problem, block_coins
from spvfilter.scan.undo import LinkedBlock, UndoFile, pair
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, block_hash, block_of, p2pkh, p2wpkh, push, tx
from support.blocks.chains import found_by, identity, record as block_record, write_records, xored
from support.blocks.realdata import runs
from support.blocks.undo import Spent, framed, ledger_chain, record_of, spent_of, undo_of, write_undo
from support.vectors import effort, vector_file, vector_path

KEY = bytes(range(1, 9))


def write(folder: Path, blocks: list[bytes], records: list[bytes], number: int = 0, key: bytes = b"") -> Path:
    """Write a blk*.dat and its rev*.dat. Blocks that spend nothing have no record."""
    for name, parts in (("blk", map(block_record, blocks)), ("rev", (framed(record) for record in records))):
        data = b"".join(parts) + bytes(100)
        (folder / f"{name}{number:05}.dat").write_bytes(xored(data[:-100], key) + bytes(100) if key else data)
    if key:
        (folder / "xor.dat").write_bytes(key)
    return folder


def shown(matches: list[Match]) -> list[tuple[object, ...]]:
    return [(identity(match), match.value, match.script_pubkey, match.label, match.height) for match in matches]


async def scan(watch: WatchList, folder: object, jobs: int = 1, undo: str = "auto") -> tuple[list[Match], Matcher]:
    matcher = Matcher(watch, jobs=jobs)
    return await found_by(matcher, BlockFiles(folder, undo=undo)), matcher  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [b"", KEY], ids=["plain", "xored"])
@pytest.mark.parametrize("seed", range(effort(2, 4, 60)))
async def test_every_spend_is_found_in_any_file_and_order(tmp_path: Path, seed: int, key: bytes) -> None:
    ledger, blocks, records = ledger_chain(seed)
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(1, len(blocks)), 2))
    spent = spent_of(blocks, ledger.before, 100)
    expected = {
        (block_hash(raw), position, n): coin
        for raw, of_block in zip(blocks, spent, strict=True)
        for position, coins in enumerate(of_block, 1)
        for n, coin in enumerate(coins)
        if coin.script in ledger.interest.scripts
    }
    for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(blocks)], strict=True)):
        order = rng.sample(blocks[start:end], end - start)
        write(tmp_path, order, records[start:end], number, key)
    whole, matcher = await scan(ledger.interest.watch(), tmp_path, jobs=1 + seed % 3)
    assert matcher.report.by_undo == sum(len(coins) > 0 for coins in spent)
    assert matcher.report.without_undo == []
    assert matcher.report.undo_problems == []
    assert matcher.report.unseen == 0
    ours = {
        (match.block_hash, match.outpoint.txid, match.outpoint.index, match.value, match.script_pubkey)
        for match in whole
        if match.kind == "input" and match.script_pubkey in ledger.interest.scripts
    }
    assert len(ours) == len(expected)
    assert sorted(value for _, _, _, value, _ in ours) == sorted(coin.value for coin in expected.values())  # type: ignore[type-var]
    apart = []
    for number in rng.sample(range(3), 3):  # each file alone, with a new watch list
        matches, _ = await scan(ledger.interest.watch(), tmp_path / f"blk{number:05}.dat")
        apart += matches
    by_script = [match for match in whole if match.script_pubkey in ledger.interest.scripts]
    assert sorted(shown([match for match in apart if match.script_pubkey in ledger.interest.scripts])) == sorted(
        shown(by_script)
    )


@pytest.mark.parametrize("seed", range(effort(2, 4, 60)))
async def test_a_complete_chain_gives_the_same_matches_without_undo(tmp_path: Path, seed: int) -> None:
    ledger, blocks, records = ledger_chain(seed, closed=True)
    write(tmp_path, random.Random(seed).sample(blocks, len(blocks)), records)
    watch = ledger.interest.watch
    with_undo, one = await scan(watch(), tmp_path, jobs=1 + seed % 2)
    without, other = await scan(watch(), tmp_path, undo="off")
    assert list(map(identity, with_undo)) == list(map(identity, without))
    assert [match for match, plain in zip(with_undo, without, strict=True) if plain.value is not None] == [
        match for match in without if match.value is not None
    ]
    by_hand = [
        match for match, plain in zip(with_undo, without, strict=True) if plain.value is None
    ]  # outpoints whose outputs are not watched
    assert {(match.label, match.value is None) for match in by_hand} <= {("by hand", False), ("data", False)}
    assert sum(match.kind == "input" for match in with_undo) > 5
    assert (one.report.without_undo, other.report.without_undo, other.report.unseen > 0) == ([], [], True)
    assert all(match.fee is not None for match in with_undo if match.kind == "input")


@pytest.mark.vectors
@pytest.mark.parametrize("key", [b"", KEY], ids=["plain", "xored"])
async def test_a_real_nodes_files_with_a_reorganization_match(tmp_path: Path, key: bytes) -> None:
    for name in ("blk00000.dat", "rev00000.dat"):
        data, end = vector_path(f"12_undo/{name}").read_bytes(), 0
        while data[end : end + 4] == REGTEST.magic:
            end += 8 + int.from_bytes(data[end + 4 : end + 8], "little") + (32 if name[0] == "r" else 0)
        # Core does not XOR the padding
        (tmp_path / name).write_bytes(xored(data[:end], key) + data[end:] if key else data)
    if key:
        (tmp_path / "xor.dat").write_bytes(key)
    truth = vector_file("12_undo/truth.json")["blocks"]
    watch = WatchList(REGTEST)
    for script in {bytes.fromhex(coin[1]) for block in truth for coins in block["spent"] for coin in coins}:
        watch.add_script(script)
    source = BlockFiles(tmp_path)
    matches = await found_by(matcher := Matcher(watch), source)
    assert matcher.report.undo_problems == []
    spends = {(match.block_hash, match.txid, match.index): match for match in matches if match.kind == "input"}
    assert len(spends) == 320
    refs = {ref.hash: ref for ref in source.index(REGTEST) if not isinstance(ref, Problem)}
    seen = 0
    for block in truth:
        ref = refs[bytes.fromhex(block["hash"])[::-1]]
        place = source.find_undo(ref)
        if not block["spent"]:
            assert place is None
            continue
        assert place is not None
        raw = source.read(ref)
        coins = block_coins(raw, place.read())
        assert coins == [
            [SpentCoin(value, bytes.fromhex(script), height, made) for value, script, height, made in of]
            for of in block["spent"]
        ]
        by_place = [match.value for match in matches if match.block_hash == ref.hash and match.kind == "input"]
        assert by_place == [coin.value for of in coins for coin in of]
        seen += len(by_place)
    assert seen == 320
    assert len(matcher.report.stale) == 3


@pytest.mark.vectors
async def test_half_a_real_chain_needs_undo_to_find_all_spends(tmp_path: Path) -> None:
    (chain,) = [blocks for entry, blocks in runs() if entry["file"] == "testnet3_000000_000459.blk"]
    raws = [block.raw for block in chain]
    spent = spent_of(raws)
    watch = WatchList(TESTNET3)
    for script in sorted({coin.script for of_block in spent for coins in of_block for coin in coins}):
        watch.add_script(script)
    records = [record_of(raw, undo_of(coins)) for raw, coins in zip(raws, spent, strict=True)]
    half = len(raws) // 2
    found: dict[str, int] = {}
    for mode in ("auto", "off"):
        matches: list[Match] = []
        for number, (start, end) in enumerate(((0, half), (half, len(raws)))):
            write_records(tmp_path / f"blk{number:05}.dat", raws[start:end], TESTNET3.magic)
            write_undo(tmp_path / f"rev{number:05}.dat", records[start:end][1 if not start else 0 :], TESTNET3.magic)
            part, matcher = await scan(watch.copy(), tmp_path / f"blk{number:05}.dat", undo=mode)
            assert matcher.report.undo_problems == []
            blind = sum(len(coins) > 0 for coins in spent[start:end])
            assert matcher.report.unseen == (blind if mode == "off" and start else 0)
            matches += part
        found[mode] = sum(match.kind == "input" for match in matches)
    assert found["auto"] == sum(len(coins) for of_block in spent for coins in of_block)
    assert found["off"] < found["auto"]


# Unusable records


def spending(
    previous: bytes, height: int, count: int, salt: int, script: bytes = p2wpkh(b"\x11" * 20)
) -> tuple[bytes, list[list[Spent]]]:
    """A block with `count` transactions that spend one coin each, and these coins."""
    txs = [tx([TxIn(bytes([salt, n]) * 16, n, push(bytes([salt])))], [TxOut(900, b"\x51")]) for n in range(count)]
    return block_of(previous, height, txs), [[Spent(1_000 + salt, script, height - 1)] for _ in range(count)]


def mine() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_script(p2wpkh(b"\x11" * 20), "mine")
    return watch


def chain(counts: list[int]) -> tuple[list[bytes], list[bytes]]:
    previous, blocks, records = b"\x77" * 32, [], []
    for number, count in enumerate(counts):
        raw, spent = spending(previous, 200 + number, count, number + 1)
        blocks.append(raw)
        records.append(record_of(raw, undo_of(spent)))
        previous = block_hash(raw)
    return blocks, records


async def values(folder: Path, **options: object) -> tuple[list[int | None], Matcher]:
    matches, matcher = await scan(mine(), folder, **options)  # type: ignore[arg-type]
    return [match.value for match in matches], matcher


@pytest.mark.parametrize("order", ["same", "reversed", "shuffled"])
async def test_records_in_any_order_are_paired(tmp_path: Path, order: str) -> None:
    blocks, records = chain([1, 2, 1, 1, 3, 1, 2, 1])
    some = (
        records[::-1]
        if order == "reversed"
        else random.Random(1).sample(records, 8)
        if order == "shuffled"
        else records
    )
    found, matcher = await values(write(tmp_path, blocks, some))
    assert found == [1_001, 1_002, 1_002, 1_003, 1_004, 1_005, 1_005, 1_005, 1_006, 1_007, 1_007, 1_008]
    assert matcher.report.undo_problems == []


async def test_only_blocks_without_a_record_lack_undo(tmp_path: Path) -> None:
    """The other blocks are paired, although each record seems to fit the block before its own."""
    blocks, records = chain([1] * 9)
    found, matcher = await values(write(tmp_path, blocks, records[:2] + records[3:7] + records[8:]))
    assert found == [1_001, 1_002, 1_004, 1_005, 1_006, 1_007, 1_009]
    assert (matcher.report.by_undo, matcher.report.unseen) == (7, 2)
    assert matcher.report.without_undo == [block_hash(blocks[2]), block_hash(blocks[7])]


@pytest.mark.parametrize("jobs", [1, 3])
async def test_a_block_with_a_damaged_record_is_matched_by_outpoints(tmp_path: Path, jobs: int) -> None:
    blocks, records = chain([1, 2, 3, 2, 1])
    for damage in (0, 5, len(records[2]) // 2, len(records[2]) - 1):
        broken = bytearray(records[2])
        broken[damage] ^= 1
        found, matcher = await values(write(tmp_path, blocks, [*records[:2], bytes(broken), *records[3:]]), jobs=jobs)
        assert found == [1_001, 1_002, 1_002, 1_004, 1_004, 1_005]
        at = sum(len(record) + 8 for record in records[:2])
        said = [str(problem) for problem in matcher.report.undo_problems]
        problem = "is damaged, or does not belong to a block in the block file"
        assert f"{tmp_path}/rev00000.dat: the undo record at byte {at} {problem}" in said
        assert (matcher.report.by_undo, matcher.report.unseen) == (4, 1)
        with (
            pytest.raises(SourceError, match="undo data is required")
            if damage == 0
            else pytest.raises((SourceError, IncompleteScanError))
        ):
            await values(tmp_path, undo="require")


async def test_incomplete_records_and_garbage_are_named(tmp_path: Path) -> None:
    blocks, records = chain([1, 2, 1])
    write(tmp_path, blocks, [])
    (tmp_path / "rev00000.dat").write_bytes(
        framed(records[0]) + b"rubbish" + framed(records[1]) + framed(records[2])[:-9]
    )
    found, matcher = await values(tmp_path)
    assert found == [1_001, 1_002, 1_002]
    said = [str(problem) for problem in matcher.report.undo_problems]
    assert (
        f"{tmp_path}/rev00000.dat: 7 bytes from byte {len(framed(records[0]))} contain no undo record of regtest"
        in said
    )
    assert any("is incomplete" in each for each in said)


async def test_records_of_other_networks_or_blocks_are_named(tmp_path: Path) -> None:
    blocks, records = chain([1, 2, 1])
    _, foreign = chain([2, 1, 2])
    write(tmp_path, blocks, [])
    write_undo(tmp_path / "rev00000.dat", records, TESTNET3.magic)
    found, matcher = await values(tmp_path)
    assert found == []
    assert [str(problem) for problem in matcher.report.undo_problems] == [
        f"{tmp_path}/rev00000.dat: these are testnet3 undo records, not regtest ones"
    ]
    write_undo(tmp_path / "rev00000.dat", [records[0], foreign[1], *records[1:]])
    found, matcher = await values(tmp_path)
    assert found == [1_001, 1_002, 1_002, 1_003]
    assert len(matcher.report.undo_problems) == 1
    assert "does not belong to a block in the block file" in str(matcher.report.undo_problems[0])


async def test_missing_undo_is_refused_if_required(tmp_path: Path) -> None:
    blocks, records = chain([1, 2, 1])
    found, _ = await values(write(tmp_path, blocks, records), undo="require")
    assert found == [1_001, 1_002, 1_002, 1_003]
    write(tmp_path, blocks, records[:1])
    with pytest.raises(
        SourceError, match=f"2 of 3 blocks have none; the first is .*block {hash_to_hex(block_hash(blocks[1]))}"
    ):
        await values(tmp_path, undo="require")
    (tmp_path / "rev00000.dat").unlink()
    with pytest.raises(SourceError, match="3 of 3 blocks have none"):
        await values(tmp_path, undo="require")
    with pytest.raises(ParameterError, match="undo must be one of auto, require, off, not 'yes'"):
        BlockFiles(tmp_path, undo="yes")


async def test_undo_mode_off_reads_no_undo_file(tmp_path: Path) -> None:
    blocks, records = chain([1, 2])
    found, matcher = await values(write(tmp_path, blocks, records), undo="off")
    assert (found, matcher.report.by_undo, matcher.report.unseen) == ([], 0, 2)


# Siblings


def siblings(
    first: tuple[bytes, bytes, bytes], second: tuple[bytes, bytes, bytes]
) -> tuple[list[bytes], list[list[list[Spent]]]]:
    """Two blocks with the same parent, and the coins that they spend.

    Each input is (txid of the outpoint, scriptSig, script that it spends).
    """
    root, _ = spending(b"\x77" * 32, 200, 1, 9)
    blocks, spent = [root], [[[Spent(1_009, p2wpkh(b"\x11" * 20), 1)]]]
    for number, (of, script_sig, script) in enumerate((first, second)):
        raw = block_of(block_hash(root), 201, [tx([TxIn(of, 0, script_sig)], [TxOut(500, b"\x51")], lock_time=number)])
        blocks.append(raw)
        spent.append([[Spent(1_001 + number, script, 7)]])
    return blocks, spent


KEYS = [b"\x02" + bytes([n]) * 32 for n in range(2)]


def sigs(key: bytes) -> tuple[bytes, bytes]:
    """The scriptSig of a P2PKH spend with this key, and the script that it spends."""
    return push(b"\x30" + bytes(70)) + push(key), p2pkh(hash160(key))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("have", [(1,), (2,), (1, 2)])
async def test_siblings_are_distinguished_by_their_spent_coins(
    tmp_path: Path, have: tuple[int, ...], turned: bool
) -> None:
    blocks, spent = siblings((b"\x01" * 32, *sigs(KEYS[0])), (b"\x02" * 32, *sigs(KEYS[1])))
    records = [record_of(raw, undo_of(coins)) for raw, coins in zip(blocks, spent, strict=True)]
    there = [records[n] for n in (have[::-1] if turned else have)]
    source = BlockFiles(write(tmp_path, blocks[::-1] if turned else blocks, [records[0], *there]))
    refs = {ref.hash: ref for ref in source.index(REGTEST) if not isinstance(ref, Problem)}
    assert source.undo_problems() == []
    for number in (0, 1, 2):
        place = source.find_undo(refs[block_hash(blocks[number])])
        assert (None if place is None else place.read()) == (records[number] if number in (0, *have) else None)


async def test_a_record_that_fits_two_siblings_is_ambiguous(tmp_path: Path) -> None:
    script = p2wpkh(b"\x11" * 20)
    blocks, spent = siblings((b"\x01" * 32, b"", script), (b"\x02" * 32, b"", script))
    records = [record_of(raw, undo_of(coins)) for raw, coins in zip(blocks, spent, strict=True)]
    for there in ([1], [2], [1, 2], [2, 1]):
        found, matcher = await values(write(tmp_path, blocks, [records[0], *(records[n] for n in there)]))
        assert found == [1_009]
        names = " and ".join(sorted(hash_to_hex(block_hash(raw)) for raw in blocks[1:]))
        said = [str(problem) for problem in matcher.report.undo_problems]
        assert len(said) == len(there)
        assert all(f"is ambiguous: it matches the blocks {names}" in each for each in said)


async def test_siblings_that_conflict_completely_share_a_record(tmp_path: Path) -> None:
    script = p2wpkh(b"\x11" * 20)
    blocks, spent = siblings((b"\x01" * 32, b"", script), (b"\x01" * 32, b"", script))
    found, matcher = await values(
        write(tmp_path, blocks, [record_of(raw, undo_of(coins)) for raw, coins in zip(blocks, spent, strict=True)][:2])
    )
    assert found == [1_009, 1_001]
    assert matcher.report.undo_problems == []


def test_coins_of_another_record_are_refused() -> None:
    blocks, records = chain([1, 2])
    assert [[coin.value for coin in coins] for coins in block_coins(blocks[1], records[1])] == [[1_002], [1_002]]
    for record in (records[0], records[1][:-1], b"", records[1] + b"\0"):
        with pytest.raises(UndoError, match="undo check"):
            block_coins(blocks[1], record)
    with pytest.raises(UndoError, match="input counts"):
        block_coins(blocks[1], record_of(blocks[1], undo_of([[Spent(5, b"")]])))
    with pytest.raises(FormatError):
        block_coins(blocks[1][:-1], records[1])


async def test_the_copy_of_a_block_with_undo_is_used(tmp_path: Path) -> None:
    blocks, records = chain([1, 2, 1])
    (tmp_path / "blk00000.dat").write_bytes(b"".join(map(block_record, blocks)))
    write(tmp_path, blocks, records, 1)
    found, matcher = await values(tmp_path)
    assert found == [1_001, 1_002, 1_002, 1_003]
    assert len(matcher.report.duplicates) == 3


async def test_undo_files_that_change_during_the_scan_are_noticed(tmp_path: Path) -> None:
    blocks, records = chain([1, 2, 1])
    source = BlockFiles(write(tmp_path, blocks, records))
    refs = [ref for ref in source.index(REGTEST) if not isinstance(ref, Problem)]
    (tmp_path / "rev00000.dat").write_bytes(b"")
    assert [source.find_undo(ref) is not None for ref in refs] == [True] * 3

    class Indexed(BlockFiles):
        def index(self, network: object) -> object:  # type: ignore[override]
            return iter(refs)

    source.__class__ = Indexed
    matches = await found_by(matcher := Matcher(mine()), source)
    assert matches == []
    assert (matcher.report.by_undo, matcher.report.unseen) == (0, 3)
    said = [problem.message for problem in matcher.report.undo_problems]
    assert f"no undo record for 3 blocks; the first is {hash_to_hex(refs[0].hash)}" in said


def test_only_ambiguous_records_are_compared(tmp_path: Path) -> None:
    """A stale block makes the aligned order useless. The checksums then identify all records but its own."""
    blocks, records = chain([1, 2, 1, 1, 3, 1, 2, 1])
    stale, _ = spending(block_hash(blocks[3]), 204, 2, 99)
    write(tmp_path, [*blocks, stale], records)
    read: list[bytes] = []

    def linked(raw: bytes, count: int) -> LinkedBlock:
        def read_block() -> bytes:
            read.append(raw)
            return raw

        return LinkedBlock(block_hash(raw), raw[4:36], count, 0, None, read_block)

    of_file = [linked(raw, raw[80]) for raw in (*blocks, stale)]
    pairing = pair(UndoFile(tmp_path / "rev00000.dat"), of_file, REGTEST)
    assert pairing.places.keys() == {block_hash(raw) for raw in blocks}
    assert pairing.problems == []
    assert set(read) == {blocks[4], stale}
