"""Block files: the framing of blk*.dat, sound and damaged, and raw and hex files."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from spvfilter import errors
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET
from spvfilter.protocol import MAX_BLOCK_SIZE
from spvfilter.scan.blockfile import BlockFile, Record
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.sources import BlockFiles
from support.blocks.build import block_hash, block_of
from support.blocks.chains import exact, found_by, random_chain, record, write_records, xored
from support.vectors import effort, vector_path

ONE, TWO, THREE = (block_of(bytes([n]) * 32, 100 + n) for n in (1, 2, 3))
ALL = [ONE, TWO, THREE]


def read(path: Path) -> tuple[list[bytes], list[str]]:
    """All blocks of a file, and all messages about the rest."""
    file = BlockFile(path)
    found = list(file.records(REGTEST, 256))
    records = [one for one in found if isinstance(one, Record)]
    raws = [file.read(one.offset, one.size) for one in records]
    assert [one.prefix for one in records] == [raw[:256] for raw in raws]
    return raws, [one for one in found if isinstance(one, str)]


def written(tmp_path: Path, data: bytes, name: str = "blk00000.dat") -> tuple[list[bytes], list[str]]:
    path = tmp_path / name
    path.write_bytes(data)
    return read(path)


def zeros(count: int) -> bytes:
    return bytes(count)


# blk*.dat


@pytest.mark.parametrize("name", ["blk00000.dat", "some.blk", "anything"])
def test_adjacent_records_are_found(name: str, tmp_path: Path) -> None:
    assert written(tmp_path, b"".join(map(record, ALL)), name) == (ALL, [])


@pytest.mark.parametrize(
    "gap", [1, 2, 3, 4, 7, 8, 80, 263, 264, 265, 4_095, 4_096, 4_097, 5_000, 1 << 20, (1 << 20) + 4_093]
)
def test_zeros_around_records_are_padding(gap: int, tmp_path: Path) -> None:
    data = record(ONE) + zeros(gap) + record(TWO) + zeros(gap) + record(THREE) + zeros(gap)
    assert written(tmp_path, data) == (ALL, [])
    assert written(tmp_path, zeros(gap) + data) == (ALL, [])
    assert written(tmp_path, data, "some.blk") == (ALL, [])


@pytest.mark.slow
def test_tens_of_megabytes_of_padding_are_skipped(tmp_path: Path) -> None:
    path = write_records(tmp_path / "blk00000.dat", [ONE])
    with path.open("r+b") as file:
        file.seek(48 << 20)
        file.write(record(TWO))
        file.truncate(96 << 20)
    assert read(path) == ([ONE, TWO], [])


@pytest.mark.parametrize("gap", [1, 3, 4, 100, 4_090, 4_096, 10_000, 1_100_000])
def test_garbage_between_records_is_reported_and_skipped(gap: int, tmp_path: Path) -> None:
    garbage = random.Random(gap).randbytes(gap).replace(REGTEST.magic[:1], b"\x01").replace(b"\x00", b"\x01")
    raws, said = written(tmp_path, record(ONE) + garbage + record(TWO) + record(THREE))
    assert raws == ALL
    assert said == [f"{gap} bytes from byte {len(ONE) + 8} contain no block record of regtest"]


def test_garbage_at_the_start_is_reported_and_skipped(tmp_path: Path) -> None:
    assert written(tmp_path, b"garbage" + record(ONE)) == (
        [ONE],
        ["7 bytes from byte 0 contain no block record of regtest"],
    )


def test_a_lost_byte_loses_only_its_record(tmp_path: Path) -> None:
    """The damaged record still states its old length, so the next record seems to start inside it.

    The blocks after it are still found.
    """
    first = write_records(tmp_path / "blk00000.dat", ALL).read_bytes()
    for lost in (8, 50, 8 + len(ONE) // 2):
        raws, said = written(tmp_path, first[:lost] + first[lost + 1 :])
        assert raws[0] != ONE
        assert raws[1:] == [THREE]
        assert len(said) == 1


@pytest.mark.parametrize("length", [0, 1, 80, MAX_BLOCK_SIZE + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_an_absurd_length_is_reported_and_skipped(length: int, tmp_path: Path) -> None:
    absurd = REGTEST.magic + length.to_bytes(4, "little") + TWO
    raws, said = written(tmp_path, record(ONE) + absurd + record(THREE))
    assert raws == [ONE, THREE]
    assert said == [f"{len(absurd)} bytes from byte {len(ONE) + 8} contain no block record of regtest"]


def test_an_incomplete_last_record_is_reported(tmp_path: Path) -> None:
    raws, said = written(tmp_path, record(ONE) + record(TWO) + record(THREE)[:-1])
    assert raws == [ONE, TWO]
    assert said == [
        f"the record at byte {len(ONE + TWO) + 16} is incomplete: {len(THREE) - 1} of {len(THREE)} bytes (half"
        " written?)"
    ]


def test_a_record_beyond_the_end_hides_no_later_records(tmp_path: Path) -> None:
    lying = REGTEST.magic + (100_000).to_bytes(4, "little") + ONE
    raws, said = written(tmp_path, lying + record(TWO) + record(THREE))
    assert raws == [TWO, THREE]
    assert len(said) == 1
    assert "incomplete" in said[0]


@pytest.mark.parametrize("network", [network for network in NETWORKS if network is not REGTEST], ids=str)
@pytest.mark.parametrize("lead", [0, 9])
@pytest.mark.parametrize("key", [b"", b"\x01\x02\x03\x04\x05\x06\x07\x08"])
def test_a_file_of_another_network_is_refused_by_name(network: object, lead: int, key: bytes, tmp_path: Path) -> None:
    path = write_records(tmp_path / "blk00000.dat", ALL, network.magic)  # type: ignore[attr-defined]
    path.write_bytes(zeros(lead) + path.read_bytes())
    if key and not lead:
        (tmp_path / "xor.dat").write_bytes(key)
        path.write_bytes(xored(path.read_bytes(), key))
    with pytest.raises(errors.SourceError, match=f"these are {network} blocks, but the network is regtest"):
        read(path)


def test_a_record_of_another_network_is_reported(tmp_path: Path) -> None:
    raws, said = written(tmp_path, record(ONE) + record(TWO, SIGNET.magic) + record(THREE))
    assert raws == [ONE, THREE]
    assert len(said) == 1


@pytest.mark.parametrize("key", [b"", b"\x9a\x1c\x00\xff\x10\x20\x30\x40"])
def test_a_truncated_file_never_reads_as_complete(key: bytes, tmp_path: Path) -> None:
    _, blocks = random_chain(5)
    chosen = list(blocks[: effort(1, 2, 12)])
    data = b"".join(map(record, chosen)) + zeros(20)
    ends = [0]
    for raw in chosen:
        ends.append(ends[-1] + 8 + len(raw))
    if key:
        (tmp_path / "xor.dat").write_bytes(key)
        data = xored(data[:-20], key) + zeros(20)
    for cut in range(1, len(data)):
        raws, said = written(tmp_path, data[:cut])
        whole = sum(end <= cut for end in ends) - 1
        assert raws == chosen[:whole]
        assert bool(said) == (cut < ends[-1] and cut not in ends)


async def test_a_scan_of_a_truncated_file_reports_the_missing_block(tmp_path: Path) -> None:
    interest, blocks = random_chain(5)
    data = b"".join(map(record, blocks[:3]))
    ends = [0, *(sum(8 + len(raw) for raw in blocks[: n + 1]) for n in range(3))]
    path = tmp_path / "blk00000.dat"
    for cut in range(1, len(data) + 1, effort(61, 23, 1)):
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends) - 1
        matcher = Matcher(interest.watch())
        given = []
        try:
            async for match in matcher.scan(BlockFiles(path)):
                given.append(exact(match))  # noqa: PERF401  keep the matches before the error
        except errors.IncompleteScanError as error:
            assert cut not in ends
            assert str(path) in str(error)
        else:
            assert cut in ends
        assert given == interest.expected(blocks[:whole])


# The key of xor.dat


@pytest.mark.parametrize(
    "key", [b"\x01\x02\x03\x04\x05\x06\x07\x08", b"\xff" * 8, b"\x00" * 7 + b"\x01", REGTEST.magic * 2]
)
@pytest.mark.parametrize("gap", [0, 1, 5, 11, 5_000])
def test_records_are_decoded_with_the_key_of_their_directory(key: bytes, gap: int, tmp_path: Path) -> None:
    (tmp_path / "xor.dat").write_bytes(key)
    data = b""
    for raw in ALL:
        # Core writes no padding, so the key does not apply to it
        data += xored(record(raw), key, len(data)) + zeros(gap)
    raws, said = written(tmp_path, data)
    assert raws == ALL
    if key != REGTEST.magic * 2:  # XORed with this key, zeros look like the magic
        assert said == []


def test_padding_ends_at_the_right_byte_under_an_unlucky_key(tmp_path: Path) -> None:
    (tmp_path / "xor.dat").write_bytes(REGTEST.magic[:1] * 8)
    data = b""
    for raw in ALL:
        data += xored(record(raw), REGTEST.magic[:1], len(data)) + zeros(13)
    assert written(tmp_path, data) == (ALL, [])


def test_a_key_of_zeros_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "xor.dat").write_bytes(bytes(8))
    assert written(tmp_path, b"".join(map(record, ALL))) == (ALL, [])


@pytest.mark.parametrize("size", [0, 1, 7, 9, 100])
def test_a_key_of_the_wrong_length_is_refused(size: int, tmp_path: Path) -> None:
    (tmp_path / "xor.dat").write_bytes(b"\x01" * size)
    with pytest.raises(errors.SourceError, match=rf"xor\.dat next to it must be 8 bytes long, not {size}"):
        written(tmp_path, record(ONE))


def test_a_plain_file_beside_a_key_is_read_without_it(tmp_path: Path) -> None:
    (tmp_path / "xor.dat").write_bytes(b"\x01\x02\x03\x04\x05\x06\x07\x08")
    assert written(tmp_path, b"".join(map(record, ALL))) == (ALL, [])
    assert written(tmp_path, ONE, "one.raw") == ([ONE], [])
    assert written(tmp_path, ONE.hex().encode(), "one.hex") == ([ONE], [])


def test_a_wrong_or_missing_key_is_reported(tmp_path: Path) -> None:
    data = xored(b"".join(map(record, ALL)), b"\x01\x02\x03\x04\x05\x06\x07\x08")
    why = "if it is XORed, copy the xor.dat that Bitcoin Core keeps next to it"
    assert written(tmp_path, data) == ([], [f"{len(data)} bytes from byte 0 contain no block record of regtest: {why}"])
    (tmp_path / "xor.dat").write_bytes(b"\x11\x02\x03\x04\x05\x06\x07\x08")
    assert written(tmp_path, data) == ([], [f"{len(data)} bytes from byte 0 contain no block record of regtest"])


def test_an_unreadable_key_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "xor.dat").mkdir()
    with pytest.raises(OSError, match="directory"):
        written(tmp_path, record(ONE))


# Raw and hex


@pytest.mark.parametrize(
    "text",
    [ONE.hex(), ONE.hex().upper(), ONE.hex() + "\n", ONE.hex() + "\r\n", ONE.hex() + "\n\n"],
    ids=["lower", "upper", "newline", "crlf", "blank line"],
)
@pytest.mark.parametrize("name", ["one.hex", "one.raw", "one"])
def test_a_file_of_hex_is_one_block(text: str, name: str, tmp_path: Path) -> None:
    assert written(tmp_path, text.encode(), name) == ([ONE], [])


def test_hex_with_other_characters_is_refused(tmp_path: Path) -> None:
    for text in (ONE.hex()[:-1], ONE.hex() + "z", ONE.hex() + "\xe9"):
        with pytest.raises(errors.SourceError, match="contains other characters"):
            written(tmp_path, text.encode("latin-1"), "one.hex")


def test_an_oversized_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    for head in (ONE.hex().encode(), ONE):
        path = tmp_path / "much"
        path.write_bytes(head)
        os.truncate(path, 1 << 40)  # a sparse file
        with pytest.raises(errors.SourceError, match="1099511627776 bytes"):
            read(path)


def test_a_raw_file_is_one_block(tmp_path: Path) -> None:
    for data in (ONE, ONE[:-1], ONE + b"\x00", ONE[:81], ONE[:80], b"\x01"):
        assert written(tmp_path, data, "one.raw") == ([data], [])


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    for name in ("blk00000.dat", "one.raw", "one.hex"):
        with pytest.raises(errors.SourceError, match="the file is empty"):
            written(tmp_path, b"", name)


def test_the_kind_of_a_file_is_detected_at_each_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = BlockFile(path)
    for data in (ONE.hex().encode(), ONE, record(ONE), ONE.hex().encode()):
        path.write_bytes(data)
        (found,) = file.records(REGTEST, 256)
        assert isinstance(found, Record)
        assert file.read(found.offset, found.size) == ONE


# Irregular files, and files that change


def test_an_irregular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(errors.SourceError, match="not a regular file"):
            read(path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent")


@pytest.mark.parametrize("tail", [bytes(3 << 20), b"\x01" * (3 << 20)], ids=["padding", "garbage"])
def test_a_file_that_shrinks_while_indexed_is_an_error(tail: bytes, tmp_path: Path) -> None:
    """Missing bytes are neither padding nor garbage."""
    path = tmp_path / "blk00000.dat"
    path.write_bytes(record(ONE) + record(TWO) + tail)
    found = BlockFile(path).records(REGTEST, 256)
    assert isinstance(next(found), Record)
    os.truncate(path, len(ONE) + 8)
    raised: list[str] = []

    def read_on() -> None:
        try:
            list(found)
        except errors.SourceError as error:
            raised.append(str(error))

    done = threading.Thread(target=read_on, daemon=True)
    done.start()
    done.join(10)
    assert raised == ["the file shrank while it was being read"]


def test_a_file_that_grows_while_indexed_keeps_its_first_blocks(tmp_path: Path) -> None:
    path = write_records(tmp_path / "blk00000.dat", [ONE, TWO])
    found = BlockFile(path).records(REGTEST, 256)
    first = next(found)
    with path.open("ab") as file:
        file.write(record(THREE))
    assert [first.prefix, *(one.prefix for one in found)] == [ONE[:256], TWO[:256]]  # type: ignore[union-attr]


async def test_a_block_overwritten_between_index_and_read_is_reported(tmp_path: Path) -> None:
    interest, blocks = random_chain(1)
    path = tmp_path / "blk00000.dat"
    for damage in ("header", "cut", "gone"):
        write_records(path, blocks)
        files = BlockFiles(path)
        index = list(files.index(REGTEST))
        files.index = lambda network, index=index: iter(index)  # type: ignore[method-assign,misc]
        match damage:
            case "header":
                path.write_bytes(path.read_bytes().replace(blocks[5][:80], blocks[6][:80]))
            case "cut":
                os.truncate(path, sum(8 + len(raw) for raw in blocks[:-1]) + 100)
            case _:
                path.unlink()
        matcher = Matcher(interest.watch())
        with pytest.raises(errors.IncompleteScanError, match=r"file changed|No such file") as error:
            await found_by(matcher, files)
        assert len(error.value.problems) == (1 if damage != "gone" else len(blocks))
        assert matcher.report.blocks == len(blocks) - len(error.value.problems)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    path = write_records(tmp_path / "blk00000.dat", ALL)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        read(path)
        next(BlockFile(path).records(REGTEST, 256))
        with pytest.raises(errors.SourceError):
            list(BlockFile(path).records(MAINNET, 256))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.vectors
def test_a_real_file_has_its_blocks_and_offsets() -> None:
    path = vector_path("03_blocks/mainnet_000000_000255.blk")
    found = list(BlockFile(path).records(MAINNET, 80))
    assert len(found) == 256
    data = path.read_bytes()
    assert all(isinstance(one, Record) and data[one.offset : one.offset + 80] == one.prefix for one in found)
    assert block_hash(data[8:]) == MAINNET.genesis_hash
    assert MAX_BLOCK_SIZE == 4_000_000
