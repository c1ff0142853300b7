"""Sources of blocks: directories, lists, spools, lines of hex."""

from __future__ import annotations

import io
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from bitcoin.core import CBlock

from spvfilter import errors
from spvfilter.network import REGTEST, SIGNET
from spvfilter.protocol import MAX_BLOCK_SIZE
from spvfilter.scan import sources
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.sources import BlockFiles, BlockList, BlockRef, Problem, RawBlock, Spool, block_ref
from spvfilter.scan.streams import hex_blocks
from support.blocks.build import block_hash, block_of, chain_of
from support.blocks.chains import exact, found_by, random_chain, record, write_records, xored

BLOCKS = chain_of([[]] * 4, height=200)


def contents(source: BlockFiles) -> tuple[list[bytes], list[str]]:
    """All blocks of a source, and its problems."""
    found = list(source.index(REGTEST))
    refs = [one for one in found if isinstance(one, BlockRef)]
    return [source.read(ref) for ref in refs], [str(one) for one in found if isinstance(one, Problem)]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# References


def test_a_reference_has_all_data_for_linking() -> None:
    raw = block_of(b"\x07" * 32, 300, time=1_234_567_890)
    assert block_ref(raw[:256], 3, 1_000, len(raw), REGTEST) == BlockRef(
        3, 1_000, len(raw), block_hash(raw), b"\x07" * 32, 0x207FFFFF, 1_234_567_890, 300, 1
    )
    assert block_ref(raw[:80], 0, 0, 80, REGTEST).height is None
    assert block_ref(raw[:80], 0, 0, 80, REGTEST).transactions is None
    assert block_ref(raw, 0, 0, len(raw), REGTEST, 7).height == 7
    for size in (0, 1, 79):
        with pytest.raises(errors.FormatError, match=f"header at byte 0: truncated: expected 80 bytes, {size} left"):
            block_ref(raw[:size], 0, 0, size, REGTEST)


def test_a_raw_block_has_bytes_and_a_height() -> None:
    raw = BLOCKS[0]
    assert (
        RawBlock.of(raw)
        == RawBlock(raw)
        == RawBlock.of(RawBlock(bytearray(raw)))  # type: ignore[arg-type]
        == RawBlock.of(CBlock.deserialize(raw))
    )  # any bytes-like value is accepted
    assert isinstance(RawBlock(memoryview(raw)).raw, bytes)  # type: ignore[arg-type]  # any bytes-like value is accepted
    assert RawBlock(raw, 0).height == 0
    with pytest.raises(errors.ParameterError, match="-1"):
        RawBlock(raw, -1)
    for wrong in (5, "00", None):
        with pytest.raises(TypeError):
            RawBlock.of(wrong)  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        RawBlock(raw).height = 4  # type: ignore[misc]


# Files


def test_a_directory_with_blk_files_yields_only_those(tmp_path: Path) -> None:
    write_records(tmp_path / "blk00001.dat", BLOCKS[:1])
    write_records(tmp_path / "blk00000.dat", BLOCKS[1:2])
    write_records(tmp_path / "rev00000.dat", BLOCKS[2:3])
    (tmp_path / "one.raw").write_bytes(BLOCKS[3])
    (tmp_path / "blk").mkdir()
    assert contents(BlockFiles(tmp_path)) == ([BLOCKS[1], BLOCKS[0]], [])


def test_a_directory_without_blk_files_yields_its_other_block_files(tmp_path: Path) -> None:
    write_records(tmp_path / "b.blk", BLOCKS[:2])
    (tmp_path / "a.raw").write_bytes(BLOCKS[2])
    (tmp_path / "c.hex").write_text(BLOCKS[3].hex() + "\n")
    (tmp_path / "notes.txt").write_text("no block")
    assert contents(BlockFiles(str(tmp_path))) == ([BLOCKS[2], BLOCKS[0], BLOCKS[1], BLOCKS[3]], [])


def test_a_directory_of_core_28_is_read_through_its_key(tmp_path: Path) -> None:
    key = b"\x21\x43\x65\x87\xa9\xcb\xed\x0f"
    (tmp_path / "xor.dat").write_bytes(key)
    for number, raw in enumerate(BLOCKS):
        (tmp_path / f"blk{number:05}.dat").write_bytes(xored(record(raw), key))
    assert contents(BlockFiles(tmp_path)) == (BLOCKS, [])


def test_a_file_named_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_records(tmp_path / "blk00000.dat", BLOCKS)
    (tmp_path / "link").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    named = [path, str(path), "blk00000.dat", "./blk00000.dat", tmp_path / "link", tmp_path]
    assert contents(BlockFiles(named)) == (BLOCKS, [])  # type: ignore[arg-type]  # paths of both kinds
    assert contents(BlockFiles(name for name in named)) == (BLOCKS, [])  # type: ignore[misc]  # paths of both kinds


async def test_a_hard_link_is_a_file_of_duplicates(tmp_path: Path) -> None:
    interest, blocks = random_chain(6)
    path = write_records(tmp_path / "blk00000.dat", blocks)
    os.link(path, tmp_path / "blk00001.dat")
    matcher = Matcher(interest.watch())
    assert [exact(match) for match in await found_by(matcher, BlockFiles(tmp_path))] == interest.expected(blocks)
    assert matcher.report.duplicates == [block_hash(raw) for raw in blocks]


def test_a_source_without_files_is_refused() -> None:
    with pytest.raises(errors.ParameterError, match="no block file"):
        BlockFiles([])


def test_unreadable_files_are_named_and_skipped(tmp_path: Path) -> None:
    good = write_records(tmp_path / "good.blk", BLOCKS)
    cases: dict[str, str] = {}
    for name, data, message in (
        ("empty.raw", b"", "empty"),
        ("short.raw", b"\x01" * 79, "header at byte 0: truncated"),
        ("zeros.raw", bytes(5_000), "this file contains no blocks, only zeros"),
        ("blk00007.dat", bytes(5_000), "this file contains no blocks, only zeros"),
        ("signet.blk", record(BLOCKS[0], SIGNET.magic), "these are signet blocks, but the network is regtest"),
    ):
        (tmp_path / name).write_bytes(data)
        cases[name] = message
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "notes.txt").write_text("x")
    for name in ("blocks", "regtest/blocks"):
        (tmp_path / f"data {name[:3]}" / name).mkdir(parents=True)
        cases[f"data {name[:3]}"] = f"it looks like Bitcoin Core's data folder, so give its folder {name} instead"
    (tmp_path / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n" * 50)
    cases["passwd"] = "not a block file: expected a blk*.dat"
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    cases |= {"dir": "no blk*.dat", "loop": "symbolic link", "pipe": "not a regular file", "absent": "No such file"}
    names = [*cases, "good.blk"]
    raws, said = contents(BlockFiles([tmp_path / name for name in random.Random(1).sample(names, len(names))]))
    assert raws == BLOCKS
    assert len(said) == len(cases)
    for name, message in cases.items():
        assert any(line.startswith(f"{tmp_path / name}: ") and message in line for line in said), (name, said)
    assert good.is_file()


async def test_a_scan_names_unreadable_files_after_all_matches(tmp_path: Path) -> None:
    interest, blocks = random_chain(7)
    write_records(tmp_path / "good.blk", blocks)
    (tmp_path / "bad.raw").write_bytes(blocks[3][:-1])
    files = BlockFiles([tmp_path / "absent", tmp_path / "bad.raw", tmp_path / "good.blk"])
    for _ in range(2):  # a second scan of the same source reports nothing twice
        matcher = Matcher(interest.watch())
        given = []
        with pytest.raises(errors.IncompleteScanError) as error:
            async for match in matcher.scan(files):
                given.append(exact(match))  # noqa: PERF401  keep the matches before the error
        assert given == interest.expected(blocks)
        assert [problem.partition(": ")[0] for problem in error.value.problems] == [
            str(tmp_path / "absent"),
            f"{tmp_path / 'bad.raw'} at byte 0",
        ]
        assert matcher.report.done


async def test_a_source_without_readable_files_is_an_incomplete_scan(tmp_path: Path) -> None:
    interest, _ = random_chain(7)
    for paths in ([tmp_path / "absent"], [tmp_path]):
        with pytest.raises(errors.IncompleteScanError, match=str(paths[0])):
            await found_by(Matcher(interest.watch()), BlockFiles(paths))


async def test_files_are_opened_again_without_leaving_descriptors(tmp_path: Path) -> None:
    interest, blocks = random_chain(8)
    for number in range(20):
        write_records(tmp_path / f"blk{number:05}.dat", blocks[number : number + 2])
    matcher = Matcher(interest.watch(), jobs=2)
    await found_by(matcher, BlockFiles(tmp_path))  # asyncio opens its own descriptors now, and they stay open
    before = descriptors()
    await found_by(matcher, BlockFiles(tmp_path))
    assert descriptors() == before


# Lists and spools


def test_later_changes_do_not_affect_a_list() -> None:
    blocks = list(BLOCKS)
    source = BlockList(blocks)
    blocks.clear()
    assert [source.read(ref) for ref in source.index(REGTEST)] == BLOCKS
    assert source.name(next(source.index(REGTEST))) == "block 0 of the list"


def ref_to(offset: int, size: int) -> BlockRef:
    return BlockRef(0, offset, size, bytes(32), bytes(32), 0, 0, None)


@pytest.mark.parametrize("limit", [1 << 20, 10])
def test_a_spool_returns_its_blocks_in_any_thread(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SPOOL_IN_MEMORY", limit)
    spool = Spool()
    pieces = [bytes([number]) * (1 + 37 * number % 101) for number in range(200)]
    offsets = []
    with ThreadPoolExecutor(4) as threads:
        reads = []
        for piece in pieces:
            offsets.append(spool.size)
            spool.put(piece)
            reads.append(threads.submit(spool.read, ref_to(offsets[-1], len(piece))))
        assert [read.result() for read in reads] == pieces
    assert [spool.read(ref_to(offset, len(piece))) for offset, piece in zip(offsets, pieces, strict=True)] == pieces
    assert spool.size == sum(map(len, pieces))
    spool.close()


@pytest.mark.parametrize("in_order", [False, True])
async def test_a_spool_leaves_no_file_and_no_descriptor(in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SPOOL_IN_MEMORY", 10)
    interest, blocks = random_chain(8)
    matcher = Matcher(interest.watch())
    await found_by(matcher, iter(blocks), in_order=in_order)
    before = descriptors()
    await found_by(matcher, iter(blocks), in_order=in_order)
    async for _ in matcher.scan(iter(blocks)):
        during = descriptors()
    assert during == before + 1  # the file has no name and disappears when it is closed
    assert descriptors() == before


# Hex


def test_hex_lines_give_blocks() -> None:
    text = "\n".join([BLOCKS[0].hex(), "", BLOCKS[1].hex().upper(), "  \t", f"  {BLOCKS[2].hex()}\r", BLOCKS[3].hex()])
    assert list(hex_blocks(io.BytesIO(text.encode()))) == BLOCKS
    assert list(hex_blocks(io.BytesIO(text.encode() + b"\n"))) == BLOCKS
    assert list(hex_blocks(io.BytesIO(b"\n\r\n"))) == []


@pytest.mark.parametrize("line", [b"0", b"zz", b"\xff\xfe", b"00 0", b"0x00", "٣٣".encode()])
def test_a_line_that_is_not_hex_is_refused_by_number(line: bytes) -> None:
    lines = hex_blocks(io.BytesIO(b"00\n\n" + line + b"\n00\n"))
    assert next(lines) == b"\x00"
    with pytest.raises(errors.FormatError, match="hex line at byte 3: not hex") as error:
        next(lines)
    assert (error.value.offset, error.value.field) == (3, "hex line")


def test_an_overlong_line_is_refused_before_it_is_read() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
            buffer[:] = b"0" * len(buffer)
            self.given += len(buffer)
            return len(buffer)

    endless = Endless()
    with pytest.raises(errors.FormatError, match="longer than 8000002 digits"):
        next(hex_blocks(io.BufferedReader(endless)))  # type: ignore[type-var]  # a reader without a file
    assert endless.given < 3 * MAX_BLOCK_SIZE
    largest = b"0" * 2 * MAX_BLOCK_SIZE
    assert list(hex_blocks(io.BytesIO(largest + b"\r\n" + largest))) == [bytes(MAX_BLOCK_SIZE)] * 2
