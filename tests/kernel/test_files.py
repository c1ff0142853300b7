"""Blocks read and scanned directly in files: their bytes, XORed or not, and their hits."""

from __future__ import annotations

import errno
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel import EntryKind, Hit, Place
from spvfilter.protocol import MAX_BLOCK_SIZE
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.kernels.kernelentries import (
    BLOCK,
    FILE,
    FILE_KEY,
    PLACE,
    RECORD,
    SCRIPTS,
    Kernel,
    native,
    outcome,
    reference,
)
from support.vectors import effort

both = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])
DATA = random.Random(5).randbytes(600_000)  # more than one read
FUNDING = build.tx([TxIn(b"\x11" * 32, 0)], [TxOut(number, script) for number, script in enumerate(SCRIPTS[:5])])
SPENDING = build.tx([TxIn(build.txid(FUNDING), 2)], [TxOut(1, build.p2wpkh(b"someone else" + bytes(8)))])
FIRST = build.block_of(build.GENESIS, 1, [FUNDING])
SECOND = build.block_of(build.block_hash(FIRST), 2, [SPENDING])


def table(kernel: Kernel) -> Any:
    made = kernel.WatchTable()
    for script in SCRIPTS[:10]:
        made.add(EntryKind.SCRIPT, script)
    return made


def xored(data: bytes, key: bytes) -> bytes:
    return bytes(byte ^ key[at % len(key)] for at, byte in enumerate(data)) if key else data


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Return a function that writes a file and returns its descriptor, open for reading."""
    descriptors: list[int] = []

    def write(data: bytes) -> int:
        path = tmp_path / f"{len(descriptors)}.dat"
        path.write_bytes(data)
        descriptors.append(os.open(path, os.O_RDONLY))
        return descriptors[-1]

    yield write
    for descriptor in descriptors:
        os.close(descriptor)


def placed(write: Callable[[bytes], int], blocks: list[bytes], key: bytes = b"") -> list[Place]:
    """The blocks in a file, with a byte between them, and their positions."""
    descriptor = write(xored(b"-" + b"-".join(blocks), key))
    offset, places = 1, []
    for block in blocks:
        places.append(Place(descriptor, offset, len(block), key, sha256d(block[:80])))
        offset += len(block) + 1
    return places


@pytest.mark.few(1)
@both
@pytest.mark.parametrize("key", [b"", bytes(8), FILE_KEY])
def test_read_returns_the_decoded_bytes_at_any_offset(kernel: Callable[[], Kernel], written: Any, key: bytes) -> None:
    read_at = kernel().read_at
    descriptor = written(xored(DATA, key))

    @given(st.integers(0, len(DATA) + 9), st.integers(0, 40) | st.integers(0, len(DATA) + 9))
    def check(offset: int, size: int) -> None:
        assert read_at(descriptor, offset, size, key) == DATA[offset : offset + size]

    check()
    assert read_at(descriptor, 0, MAX_BLOCK_SIZE, key) == DATA


@both
def test_unreadable_descriptors_raise_os_errors(kernel: Callable[[], Kernel]) -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor") as raised:
        kernel().read_at(descriptor, 0, 10, b"")
    assert raised.value.errno == errno.EBADF
    ends = os.pipe()
    with pytest.raises(OSError, match="seek") as raised:
        kernel().read_at(ends[0], 0, 10, b"")
    assert raised.value.errno == errno.ESPIPE
    for end in ends:
        os.close(end)


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a key of 8 bytes": ({"key": bytes(7)}, ParameterError, "a key must be 8 bytes long or empty, not 7"),
    "no descriptor": ({"descriptor": -1}, ParameterError, "a file descriptor must be from 0 to 2^31 - 1, not -1"),
    "a descriptor beyond int": (
        {"descriptor": 1 << 31},
        ParameterError,
        "a file descriptor must be from 0 to 2^31 - 1, not 2147483648",
    ),
    "an offset before the file": (
        {"offset": -1},
        ParameterError,
        "an offset in a file must be from 0 to sys.maxsize minus the largest size, not -1",
    ),
    "an offset beyond all files": (
        {"offset": sys.maxsize},
        ParameterError,
        f"an offset in a file must be from 0 to sys.maxsize minus the largest size, not {sys.maxsize}",
    ),
    "more than a block": (
        {"size": MAX_BLOCK_SIZE + 1},
        ParameterError,
        "the size of a block must be from 0 to 4000000 bytes, not 4000001",
    ),
    "a size below nothing": (
        {"size": -1},
        ParameterError,
        "the size of a block must be from 0 to 4000000 bytes, not -1",
    ),
    "a text for an offset": (
        {"offset": "1"},
        TypeError,
        "an offset in a file must be from 0 to sys.maxsize minus the largest size: expected an int, not str",
    ),
    "a text for a key": ({"key": "12345678"}, TypeError, "expected a bytes-like object, not str"),
}


@both
@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_place_is_refused(kernel: Callable[[], Kernel], name: str) -> None:
    changes, kind, message = WRONG[name]
    place = PLACE._replace(**changes)
    assert outcome(kernel().read_at, *place[:4]) == (kind, message)
    assert outcome(table(kernel()).scan_files, [PLACE, place], kernel().ReadBuffer()) == (kind, message)


@both
def test_a_place_has_five_parts_and_a_complete_hash(kernel: Callable[[], Kernel]) -> None:
    scan = table(kernel()).scan_files
    buffer = kernel().ReadBuffer()
    assert outcome(scan, [PLACE[:4]], buffer) == (TypeError, "expected a Place, not tuple")
    assert outcome(scan, [b"12345"], buffer) == (TypeError, "expected a Place, not bytes")
    assert outcome(scan, [PLACE._replace(hash=bytes(31))], buffer) == (
        ParameterError,
        "a block hash must be 32 bytes long, not 31",
    )
    assert outcome(scan, [PLACE], bytearray(9)) == (TypeError, "expected a ReadBuffer, not bytearray")
    assert outcome(scan, [PLACE], buffer, b"") == (TypeError, "found must be a WatchTable or None, not bytes")
    assert outcome(table(kernel()).scan_blocks, BLOCK) == (
        TypeError,
        "blocks: expected an iterable of bytes, not bytes",
    )
    assert scan([tuple(PLACE)], buffer) == [table(kernel()).scan_block(BLOCK)]


@both
@pytest.mark.parametrize("key", [b"", FILE_KEY])
def test_blocks_in_files_give_the_same_hits_as_in_memory(
    kernel: Callable[[], Kernel], written: Any, key: bytes
) -> None:
    blocks = [BLOCK, FIRST, SECOND, BLOCK[:-1], FIRST]
    made, one_by_one = table(kernel()), table(reference())
    in_memory, in_files, expected = kernel().WatchTable(), kernel().WatchTable(), reference().WatchTable()

    def each(block: bytes) -> list[Hit] | FormatError:
        try:
            hits: list[Hit] = one_by_one.scan_block(block, expected)
            return hits
        except FormatError as error:
            return error

    hits = [each(block) for block in blocks]
    assert [type(of) for of in hits] == [list, list, list, FormatError, list]
    assert not isinstance(hits[2], FormatError)
    assert any(hit.spend and hit.script is not None for hit in hits[2])  # it spends an output of the previous block
    assert repr(made.scan_blocks(blocks, in_memory)) == repr(hits)
    assert repr(made.scan_files(placed(written, blocks, key), kernel().ReadBuffer(), in_files)) == repr(hits)
    assert dict(in_memory.coins()) == dict(in_files.coins()) == dict(expected.coins())
    assert made.scan_blocks([]) == made.scan_files([], kernel().ReadBuffer()) == []


@both
def test_a_block_that_fails_its_check_is_not_scanned(kernel: Callable[[], Kernel], written: Any) -> None:
    wrong = bytearray(FIRST)
    wrong[40] ^= 1
    places = placed(written, [bytes(wrong), SECOND])
    for check, kinds in ((False, [list, list]), (True, [FormatError, list])):
        assert [type(of) for of in table(kernel()).scan_blocks([bytes(wrong), SECOND], None, check)] == kinds
        result = table(kernel()).scan_files(places, kernel().ReadBuffer(), check=check)
        assert [type(of) for of in result] == kinds
    assert result[0].field == "merkle root"


@both
def test_a_missing_block_is_none_and_the_rest_is_scanned(kernel: Callable[[], Kernel], written: Any) -> None:
    place = placed(written, [BLOCK])[0]
    closed = os.open(os.devnull, os.O_RDONLY)
    os.close(closed)
    gone = [
        place._replace(hash=bytes(32)),
        place._replace(offset=place.offset + 1),
        place._replace(size=len(BLOCK) + 1),  # longer than the file
        place._replace(size=79),
        place._replace(size=0),
        place._replace(key=FILE_KEY),
        place._replace(descriptor=closed),
        place._replace(offset=1 << 40),
    ]
    hits = table(kernel()).scan_block(BLOCK)
    for wrong in gone:
        assert table(kernel()).scan_files([place, wrong, place], kernel().ReadBuffer()) == [hits, None, hits]


@both
def test_a_buffer_is_reused_for_blocks_of_any_size(kernel: Callable[[], Kernel], written: Any) -> None:
    buffer, made = kernel().ReadBuffer(), table(kernel())
    places, blocks = placed(written, [FIRST, BLOCK, SECOND], FILE_KEY), [FIRST, BLOCK, SECOND]
    for number in (0, 2, 1, 0, 1):
        assert made.scan_files([places[number]], buffer) == [made.scan_block(blocks[number])]


@pytest.mark.native
def test_a_buffer_keeps_the_memory_of_the_largest_block() -> None:
    buffer = native().ReadBuffer()
    before = sys.getsizeof(buffer)
    table(native()).scan_files([PLACE], buffer)
    assert sys.getsizeof(buffer) == before + len(BLOCK)
    table(native()).scan_files([PLACE._replace(size=90)], buffer)
    assert sys.getsizeof(buffer) == before + len(BLOCK)


@both
def test_a_buffer_in_use_by_another_thread_is_refused(kernel: Callable[[], Kernel]) -> None:
    made, buffer, refusals, stop = table(kernel()), kernel().ReadBuffer(), [], threading.Event()
    hits = made.scan_block(BLOCK)

    def scan() -> None:
        while not stop.is_set():
            try:
                assert made.scan_files([PLACE] * 50, buffer) == [hits] * 50
            except BufferError as refusal:
                refusals.append(str(refusal))
                stop.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=scan) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    sys.setswitchinterval(interval)
    assert set(refusals) == {"another thread is using this buffer"}
    assert made.scan_files([PLACE], buffer) == [hits]  # the buffer is free again


@pytest.mark.native
def test_random_damage_gives_the_result_of_the_reference(written: Any) -> None:
    source = random.Random(7)
    ours, theirs = table(native()), table(reference())
    buffer = native().ReadBuffer()
    for _ in range(effort(10, 60, 1_000)):
        blocks = []
        for _ in range(source.randrange(1, 6)):
            block = bytearray(source.choice([BLOCK, FIRST, SECOND]))
            if source.random() < 0.5:
                block[source.randrange(len(block))] ^= 1 << source.randrange(8)
            blocks.append(bytes(block))
        key = source.choice([b"", source.randbytes(8)])
        check = source.random() < 0.5
        expected = repr(theirs.scan_blocks(blocks, reference().WatchTable(), check))
        assert repr(ours.scan_blocks(blocks, native().WatchTable(), check)) == expected
        assert repr(ours.scan_files(placed(written, blocks, key), buffer, native().WatchTable(), check)) == expected


@pytest.mark.posix
def test_the_sample_file_has_its_stated_content() -> None:
    assert xored(os.pread(FILE.fileno(), 1 << 20, 0), FILE_KEY) == b"ahead" + BLOCK + RECORD
