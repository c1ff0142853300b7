"""Transactions on streams: lines of hex and JSON, raw bytes, compression; every bad line has its own message."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from spvfilter.errors import FormatError, SourceError
from spvfilter.kernel import walk_block
from spvfilter.network import MAINNET
from spvfilter.scan import Matcher, read_txs, stream_txs, txlines
from spvfilter.scan.pull import pull_ahead
from support.blocks.build import GENESIS, TxIn, TxOut, block_of, tx
from support.blocks.realdata import RealBlock, real_block_cases
from support.matching import MINE, mine

ONE, TWO = (tx([TxIn(bytes([number]) * 32, 0)], [TxOut(number, MINE)]) for number in (1, 2))
READERS = pytest.mark.parametrize("read", ["stream_txs", "read_txs"])


def read_all(read: str, data: bytes, bad: Callable[[str], None] | None = None) -> list[bytes]:
    if read == "stream_txs":
        return list(stream_txs(io.BytesIO(data), bad))

    async def collect() -> list[bytes]:
        return [raw async for raw in read_txs(io.BytesIO(data), bad)]

    return asyncio.run(collect())


def line(raw: bytes) -> bytes:
    return raw.hex().encode() + b"\n"


@READERS
@pytest.mark.parametrize(
    "data",
    [
        line(ONE) + line(TWO),
        b"\n  " + line(ONE).upper().replace(b"\n", b" \r\n") + b"\t\n" + line(TWO)[:-1],
        b"\xef\xbb\xbf" + line(ONE) + line(TWO),
        json.dumps({"hex": ONE.hex()}).encode() + b"\n" + json.dumps({"id": 1, "rawtx": TWO.hex()}).encode(),
        b'{"label": "\xc3\xa9", "hex": "%s"}\n' % ONE.hex().encode() + line(TWO),
        gzip.compress(line(ONE) + line(TWO), mtime=0),
    ],
    ids=["hex", "blanks", "mark", "json", "utf-8", "gzip"],
)
def test_lines_of_every_form_are_transactions(read: str, data: bytes) -> None:
    assert read_all(read, data) == [ONE, TWO]


@READERS
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_bytes_of_one_transaction_are_that_transaction(read: str, pack: Callable[[bytes], bytes]) -> None:
    assert read_all(read, pack(ONE)) == [ONE]
    assert read_all(read, b"") == []


@READERS
@pytest.mark.parametrize(
    "form",
    [
        "0x%s",
        "0X%s\r",
        '"%s"',
        '{"result": "%s", "error": null, "id": 1}',
        '{"result": {"hex": "%s", "size": 5}, "error": null}',
        '{\n  "hex": "%s"\n}',
        '{\n  "result": {\n    "hex": "%s"\n  },\n  "error": null\n}\n',
    ],
)
def test_transaction_may_have_the_form_of_other_tools(read: str, form: str) -> None:
    assert read_all(read, (form % ONE.hex()).encode()) == [ONE]


@READERS
def test_list_of_transactions_is_read(read: str) -> None:
    for indent in (None, 2):
        data = json.dumps([ONE.hex(), {"hex": TWO.hex()}], indent=indent).encode()
        assert read_all(read, data) == [ONE, TWO]


BAD = [
    (b"zz", "character 1 is not a hex digit"),
    (ONE.hex().encode() + b"x", f"character {2 * len(ONE) + 1} is not a hex digit"),
    (ONE.hex().encode()[:-1], f"an odd number of hex digits: {2 * len(ONE) - 1}"),
    (ONE.hex().encode()[:-2], "not a transaction: lock time at byte"),
    (ONE.hex().encode() + b"00", "not a transaction: transaction at byte"),
    (ONE[:32].hex().encode(), "32 bytes: this may be a txid, but it is not the transaction itself"),
    (block_of(GENESIS, 5, [ONE]).hex().encode(), "a block, not a transaction"),
    (b"70736274ff0100", "a partially signed transaction (PSBT): finalize it first, and pass its hex"),
    (b"cHNidP8BAHUCAAAA", "a partially signed transaction (PSBT): finalize it first, and pass its hex"),
    (b"{", "not a JSON object on one line (`jq -c` prints objects that way)"),
    (b'{"hex": ' + b"[" * 100_000, "not a JSON object on one line (`jq -c` prints objects that way)"),
    (b'{"hex": ' + b"1" * 10_000 + b"}", "not a JSON object on one line (`jq -c` prints objects that way)"),
    (b'{"hex": "\xff"}', "not a JSON object on one line (`jq -c` prints objects that way)"),
    (b'{"txid": "00"}', "a JSON object without a hex or rawtx"),
    (b'{"hex": 5}', "the transaction in the JSON object is not a string of hex digits"),
    (b'{"result": null, "error": {"code": -5, "message": "No such"}, "id": 1}', "a node's answer with error -5"),
    (b'{"result": null, "error": {}}', "a node's answer with error None"),
    (b"[5]", "the transaction in the JSON object is not a string of hex digits"),
    (b"[", "not a JSON list"),
    (b'{"hex": "\\u00e9"}', "character 1 is not a hex digit"),
    (b"\x01\x02", "character 1 is not a hex digit"),
]


@READERS
@pytest.mark.parametrize(("wrong", "problem"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_bad_line_is_reported_by_number_and_skipped(read: str, wrong: bytes, problem: str) -> None:
    bad: list[str] = []
    data = line(ONE) + b"\n" + wrong + b"\n" + line(TWO)
    assert read_all(read, data, bad.append) == [ONE, TWO]
    (told,) = bad
    assert told.startswith(f"line 3: {problem}")
    assert len(told) < 200
    with pytest.raises(FormatError) as caught:
        read_all(read, data)
    assert caught.value.message == told
    assert data[caught.value.offset :].startswith(wrong)


@READERS
def test_bytes_that_are_no_transaction_are_refused(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bad: list[str] = []
    assert read_all(read, ONE[:-1], bad.append) == []
    assert bad[0].startswith("not a transaction: lock time at byte")
    with pytest.raises(SourceError, match="these are mainnet blocks, not transactions"):
        read_all(read, MAINNET.magic + bytes(100), bad.append)
    with pytest.raises(SourceError, match="the compressed stream is damaged or cut off"):
        read_all(read, gzip.compress(line(ONE))[:-10], bad.append)
    monkeypatch.setattr(txlines, "MAX_BLOCK_SIZE", 50)
    with pytest.raises(FormatError, match="more than 50 bytes, too long for a transaction"):
        read_all(read, b"\x02\x00\x00\x00" + bytes(100))


@READERS
def test_long_line_is_skipped_in_constant_memory(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txlines, "MAX_TX_LINE", 1_000)
    bad: list[str] = []
    data = line(ONE) + b"0" * 10_001 + b"\n" + line(TWO) + b"0" * 1_001
    assert read_all(read, data, bad.append) == [ONE, TWO]
    assert bad == ["line 2: longer than 1,000 bytes", "line 4: longer than 1,000 bytes"]
    fits = ONE.hex().encode().ljust(999) + b"\n"
    assert read_all(read, fits) == [ONE]


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_line_on_a_pipe_is_given_at_once(end: bytes) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream, open(writing, "wb", buffering=0) as pipe:  # noqa: ASYNC230, PTH123
        found = Matcher(mine()).match_txs(read_txs(stream))
        async with asyncio.timeout(30):
            for raw in (ONE, TWO):
                waiting = asyncio.ensure_future(anext(found))
                await asyncio.sleep(0.01)
                assert not waiting.done()
                pipe.write(line(raw))
                assert (await waiting).raw == raw
            pipe.write(line(ONE)[:-1] + end)
            pipe.close()
            assert (await anext(found)).raw == ONE
            with pytest.raises(StopAsyncIteration):
                await anext(found)


@pytest.mark.few(10)
@real_block_cases()
async def test_transactions_of_real_blocks_are_read_back(block: RealBlock) -> None:
    txs = [block.raw[span.start : span.end] for span in walk_block(block.raw)]
    data = b"".join(map(line, txs))
    assert list(stream_txs(io.BytesIO(data))) == txs
    assert [raw async for raw in read_txs(io.BytesIO(data))] == txs


async def test_thread_reads_only_so_far_ahead() -> None:
    taken = 0

    def items() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield b"0123456789"

    ahead = pull_ahead(items(), len, 50)
    assert await anext(ahead) == b"0123456789"
    await asyncio.sleep(0.05)
    assert taken <= 1 + 5 + 5  # the taken lines, and as many read ahead
    assert len([item async for item in ahead]) == 99


async def test_thread_that_reads_ahead_ends_with_the_generator() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"0"

    before = threading.active_count()
    ahead = pull_ahead(endless(), len, 50)
    await anext(ahead)
    await ahead.aclose()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert threading.active_count() <= before


async def test_error_is_raised_after_the_earlier_items() -> None:
    def failing() -> Iterator[bytes]:
        yield b"0"
        raise OSError("the disk")

    found = []
    with pytest.raises(OSError, match="the disk"):
        async for item in pull_ahead(failing(), len):
            found.append(item)  # noqa: PERF401
    assert found == [b"0"]
