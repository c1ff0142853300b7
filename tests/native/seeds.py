"""Writes the seeds of one fuzz target into a folder: real blocks, transactions cut from them, published transactions
and addresses.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

from spvfilter.kernel import EntryKind, Hit, TxSpan
from spvfilter.kernel.pure import blocks as pure
from spvfilter.kernel.pure.gcs import gcs_build
from spvfilter.kernel.pure.headers import index_headers
from spvfilter.kernel.pure.packed import pack_hits
from spvfilter.primitives import script_pushes

LARGEST = 8_000  # bytes: beyond it a run takes too long to be worth it
random.seed(20090103)  # the same seeds every time


def blocks(vectors: Path) -> Iterator[bytes]:
    """Every real block, the small ones first."""
    for path in sorted((vectors / "03_blocks").glob("*.blk")):
        raw, at = path.read_bytes(), 0
        while at < len(raw):
            end = at + 8 + int.from_bytes(raw[at + 4 : at + 8], "little")
            yield raw[at + 8 : end]
            at = end
    for path in sorted((vectors / "03_blocks").glob("*.raw"), key=lambda path: path.stat().st_size):
        yield path.read_bytes()


def small_blocks(vectors: Path) -> list[bytes]:
    """Real blocks: all with more than a coinbase, and some of the others."""
    small = [raw for raw in blocks(vectors) if len(raw) <= LARGEST]
    return [raw for number, raw in enumerate(small) if number % 50 == 0 or raw[80] > 1]


def transactions(vectors: Path) -> list[bytes]:
    """Some transactions of each real block, and published ones."""
    cut = []
    for raw in blocks(vectors):
        spans = list(pure.walk_block(raw))
        if len(spans) > 1:
            cut += [raw[tx.start : tx.end] for tx in random.sample(spans, min(len(spans), 12))]
    for name in ("core_tx_valid", "core_tx_invalid", "real_transactions", "taproot_reference"):
        cut += [
            bytes.fromhex(case["raw"])
            for case in json.loads((vectors / f"07_transactions/{name}.json").read_text())["vectors"]
        ]
    return [raw for raw in cut if len(raw) <= LARGEST]


def scripts(raw: bytes, tx: TxSpan) -> list[tuple[int, int]]:
    return [(start, end) for _, start, end in [*tx.inputs, *tx.outputs]]


def multisigs() -> Iterator[bytes]:
    """Bare multisig scripts with keys of both sizes, pushed in every way, and scripts that almost are bare multisig."""
    ways: list[Callable[[bytes], bytes]] = [
        lambda key: bytes([len(key)]) + key,
        lambda key: b"\x4c" + bytes([len(key)]) + key,
        lambda key: b"\x4d" + len(key).to_bytes(2, "little") + key,
        lambda key: b"\x4e" + len(key).to_bytes(4, "little") + key,
    ]
    firsts = {2: 32, 3: 32, 4: 64, 6: 64, 7: 64, 5: 64, 1: 32}
    for count in (1, 2, 3, 15, 16, 17):
        for required, claimed in (
            (1, count),
            (count, count),
            (count + 1, count),
            (1, count - 1),
            (0, count),
            (1, count + 1),
        ):
            keys = [(first := random.choice(list(firsts)[:5]), random.randbytes(firsts[first])) for _ in range(count)]
            for way in ways:
                pushes = b"".join(way(bytes([first]) + rest) for first, rest in keys)
                yield bytes([0x50 + required]) + pushes + bytes([0x50 + claimed, 0xAE])
    for first, size in firsts.items():
        for way in ways:
            yield (multisig := b"\x51" + way(bytes([first]) + random.randbytes(size)) + b"\x51\xae")
            yield multisig[:-1]
            yield multisig + b"\x61"
            yield multisig[1:-2] + b"\xac"  # P2PK, if pushed in the shortest way


def parse(vectors: Path) -> Iterator[bytes]:
    yield from multisigs()
    yield from small_blocks(vectors)
    for raw in transactions(vectors):
        yield raw
        yield from (raw[start:end] for start, end in random.sample(scripts(raw, pure.parse_tx(raw)), 1))


def picks(raw: bytes, txs: list[TxSpan]) -> bytes:
    """Elements of some transactions, as (offset, length): outpoints and pushes."""
    places = [(at, 36) for tx in txs for at, _, _ in tx.inputs]
    for start, end in (script for tx in txs for script in scripts(raw, tx)):
        places += [(raw.index(push, start), len(push)) for push in script_pushes(raw[start:end]) if len(push) < 256]
    chosen = random.sample(places, min(len(places), random.choice((0, 1, 1, 2, 5))))
    return bytes([len(chosen)]) + b"".join(at.to_bytes(3, "little") + bytes([length]) for at, length in chosen)


def bip37(vectors: Path) -> Iterator[bytes]:
    for alone, raws in ((0, small_blocks(vectors)), (1, transactions(vectors))):
        for raw in raws:
            txs = [pure.parse_tx(raw)] if alone else list(pure.walk_block(raw))
            flags, funcs, size = random.randrange(3), random.randrange(1, 51), random.choice((1, 3, 64, 1000, 4096))
            fill = random.choice((None, None, 0x55, 0xFF))
            kind = alone | flags << 1 | (fill is not None) << 3
            head = bytes([kind, funcs]) + size.to_bytes(2, "little") + random.randbytes(4) + bytes([fill or 0])
            yield head + picks(raw, txs) + raw


def watched(raw: bytes, start: int, tx: TxSpan) -> tuple[bytes, bytes]:
    """Entries and coins of a table, as fuzz/watch.c reads them, from one transaction of a block that begins at
    `start`.
    """
    places = [(EntryKind.SCRIPT, at, end) for _, at, end in tx.outputs] + [
        (EntryKind.OUTPOINT, at, at + 36) for at, _, _ in tx.inputs
    ]
    for at, end in scripts(raw, tx):
        for push in script_pushes(raw[at:end]):
            found, kind = raw.index(push, at), EntryKind.MULTISIG_KEY if len(push) in (33, 65) else EntryKind.DATA
            places.append((kind, found, found + len(push)))
    places = [(kind, at, end) for kind, at, end in places if end - at < 256]
    entries = random.sample(places, min(len(places), 3))
    coins = [(at, random.randrange(4), random.randrange(4)) for at, _, _ in tx.inputs[:1]]
    return (
        b"".join(bytes([kind]) + (start + at).to_bytes(3, "little") + bytes([end - at]) for kind, at, end in entries),
        b"".join((start + at).to_bytes(3, "little") + bytes([entry, known]) for at, entry, known in coins),
    )


def watch(vectors: Path) -> Iterator[bytes]:
    """Tables of scripts and coins of some transactions, then the blocks that hold them, in runs of up to three."""
    alone = 8
    small = small_blocks(vectors)
    runs = [(0, small[at : at + 3]) for at in range(0, len(small), 2)] + [
        (alone, [raw]) for raw in transactions(vectors)
    ]
    for kind, raws in runs:
        entries = coins = body = b""
        for raw in raws:
            body += len(raw).to_bytes(3, "little")
            txs = [pure.parse_tx(raw)] if kind else list(pure.walk_block(raw))
            for tx in random.sample(txs, min(3, len(txs))):
                more_entries, more_coins = watched(raw, len(body), tx)
                entries += more_entries
                coins += more_coins
            body += raw
        yield bytes([kind | random.randrange(8), len(entries) // 5]) + entries + bytes([len(coins) // 5]) + coins + body


def image(vectors: Path) -> Iterator[bytes]:
    """Tables of scripts of a block, damage to their image, then the block."""
    for raw in small_blocks(vectors):
        txs = list(pure.walk_block(raw))
        entries = b"".join(watched(raw, 0, tx)[0] for tx in random.sample(txs, min(9, len(txs))))
        edits = b"".join(
            random.randrange(1 << 11).to_bytes(3, "little")
            + bytes([random.choice((0, 1, 0xFF, random.randrange(256)))])
            for _ in range(random.choice((0, 1, 5, 60)))
        )
        yield bytes([len(entries) // 5]) + entries + bytes([len(edits) // 4]) + edits + raw


def bits(vectors: Path) -> Iterator[bytes]:
    """Every kind of filter, with random operations on it; the vectors are not used."""
    for kind in range(256):
        cells = random.choice((0, 1, 7, 64, 300, 1_000, 4_999))
        seed = (
            bytes([kind, random.choice((0, 1, 3, 7, 20, 33, 40))]) + cells.to_bytes(2, "little") + random.randbytes(16)
        )
        for _ in range(12):
            operation, size, count = random.randrange(5), random.randrange(40), random.randrange(20)
            seed += bytes([operation, size, count]) + random.randbytes(size if operation < 3 else size * count)
        yield seed


def merkleblock(vectors: Path) -> Iterator[bytes]:
    """Real and published proofs, sound and not, proofs of whole blocks and of parts, and trees of few different
    hashes.
    """
    cases = json.loads((vectors / "02_bip37/merkleblock_proofs.json").read_text())["vectors"]
    payloads = [raw[80:] for raw in (bytes.fromhex(case["merkleblock"]) for case in cases) if 84 < len(raw) <= LARGEST]
    cases = json.loads((vectors / "02_bip37/partial_merkle_trees.json").read_text())["vectors"]
    payloads += [bytes.fromhex(case["partial_merkle_tree"]) for case in cases]
    made, right_root, few_hashes = 1, 2, 4
    for payload in payloads:
        yield bytes([random.choice((0, right_root))]) + payload
    for _ in range(100):
        leaves = random.randrange(1, 40)
        flags = random.choice((b"\xff" * ((2 * leaves + 20) // 8), random.randbytes(4), b"\x01"))
        tree = (
            leaves.to_bytes(4, "little") + bytes([leaves]) + random.randbytes(32 * leaves) + bytes([len(flags)]) + flags
        )
        yield bytes([random.choice((0, right_root, few_hashes, right_root | few_hashes))]) + tree
    for size in [*range(1, 10)] * 4:
        marks = random.choice((bytes, lambda size: b"\xff" * size, random.randbytes))(size)
        yield bytes([made | random.randrange(8) << 5]) + marks
    for node in transactions_of_64_bytes():
        yield bytes([right_root]) + (2).to_bytes(4, "little") + b"\x02" + node + b"\x01\x07"


def transactions_of_64_bytes() -> Iterator[bytes]:
    """Inner nodes that parse as a transaction, with an output or without any, and some that miss it by a byte."""
    head = random.randbytes(4) + b"\x01" + random.randbytes(36)
    for script_sig in range(15):
        for outputs, script in ((1, 4 - script_sig), (1, 5 - script_sig), (0, 0)):
            node = (
                head
                + bytes([script_sig])
                + bytes(script_sig + 4)
                + bytes([outputs])
                + bytes(8)
                + bytes([max(script, 0)])
            )
            yield node.ljust(64, b"\x00")[:64]


def address(vectors: Path) -> Iterator[bytes]:
    """Published addresses, valid and not, alone and as labelled lines, and payloads to encode."""
    texts: list[str] = []
    for name in ("valid", "invalid", "segwit_addresses", "bech32_strings"):
        cases = json.loads((vectors / f"05_addresses/{name}.json").read_text())["vectors"]
        texts += [str(case.get("address", case.get("string"))) for case in cases]
    texts += ["bc1", "BC1", "tb1", "bcrt1", "bc1q", "bc", "1", "bc1gmk9yu", "bc1qqqqqq"]
    for number, text in enumerate(texts):
        for network in range(3):
            yield bytes([network]) + text.encode()
        yield (
            bytes([number % 3])
            + "".join(f"{line},label {at}é\n" for at, line in enumerate(texts[number : number + 5])).encode()
        )
        yield bytes([number % 3, number]) + random.randbytes(40)
    for number in range(120):  # P2PKH and P2SH addresses with every character
        yield bytes([number % 3, 17 + number % 2]) + random.randbytes(40)


def set_with_items(p: int, m: int, key: bytes, items: list[bytes], data: bytes) -> bytes:
    asked = [item for item in items if len(item) < 256][:255]
    head = bytes([p - 1]) + m.to_bytes(4, "little") + key + bytes([len(asked)])
    return head + b"".join(bytes([len(item)]) + item for item in asked) + data


def gcs(vectors: Path) -> Iterator[bytes]:
    """Filters of real blocks with scripts that are in them and scripts that are not, and sets with other parameters."""
    for case in json.loads((vectors / "04_bip158/real_blocks.json").read_text())["vectors"]:
        items = [bytes.fromhex(item) for item in case["match"][:10] + case["no_match"][:10]]
        data = bytes.fromhex(case["filter"])
        if len(data) <= LARGEST:
            yield set_with_items(19, 784_931, bytes.fromhex(case["key"]), items, data)
    for _ in range(200):
        p, items = (
            random.randrange(1, 33),
            [random.randbytes(random.choice((0, 1, 20, 25, 34, 200))) for _ in range(random.randrange(20))],
        )
        m, key = random.choice((1, (1 << p) - 1, min((1 << p) * 3 // 2, (1 << 32) - 1))), random.randbytes(16)
        yield set_with_items(p, m, key, random.sample(items, len(items) // 2), gcs_build(items, key, p, m))


def headers(vectors: Path) -> Iterator[bytes]:
    """Runs of headers that keep the rules, and that miss them by a little; indexes, whole and damaged. The vectors are
    not used.
    """
    for number in range(240):
        odd = random.choice((0, 0, 0, 20))  # headers of 100
        late_by, run = random.choice((0, 50, 100)), b""
        for _ in range(random.choice((1, 3, 12, 40, 120))):
            flags = (
                4
                | (32 if random.random() < 0.1 else 0)
                | (1 << random.randrange(6) if random.randrange(100) < odd else 0)
            )
            run += bytes([flags, random.choice((1, 5, 30, 250)), random.randrange(256)])
        yield bytes([number & 0xFD, late_by]) + run
    for _ in range(40):
        hashes = [random.randbytes(32) for _ in range(random.randrange(1, 60))]
        raw = b"".join(bytes(4) + before + bytes(44) for before in [bytes(32), *hashes[:-1]])
        index = index_headers(raw, hashes[-1])
        yield bytes([2, 0]) + index
        yield bytes([2, len(hashes)]) + index + index
        yield bytes([2, 0]) + bytes(byte ^ (random.random() < 0.02) for byte in index)


def framed(path: Path, tail: int) -> list[bytes]:
    """The records of a file of a real regtest node, each with `tail` bytes after its size."""
    raw, at, found = path.read_bytes(), 0, []
    while raw[at : at + 4] == bytes.fromhex("fabfb5da"):
        end = at + 8 + int.from_bytes(raw[at + 4 : at + 8], "little") + tail
        found.append(raw[at + 8 : end])
        at = end
    return found


def undo(vectors: Path) -> Iterator[bytes]:
    """A real node's records that spend something, alone and with their blocks, and made ones of every kind of script
    and number.
    """
    by_previous: dict[bytes, list[bytes]] = {}
    for raw in framed(vectors / "12_undo/blk00000.dat", 0):
        by_previous.setdefault(raw[4:36], []).append(raw)
    for record in framed(vectors / "12_undo/rev00000.dat", 32):
        body, check = record[:-32], record[-32:]
        if body == b"\0" or len(body) > LARGEST:
            continue
        yield bytes(4) + body
        for previous, raws in by_previous.items():
            if sha256(sha256(previous + body).digest()).digest() == check:
                yield from (b"\1" + len(raw).to_bytes(3, "little") + raw + body for raw in raws)
    for _ in range(300):
        coins = [random_coin() for _ in range(random.randrange(4))]
        yield bytes(4) + b"\1" + bytes([len(coins)]) + b"".join(coins)


def random_coin() -> bytes:
    numbers = (
        b"\0",
        b"\x7f",
        b"\x80\0",
        b"\xfe\x7f",
        b"\xff\0",
        b"\x82\xfe\x7f",
        b"\x8e\xfe\xfe\xff\0",
        b"\x8e\xfe\xfe\xfe\x7f",
    )
    code = random.choice((b"\0", b"\1", *numbers))
    version = b"" if code in (b"\0", b"\1") else random.choice(numbers)
    kind = random.randrange(12)
    return (
        code
        + version
        + random.choice((*numbers, b"\x09", b"\x32"))
        + bytes([kind])
        + random.randbytes((20, 20, 32, 32, 32, 32, 0, 1, 2, 3, 4, 5)[kind])
    )


def packed(vectors: Path) -> Iterator[bytes]:
    """Packed hits of every kind of script, few entries and many, whole and damaged. The vectors are not used."""
    for number in range(400):
        hits, entries = [], random.choice((1, 5, 70, 2**31 - 1))
        for _ in range(random.choice((1, 2, 3, 70, 150)) if number % 8 == 0 else random.randrange(4)):
            spend, txid, n = random.random() < 0.5, random.randbytes(32), random.choice((0, 1, 2**32 - 1))
            size = random.choice((2, 19, 20, 32, 40, 41))
            program = bytes([random.choice((0, 0x50, 0x51, 0x60, 0x61)), size]) + random.randbytes(size)
            base58 = random.choice((b"\x76\xa9\x14%b\x88\xac", b"\xa9\x14%b\x87")) % random.randbytes(20)
            script = random.choice((None, b"", b"\x6a", random.randbytes(70), program, program, base58, base58))
            value, fee = (random.choice((-1, 0, 5_000, 2**63 - 1)) for _ in range(2))
            outpoint = random.randbytes(36) if spend else txid + n.to_bytes(4, "little")
            hits.append(
                Hit(spend, random.randrange(2), txid, n, outpoint, value, script, random.randrange(entries), fee)
            )
        raw = bytearray([random.randrange(256)]) + pack_hits(hits)
        yield bytes(raw)
        if number % 2 and len(raw) > 1:
            raw[random.randrange(1, len(raw))] ^= 1 << random.randrange(8)
            yield bytes(raw[: random.choice((len(raw), random.randrange(1, len(raw) + 1)))])


def varint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*groups, number))


def thrift_value(kind: int, deep: int, *, within: bool = False) -> bytes:
    """A random value of a type in Thrift's compact protocol."""
    inner = random.choice((1, 2, 3, 4, 5, 6, 7, 8, *((9, 10, 11, 12) if deep < 17 else ())))
    count = random.choice((0, 1, 2, 15, 16)) if deep < 2 else random.randrange(2)
    match kind:
        case 1 | 2:
            return bytes((kind,)) if within else b""
        case 3:
            return random.randbytes(1)
        case 4 | 5 | 6:
            return varint(random.choice((0, 127, 128, 2**32, 2**64 - 1)))
        case 7:
            return random.randbytes(8)
        case 8:
            text = random.randbytes(random.choice((0, 1, 130)))
            return varint(len(text)) + text
        case 9 | 10:
            head = bytes((count << 4 | inner,)) if count < 15 else bytes((0xF0 | inner,)) + varint(count)
            return head + b"".join(thrift_value(inner, deep + 1, within=True) for _ in range(count))
        case 11:
            kinds = bytes((inner << 4 | 8,)) if count else b""
            items = (thrift_value(each, deep + 1, within=True) for _ in range(count) for each in (inner, 8))
            return varint(count) + kinds + b"".join(items)
        case _:
            fields = [random.choice((b"", varint(9))) for _ in range(count)]
            heads = [bytes((inner | (0 if long else 0x10),)) + long for long in fields]
            return b"".join(head + thrift_value(inner, deep + 1) for head in heads) + b"\0"


def thrift(vectors: Path) -> Iterator[bytes]:
    """Values of every type, shallow and deep, whole and damaged. The vectors are not used."""
    for number in range(600):
        kind, start = random.choice((*range(1, 13), 9, 11, 12, 12)), random.choice((0, 0, 1, 15))
        raw = bytearray(bytes((start << 4 | kind,)) + bytes(start) + thrift_value(kind, 0))
        if len(raw) > 4_000:
            continue
        yield bytes(raw)
        if number % 2 and len(raw) > 1:
            raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
            yield bytes(raw[: random.choice((len(raw), random.randrange(1, len(raw) + 1)))])
    for depth in (16, 17, 18):
        for level in (b"\x1c", b"\x19"):  # fields of structs, and lists of lists
            kind = 12 if level == b"\x1c" else 9
            yield bytes((kind,)) + level * (depth - 1) + b"\0" * depth


def columnlines(vectors: Path) -> Iterator[bytes]:
    """Columns of every layout, most of which fit their rows. The vectors are not used."""
    widths = (8, 32, 64, 1, 256)  # bits of a value of the layouts without offsets
    for number in range(400):
        rows, count = random.randrange(40), random.randrange(7)
        raw = bytearray((random.randrange(2) | rows << 1, count))
        for _ in range(count):
            layout, flags, name = random.randrange(7), random.choice((0, 1, 1)), random.choice((b"", b"fee", b'a"\\\t'))
            if number % 5 == 0:
                flags |= random.choice((0, 2, 4))
            validity = random.randbytes((rows + 7) // 8 - (flags >> 1 & 1 if rows else 0)) if flags & 1 else b""
            if layout < 5:
                offsets, data = b"", random.randbytes((rows * widths[layout] + 7) // 8)
            else:
                texts = [random.choice((b"", b"plain", b'a,"b"', b"\r\n\0\x1f\\", b"\xc3\xa4")) for _ in range(rows)]
                ends = [0, *accumulate(map(len, texts))]
                offsets = b"".join(end.to_bytes(4, "little") for end in ends)[: 4 * rows + 4 - (flags >> 2 & 1)]
                data = b"".join(texts)
            raw += (
                bytes((layout, flags, len(name))) + len(data).to_bytes(2, "little") + name + validity + offsets + data
            )
        yield bytes(raw)
        if number % 3 == 0:
            raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
            yield bytes(raw[: random.choice((len(raw), random.randrange(1, len(raw) + 1)))])


TARGETS: dict[str, Callable[[Path], Iterator[bytes]]] = {
    seeds.__name__: seeds
    for seeds in (
        *(address, bip37, bits, columnlines, gcs, headers, image),
        *(merkleblock, packed, parse, thrift, undo, watch),
    )
}

if __name__ == "__main__":
    name, vectors, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    for seed in TARGETS[name](vectors):
        (folder / sha256(seed).hexdigest()[:20]).write_bytes(seed)
