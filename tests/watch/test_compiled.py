"""Compiled watch lists: they have all that the text list has, and every damage has its own error."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from spvfilter.errors import InexpressibleError, ParameterError, SpvFilterError, WatchFileError
from spvfilter.kernel import EntryKind, ScriptType
from spvfilter.network import MAINNET, REGTEST, Network
from spvfilter.primitives import OutPoint
from spvfilter.scan.linelabels import labels_digest
from spvfilter.scan.manifest import table_digest
from spvfilter.watch import compiled, textfile
from spvfilter.watch.compiled import ImagePlace, ReplacedListError, verify
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.vectors import effort

LABELS = (None, None, "savings", "Müller, café", "x" * 300, "日本")
ADDRESS = "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"
ALIGNED = 64
HEADER = struct.calcsize("<8sIIQQQQ16x")
KEY = range(HEADER + 128, HEADER + 192)  # another key may give the same index


def random_list(seed: int, network: Network = MAINNET) -> WatchList:
    """A list with every kind of entry, labels, accounts and learned outpoints."""
    rng, watch = random.Random(seed), WatchList(network)
    makers = [build.p2pkh, build.p2sh, build.p2wpkh]
    scripts = [rng.choice(makers)(rng.randbytes(20)) for _ in range(rng.randrange(1, 60))]
    for script in scripts:
        with watch.within_account(rng.choice((None, None, "Alice", "Bob & Söhne"))):
            watch.add_script(script, rng.choice(LABELS))
    for _ in range(rng.randrange(8)):
        label = rng.choice(LABELS)
        match rng.choice(list(EntryKind)):
            case EntryKind.SCRIPT:
                watch.add_script(rng.randbytes(rng.choice((1, 16, 41, 62, 63, 600))), label)
            case EntryKind.MULTISIG_KEY:
                watch.add_pubkey(rng.choice((b"\2", b"\3")) + rng.randbytes(32), label)
            case EntryKind.DATA:
                watch.add_data(rng.randbytes(rng.choice((1, 20, 65, 300))), label)
            case EntryKind.OUTPOINT:
                point = OutPoint.parse(rng.randbytes(36))
                value, paid = rng.choice((None, 7)), rng.choice((None, scripts[0], b"\x51\x52"))
                watch.add_outpoint(point, label, value=value, script_pubkey=paid)
            case EntryKind.DATA_PREFIX:
                watch.add_data_prefix(rng.randbytes(rng.randint(1, 64)), label)
            case EntryKind.SCRIPT_TYPE:
                watch.add_script_type(rng.choice(list(ScriptType)).name.lower(), label)
    watch.match_tx(build.tx([build.TxIn(rng.randbytes(32), 0)], [build.TxOut(5, rng.choice(scripts))]))
    return watch


def compiled_file(watch: WatchList, folder: Path) -> Path:
    path = folder / "list.spvwl"
    watch.compile(path)
    return path


def sealed(raw: bytes | bytearray) -> bytes:
    """The bytes of a file with the digest that belongs to them."""
    return bytes(raw[:-32]) + sha256(raw[:-32]).digest()


def elements(watch: WatchList) -> list[object]:
    """The elements of filters, or the errors of entries that they cannot find."""
    found: list[object] = []
    for made in (watch.bloom_elements, watch.gcs_elements):
        try:
            found.append(made())
        except InexpressibleError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("seed", range(effort(10, 40, 300)))
def test_a_compiled_list_equals_the_text_list(seed: int, tmp_path: Path) -> None:
    network = (MAINNET, REGTEST, Network.signet("51"))[seed % 3]
    watch, text = random_list(seed, network), tmp_path / "list.txt"
    watch.save(text)
    plain = WatchList.load(text, network)
    path = compiled_file(plain, tmp_path)
    mapped = WatchList.load(path, network)
    assert mapped == plain
    assert list(mapped.entries()) == list(plain.entries())
    assert mapped.accounts == plain.accounts
    assert mapped.index.labels_by_entry() == plain.index.labels_by_entry()
    assert mapped.index.accounts_by_entry() == plain.index.accounts_by_entry()
    assert table_digest(mapped.table) == table_digest(plain.table)
    assert verify(path) == len(plain)
    assert elements(mapped) == elements(plain)
    rng = random.Random(seed)
    scripts = [*plain.script_pubkeys()]
    inputs = [build.TxIn(bytes(point)[:32], int.from_bytes(bytes(point)[32:], "little")) for point in plain.outpoints()]
    tx = build.tx(inputs or [build.TxIn(bytes(32), 1)], [build.TxOut(9, rng.choice(scripts)) for _ in range(5)])
    assert mapped.copy().match_tx(tx) == plain.copy().match_tx(tx)
    for each in (mapped, plain):
        each.match_tx(tx)
        each.add_script(b"\x51\x53", "a new label")
        each.relabel(0, None)
        each.relabel(len(each) - 1, "another label")
    assert mapped == plain == pickle.loads(pickle.dumps(mapped)) == mapped.copy()
    again, other = tmp_path / "again.txt", tmp_path / "other.txt"
    mapped.save(again)
    plain.save(other)
    assert again.read_bytes() == other.read_bytes()
    assert verify(compiled_file(mapped, tmp_path)) == len(plain)
    assert WatchList.load(path, network) == plain


def test_entries_are_removed_from_a_compiled_list(tmp_path: Path) -> None:
    watch = random_list(5)
    mapped = WatchList.load(compiled_file(watch, tmp_path))
    for each in (mapped, watch):
        each.remove_account("Alice")
        each.index.disown(0)
    assert mapped == watch


def test_another_network_is_refused(tmp_path: Path) -> None:
    path = compiled_file(random_list(1, REGTEST), tmp_path)
    with pytest.raises(WatchFileError, match="this watch list is for regtest, not for mainnet: choose its network"):
        WatchList.load(path)


def test_a_list_with_a_keychain_is_not_compiled(tmp_path: Path) -> None:
    watch = WatchList()
    watch.add_keychain("own", lambda index: build.p2wpkh(index.to_bytes(20, "big")))
    with pytest.raises(ParameterError, match=r"are fixed, but the windows of 1 keychain move: take"):
        watch.compile(tmp_path / "list.spvwl")
    assert not list(tmp_path.iterdir())


def test_a_compiled_list_is_loaded_before_other_entries(tmp_path: Path) -> None:
    path, watch = compiled_file(random_list(1), tmp_path), WatchList()
    watch.add_address(ADDRESS)
    with pytest.raises(WatchFileError, match="must be loaded before other entries are added"):
        textfile.load(watch, path)


def test_patterns_are_refused_outside_a_scan(tmp_path: Path) -> None:
    watch = WatchList()
    watch.add_data_prefix(b"omni")
    with pytest.raises(WatchFileError, match="work only in `spvfilter scan`: build the list without them"):
        textfile.load(WatchList(), compiled_file(watch, tmp_path), allows_patterns=False)


@pytest.mark.parametrize("form", ["pipe", "gzip"])
def test_a_compiled_list_must_be_a_plain_file(form: str, tmp_path: Path) -> None:
    raw = compiled_file(random_list(1), tmp_path).read_bytes()
    with pytest.raises(WatchFileError, match="is mapped into memory: give the path of a regular file"):
        textfile.read_into(WatchList(), io.BytesIO(gzip.compress(raw) if form == "gzip" else raw), "standard input")


def test_a_cut_file_is_refused_at_every_length(tmp_path: Path) -> None:
    path = compiled_file(random_list(2), tmp_path)
    raw = path.read_bytes()
    for size in [*range(8, HEADER + 8), len(raw) - 33, len(raw) - 1]:
        path.write_bytes(raw[:size])
        with pytest.raises(WatchFileError, match="truncated"):
            WatchList.load(path)
    path.write_bytes(raw + b"\0")
    with pytest.raises(WatchFileError, match="truncated or damaged; rebuild it"):
        WatchList.load(path)


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (8, "<I", 2, "version at byte 8: unsupported version 2 \\(only version 1 is supported\\): rebuild the file"),
        (12, "<I", 0xFFFFFFFF, "the sizes of the sections do not match the size of the file"),
        (24, "<Q", 1 << 62, "the sizes of the sections do not match the size of the file"),
        (32, "<Q", 1 << 63, "the sizes of the sections do not match the size of the file"),
        (40, "<Q", (1 << 64) - 1, "the sizes of the sections do not match the size of the file"),
        (HEADER, "<Q", 0, "magic at byte 0: not the image of a watch table"),
        (
            HEADER + 8,
            ">I",
            struct.unpack("<I", struct.pack("=I", 0x01020304))[0],
            "made on a machine with a different byte order",
        ),
        (HEADER + 60, "=I", 0xFFFFFFF, "coin at byte"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path: Path, at: int, form: str, value: int, message: str) -> None:
    path = compiled_file(random_list(2), tmp_path)
    raw = bytearray(path.read_bytes())
    struct.pack_into(form, raw, at, value)
    path.write_bytes(sealed(raw))
    with pytest.raises(WatchFileError, match=message):
        WatchList.load(path)


def parts(raw: bytes) -> tuple[int, int, int]:
    """Offsets of the labels, the accounts and the network's name."""
    image, labels, accounts = struct.unpack_from("<QQQ", raw, 24)
    at = HEADER
    found = []
    for size in (image, labels, accounts):
        at += -(-size // ALIGNED) * ALIGNED
        found.append(at)
    return found[0], found[1], found[2]


def labelled(tmp_path: Path) -> tuple[Path, bytearray]:
    """The file of two labelled entries, one of them in an account, and its bytes."""
    watch = WatchList()
    watch.add_script(b"\x51\x51", "first")
    with watch.within_account("Alice"):
        watch.add_script(b"\x51\x52", "second")
    path = compiled_file(watch, tmp_path)
    return path, bytearray(path.read_bytes())


@pytest.mark.parametrize(
    ("part", "at", "form", "value", "message"),
    [
        (0, 0, "=I", 1 << 30, "labels at byte 0: truncated"),
        (0, 0, "=I", 1, "labels at byte 4: the entries or texts are out of order"),
        (0, 4, "=I", 1, "labels at byte 4: the entries or texts are out of order"),
        (0, 8, "=I", 2, "labels at byte 4: the entries or texts are out of order"),
        (0, 12, "=I", 0, "labels at byte 4: the entries or texts are out of order"),
        (0, 12, "=I", 11, "labels at byte 4: the entries or texts are out of order"),
        (0, 16, "=I", 10, "labels at byte 4: the entries or texts are out of order"),
        (0, 16, "=I", 12, "labels at byte 4: the entries or texts are out of order"),
        (1, 0, "=I", 1 << 30, "accounts at byte .*: the names are damaged"),
        (1, 0, "=I", 0, "accounts at byte .*: (the names are damaged|the runs of entries are out of order)"),
        (1, 4, "=I", 1 << 30, "accounts at byte .*: the names are damaged"),
        (1, 8, "=B", 7, "accounts at byte .*: the names are damaged"),
        (1, 8, "=B", 0xFF, "accounts at byte .*: the names are damaged"),
        (1, 13, "=I", 2, "accounts at byte .*: the runs of entries are out of order"),
        (1, 17, "=I", 1 << 31, "accounts at byte .*: the runs of entries are out of order"),
        (1, 17, "=I", 0, "accounts at byte .*: the runs of entries are out of order"),
        (1, 21, "=I", 1, "accounts at byte .*: the runs of entries are out of order"),
        (2, 0, "=B", 0xFF, "network at byte .*: the name is not ASCII"),
        (2, 0, "=B", 0x21, "not for mainnet: choose its network"),
    ],
)
def test_damaged_labels_accounts_and_names_are_refused(
    tmp_path: Path, part: int, at: int, form: str, value: int, message: str
) -> None:
    path, raw = labelled(tmp_path)
    struct.pack_into(form, raw, parts(bytes(raw))[part] + at, value)
    path.write_bytes(sealed(raw))
    with pytest.raises(WatchFileError, match=message):
        WatchList.load(path)


@pytest.mark.parametrize(
    ("at", "form", "value", "shown"),
    [
        (20, "=B", 0x00, ["\ufffdirst", "second"]),
        (20, "=B", 0xFF, ["\ufffdirst", "second"]),
        (25, "=B", 0x00, ["first", "\ufffdecond"]),
    ],
)
def test_a_damaged_label_is_shown_without_its_fault(
    tmp_path: Path, at: int, form: str, value: int, shown: list[str | None]
) -> None:
    """Loading does not read the labels, but verify does."""
    path, raw = labelled(tmp_path)
    struct.pack_into(form, raw, parts(bytes(raw))[0] + at, value)
    path.write_bytes(sealed(raw))
    watch = WatchList.load(path)
    assert [watch.label(number) for number in range(2)] == watch.index.labels_by_entry() == shown
    with pytest.raises(WatchFileError, match=r"label at byte [01]: damaged"):
        verify(path)


def test_verify_finds_every_changed_byte(tmp_path: Path) -> None:
    path, raw = labelled(tmp_path)
    rng = random.Random(1)
    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(WatchFileError):
            verify(path)
        if HEADER <= at < parts(bytes(raw))[0] and at not in KEY:  # an attacker also writes the digest
            path.write_bytes(sealed(changed))
            with pytest.raises(WatchFileError):
                verify(path)


@pytest.mark.parametrize("seed", range(effort(40, 200, 5_000)))
def test_no_damage_ends_in_a_foreign_error(seed: int, tmp_path: Path) -> None:
    """The digest is right, as an attacker would write it."""
    path, rng = compiled_file(random_list(seed % 40), tmp_path), random.Random(seed)
    raw = bytearray(path.read_bytes())
    labels, accounts, network = parts(bytes(raw))
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(*rng.choice(((0, HEADER), (HEADER, labels), (labels, accounts), (accounts, network)))) & ~3
        struct.pack_into("=I", raw, at, rng.choice((0, 1, 2, 5, 60, rng.randrange(200), 0x7FFFFFFF, 0xFFFFFFFF)))
    path.write_bytes(sealed(raw))
    with suppress(SpvFilterError):
        verify(path)
    try:
        watch = WatchList.load(path)
    except WatchFileError:
        return
    uses: list[Callable[[], object]] = [
        *(
            watch.index.labels_by_entry,
            watch.index.accounts_by_entry,
            lambda: labels_digest(watch),
            lambda: table_digest(watch.table),
        ),
        *(lambda: watch.save(tmp_path / "saved"), lambda: watch.compile(tmp_path / "again"), watch.bloom_elements),
        *(watch.gcs_elements, lambda: pickle.loads(pickle.dumps(watch)), lambda: watch.copy() == watch),
        *(
            lambda: [watch.index.without_account(name) for name in watch.accounts],
            lambda: watch.index.without_entries([0]),
        ),
        *(lambda: watch.add_script(b"\x51\x53", "more"), watch.index.labels_by_entry),
    ]
    for use in uses:
        with suppress(SpvFilterError):
            use()


def test_hidden_entry_passes_a_load_but_not_verify(tmp_path: Path) -> None:
    path, raw = labelled(tmp_path)
    raw[HEADER + 192 : HEADER + 192 + 32] = bytes(32)  # the tags of the only group
    path.write_bytes(sealed(raw))
    watch = WatchList.load(path)
    assert len(watch) == 2
    assert b"\x51\x51" not in watch
    with pytest.raises(WatchFileError, match="it lacks the index of its entries"):
        verify(path)


def test_verify_refuses_another_file(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"{ADDRESS}\n")
    with pytest.raises(WatchFileError, match="not a compiled watch list: build one from this file first"):
        verify(path)


def test_a_small_file_is_read_and_may_change(tmp_path: Path) -> None:
    watch = random_list(3)
    path = compiled_file(watch, tmp_path)
    loaded = WatchList.load(path)
    path.write_bytes(b"")
    assert loaded == watch
    assert ImagePlace.of(loaded.table) is None
    compiled.check_unchanged(loaded.table)


def test_a_replaced_file_stays_valid_for_its_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "READ_BELOW", 0)
    watch = random_list(3)
    path = compiled_file(watch, tmp_path)
    mapped = WatchList.load(path)
    place = ImagePlace.of(mapped.table)
    assert place is not None
    assert list(place.open().entries()) == list(watch.table.entries())
    compiled_file(random_list(4), tmp_path)
    assert mapped == watch
    with pytest.raises(ReplacedListError, match=r"list\.spvwl was replaced"):
        place.open()
    path.unlink()
    with pytest.raises(ReplacedListError, match="cannot be read"):
        place.open()
    path.write_bytes(b"")
    with pytest.raises(ReplacedListError, match="cannot be read"):
        place.open()


def test_a_changed_table_has_no_place_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "READ_BELOW", 0)
    mapped = WatchList.load(compiled_file(random_list(3), tmp_path))
    assert ImagePlace.of(mapped.copy().table) is not None
    mapped.add_address(ADDRESS)
    assert ImagePlace.of(mapped.table) is None
    assert ImagePlace.of(random_list(3).table) is None
    assert bytes(compiled.image_of(mapped.table)[:8]) == b"SPVTABLE"
