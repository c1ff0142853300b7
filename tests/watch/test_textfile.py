"""The text file format of a watch list: the meaning of each line; no line is dropped, and saving loses nothing."""

from __future__ import annotations

import gzip
import io
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import WatchFileError
from spvfilter.network import MAINNET, REGTEST, Network
from spvfilter.primitives import OutPoint
from spvfilter.watch import textfile
from spvfilter.watch.descriptor.keys import secret_in
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut

ADDRESS, SCRIPT = (
    "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
    bytes.fromhex("0014751e76e8199196d454941c45d1b3a323f1433bd6"),
)
OTHER = "1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH"
KEY = bytes.fromhex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")
TXID = "ab" * 31 + "cd"
POINT = OutPoint.from_text(f"{TXID}:7")


def load(path: Path, content: str | bytes, network: Network = MAINNET) -> WatchList:
    path = path / "watch.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return WatchList.load(path, network)


def problems(path: Path, content: str | bytes, network: Network = MAINNET) -> dict[int, str]:
    with pytest.raises(WatchFileError) as caught:
        load(path, content, network)
    assert caught.value.path == str(path / "watch.txt")
    return dict(caught.value.problems)


def labels(watch: WatchList) -> list[str | None]:
    return [label for _, _, label in watch.entries()]


# Reading


def test_every_kind_of_line_is_read(tmp_path: Path) -> None:
    lines = [
        "# a comment",
        "",
        f"  {ADDRESS}  ",
        f"{OTHER},savings, old # not a comment",
        "script:51 # a comment",
        f"pubkey:{KEY.hex()} , Ünï ☃ ",
        "data:00FF,",
        f"outpoint:{TXID}:7,deposit",
        f"outpoint:{TXID}:8:5000:{SCRIPT.hex()}",
        f"outpoint:{TXID}:9::51",
        f"outpoint:{TXID}:10:5:",
        "   # another",
    ]
    expected = WatchList.from_addresses([ADDRESS, (OTHER, "savings, old # not a comment")])
    expected.add_script(b"\x51")
    expected.add_pubkey(KEY, "Ünï ☃")
    expected.add_data(b"\x00\xff")
    expected.add_outpoint(POINT, "deposit")
    expected.add_outpoint(f"{TXID}:8", value=5000, script_pubkey=SCRIPT)
    expected.add_outpoint(f"{TXID}:9", script_pubkey=b"\x51")
    expected.add_outpoint(f"{TXID}:10", value=5)
    for end in ("\n", "\r\n"):
        assert load(tmp_path, end.join(lines) + end) == expected
        assert load(tmp_path, end.join(lines)) == expected  # the last line may lack its end
    assert load(tmp_path, "\ufeff" + "\n".join(lines)) == expected


def test_only_the_first_line_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    assert load(tmp_path, f"\ufeff{ADDRESS}\n") == WatchList.from_addresses([ADDRESS])
    assert list(problems(tmp_path, f"{ADDRESS}\n\ufeff{ADDRESS}\n")) == [2]


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing\r\n", "\ufeff", " \t\n"])
def test_a_file_without_entries_is_an_empty_list(tmp_path: Path, content: str) -> None:
    assert len(load(tmp_path, content)) == 0


def test_outpoints_may_precede_their_scripts(tmp_path: Path) -> None:
    watch = load(tmp_path, f"outpoint:{TXID}:7:5000:{SCRIPT.hex()}\n{ADDRESS},savings\n")
    assert (len(watch), list(watch.outpoints())) == (1, [POINT])
    (match,) = watch.match_tx(build.tx([TxIn(POINT.txid, 7)], []))
    assert (match.label, match.value, match.address) == ("savings", 5000, ADDRESS)


BAD = [
    (",label", "the address is empty"),
    ("nonsense", "not an address"),
    (ADDRESS[:-1], "checksum"),
    ("tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx", "testnet3"),
    ("mipcBbFg9gMiCh81Kj8tqqdgoZub1ZJRfn", "testnet3"),
    ("script:", "empty script"),
    ("script:0", "not these 1 characters"),
    ("script:zz", "not these 2 characters"),
    ("pubkey:" + KEY.hex()[2:], "not a public key"),
    ("data:", "1 to 520 bytes"),
    ("data:" + "00" * 521, "1 to 520 bytes"),
    (f"outpoint:{TXID}", "not 2 parts"),
    (f"outpoint:{TXID}:7:", "not 4 parts"),
    (f"outpoint:{TXID}:7:1:51:", "not 6 parts"),
    (f"outpoint:{TXID}:-1", "an outpoint must be TXID:INDEX"),
    (f"outpoint:{TXID}:4294967296", "an output index must be from 0 to 4294967295"),
    (f"outpoint:{TXID[2:]}:7", "64 hex digits"),
    (f"outpoint:{TXID}:7:-5:", "the value of an outpoint must be a whole number"),
    (f"outpoint:{TXID}:7:1.5:", "the value of an outpoint must be a whole number"),
    (f"outpoint:{TXID}:7:9223372036854775808:", "value must be from 0 to 2^63 - 1 satoshi"),
    (f"outpoint:{TXID}:7:1:xx", "expected pairs of hex digits"),
    ("xpub:abc", "unknown kind"),
    ("Script:51", "unknown kind"),
    (f"{ADDRESS},a\x00b", "NUL"),
    (f"{ADDRESS} {OTHER}", "a space after an address"),
    (
        f"{ADDRESS},KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn",
        "the label contains a word that looks like a pri",
    ),
    ("script:51,my xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPG", "extended private key"),
]


@pytest.mark.parametrize(("line", "cause"), BAD)
def test_a_bad_line_raises_with_its_number_and_cause(tmp_path: Path, line: str, cause: str) -> None:
    (found,) = problems(tmp_path, f"{ADDRESS}\n# comment\n{line}\n{OTHER}\n").items()
    assert found[0] == 3
    assert cause in found[1]


def test_all_bad_lines_are_reported_in_their_order(tmp_path: Path) -> None:
    found = problems(tmp_path, "\r\n".join(line for line, _ in BAD))
    assert list(found) == list(range(1, len(BAD) + 1))
    assert all(cause in found[number] for number, (_, cause) in enumerate(BAD, 1))


def test_the_error_keeps_all_bad_lines_and_shows_some(tmp_path: Path) -> None:
    with pytest.raises(WatchFileError, match=r"100 bad lines: line 1: .*; line 20: .*; and 80 more$") as caught:
        load(tmp_path, "bad\n" * 100 + ADDRESS)
    assert len(caught.value.problems) == 100


def test_invalid_utf_8_is_reported(tmp_path: Path) -> None:
    found = problems(tmp_path, ADDRESS.encode() + b",caf\xe9\n" + OTHER.encode() + b"\nbad\n")
    assert list(found) == [1, 3]
    assert "not UTF-8" in found[1]
    assert "UTF-16" in problems(tmp_path, f"{ADDRESS}\n".encode("utf-16"))[0]


@pytest.mark.parametrize("extra", [0, 1, 2, 100, 1_000])
def test_an_overlong_line_is_reported_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr(textfile, "MAX_LINE", 100)
    assert len(load(tmp_path, "#" * 99 + "\n" + ADDRESS)) == 1
    found = problems(tmp_path, f"bad\n{'x' * (100 + extra)}\nbad\n{ADDRESS}\nbad")
    assert list(found) == [1, 2, 3, 5]
    assert "longer than 100 bytes" in found[2]


def test_a_line_may_have_a_script_of_block_size(tmp_path: Path) -> None:
    script = b"\x51" * 4_000_000
    watch = load(tmp_path, f"script:{script.hex()},large\n{ADDRESS}\n")
    assert labels(watch) == ["large", None]
    (found,) = problems(tmp_path, "0" * 20_000_000).values()
    assert "the line is longer than" in found


def test_a_file_of_another_network_is_refused_by_name(tmp_path: Path) -> None:
    watch = WatchList.from_addresses([ADDRESS])
    watch.save(tmp_path / "saved")
    with pytest.raises(WatchFileError, match="mainnet, not for regtest"):
        WatchList.load(tmp_path / "saved", REGTEST)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        WatchList.load(tmp_path / "none")


# Writing


def everything() -> WatchList:
    watch = WatchList.from_addresses([(ADDRESS, "# savings, 50 % ☃"), OTHER])
    watch.add_script(b"\x51", "anyone")
    watch.add_pubkey(b"\x04" + bytes(64), "old key")
    watch.add_data(b"data")
    watch.add_outpoint(POINT)
    watch.add_outpoint(f"{TXID}:8", "deposit", value=5_000, script_pubkey=SCRIPT)
    watch.match_tx(build.tx([TxIn(bytes(32), 0)], [TxOut(9, SCRIPT), TxOut(8, b"\x6a" + build.push(b"data"))]))
    return watch


def test_saving_and_loading_loses_nothing(tmp_path: Path) -> None:
    watch = everything()
    watch.save(tmp_path / "watch")
    loaded = WatchList.load(tmp_path / "watch")
    assert loaded == watch
    assert (len(list(loaded.outpoints())), len(loaded)) == (4, len(watch))
    loaded.save(str(tmp_path / "again"))
    assert WatchList.load(tmp_path / "again") == watch


def test_scripts_of_a_key_keep_their_own_labels(tmp_path: Path) -> None:
    watch = WatchList()
    watch.add_pubkey(KEY, "key")
    watch.add_address(ADDRESS, "address of the key")
    watch.save(tmp_path / "watch")
    assert WatchList.load(tmp_path / "watch") == watch


def test_an_outpoint_entry_stays_when_its_script_is_added(tmp_path: Path) -> None:
    funding = build.tx([TxIn(bytes(32), 0)], [TxOut(9, SCRIPT)])
    watch = WatchList()
    watch.add_outpoint(OutPoint(build.txid(funding), 0))
    watch.add_address(ADDRESS, "savings")
    watch.match_tx(funding)
    watch.save(tmp_path / "watch")
    assert WatchList.load(tmp_path / "watch") == watch


def test_an_empty_script_counts_as_an_unknown_one(tmp_path: Path) -> None:
    watch = WatchList()
    watch.add_outpoint(POINT, value=5, script_pubkey=b"")
    watch.save(tmp_path / "watch")
    assert WatchList.load(tmp_path / "watch") == watch


def test_a_list_that_met_absurd_values_can_be_loaded_again(tmp_path: Path) -> None:
    watch = WatchList.from_addresses([ADDRESS])
    watch.match_tx(build.tx([TxIn(bytes(32), 0)], [TxOut(value, SCRIPT) for value in (-(2**63), -2, -1, 0, 2**63 - 1)]))
    watch.save(tmp_path / "watch")
    assert WatchList.load(tmp_path / "watch") == watch


# A file is refused if a label looks like a private key, such as "xprv".
text = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=12).filter(
    lambda label: secret_in(label) is None
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["address", "script", "pubkey", "data", "outpoint", "match"]),
        st.integers(0, 5),
        st.none() | text,
        st.booleans(),
    ),
    max_size=15,
)


@given(steps)
def test_any_list_comes_back_from_its_file(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str | None, bool]]
) -> None:
    keys = [b"\x02" + bytes((n,)) * 32 for n in range(6)]
    seed = WatchList()
    for key in keys:
        seed.add_pubkey(key)
    scripts = list(seed.script_pubkeys())
    watch = WatchList()
    for kind, number, label, known in steps:
        script = scripts[4 * number + (2 if known else 1)]
        match kind:
            case "address" | "script":
                watch.add_script(script, label)
            case "pubkey":
                watch.add_pubkey(keys[number], label)
            case "data":
                watch.add_data(bytes((number + 1,)) * 4, label)
            case "outpoint":
                watch.add_outpoint(
                    f"{TXID}:{number}",
                    label,
                    **({"value": number, "script_pubkey": script} if known else {}),  # type: ignore[arg-type]
                )  # keywords of several types
            case "match":
                watch.match_tx(build.tx([TxIn(bytes((number,)) * 32, 0)], [TxOut(number, script)]))
    path = tmp_path_factory.mktemp("lists") / "watch"
    watch.save(path)
    assert WatchList.load(path) == watch


def test_only_the_owner_may_read_a_saved_file(tmp_path: Path) -> None:
    path = tmp_path / "watch"
    path.write_text("old")
    path.chmod(0o666)
    mask = os.umask(0)
    try:
        everything().save(path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["watch"]


def test_a_failed_save_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "watch"
    everything().save(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        WatchList().save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["watch"]


@pytest.mark.posix
def test_a_reader_of_the_old_file_is_not_disturbed(tmp_path: Path) -> None:
    path = tmp_path / "watch"
    everything().save(path)
    before = path.read_bytes()
    with path.open("rb") as reader:
        WatchList().save(path)
        assert reader.read() == before
    assert len(WatchList.load(path)) == 0


class CountingList(WatchList):
    """A watch list that counts the calls of its fast path."""

    calls = 0

    def add_address_lines(self, chunk: bytes, at: int) -> tuple[int, int]:
        self.calls += 1
        return super().add_address_lines(chunk, at)


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \t\n"])
def test_blank_lines_are_skipped_together(blank: bytes) -> None:
    watch = CountingList()
    data = blank * 100_000 + f"{ADDRESS}\n".encode() + blank * 100_000 + b"bad\n"
    with pytest.raises(WatchFileError, match="line 200002: "):
        textfile.read_into(watch, io.BytesIO(data), "list")
    assert len(watch) == 1
    assert watch.calls < 20


def test_compressed_lists_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile, "MAX_UNPACKED", 1_000_000)
    with pytest.raises(WatchFileError, match="exceeds 1,000,000 bytes when decompressed"):
        textfile.read_into(WatchList(), io.BytesIO(gzip.compress(b"\n" * 1_000_001)), "list")
    textfile.read_into(WatchList(), io.BytesIO(gzip.compress(b"\n" * 1_000_000)), "list")
    textfile.read_into(WatchList(), io.BytesIO(b"\n" * 1_000_001), "list")


def test_lines_may_end_in_cr_alone(tmp_path: Path) -> None:
    for text in (f"# list\r{ADDRESS},rent\r{OTHER}\r", f"label,address\rrent,{ADDRESS}\r,{OTHER}\r"):
        watch = load(tmp_path, text)
        assert [label for _, _, label in watch.entries()] == ["rent", None]


def test_table_with_an_open_quote_stops_at_its_limit(tmp_path: Path) -> None:
    found = problems(tmp_path, f'address,label\n{ADDRESS},"' + "x\n" * 100_000)
    assert list(found) == [0]
    assert "line 1001 of the table: a quote is not closed" in found[0]
    watch = load(tmp_path, f"address,label\n{ADDRESS},rent\n" + "\n" * 100_000 + f'{OTHER},"a\nb"\n')
    assert len(watch) == 2
