"""Labels are rendered only for entries that match, and their digest is that of the list in any form."""

from __future__ import annotations

from pathlib import Path

from spvfilter.kernel import Hit, pack_hits
from spvfilter.scan.linelabels import LineLabels, labels_digest
from spvfilter.scan.partfile import BlockHits
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.kernels.linelabels import packed_labels


def labelled(count: int) -> WatchList:
    watch = WatchList()
    for number in range(count):
        watch.add_script(build.p2wpkh(number.to_bytes(20, "big")), None if number % 10 == 7 else f"label {number}")
    return watch


def block(*entries: int) -> BlockHits:
    hits = (Hit(False, 0, bytes(32), 0, bytes(36), 5, b"\x51", entry) for entry in entries)
    return BlockHits(bytes(32), 1, 2, pack_hits(hits))


def test_only_labels_of_matches_are_rendered(tmp_path: Path) -> None:
    labelled(10_000).compile(tmp_path / "list.spvwl")
    for watch in (labelled(10_000), WatchList.load(tmp_path / "list.spvwl")):
        asked: list[str] = []

        def render(text: str, asked: list[str] = asked) -> bytes:
            asked.append(text)
            return text.upper().encode()

        labels, expected = LineLabels(watch, render), packed_labels({5: b"LABEL 5", 9_999: b"LABEL 9999"})
        assert labels.of_hits([block(9_999, 7), block(5, 9_999)]) == expected
        assert labels.of_hits([block(5, 9_999, 5)]) == labels.of_entries((5, 7, 9_999)) == expected
        assert asked == ["label 5", "label 9999"]


def test_a_list_without_labels_reads_no_hits() -> None:
    watch = WatchList()
    watch.add_script(b"\x51")
    assert LineLabels(watch, str.encode).of_hits([BlockHits(bytes(32), 1, 2, b"no hits")]) == (b"", b"")


def test_the_digest_follows_every_label(tmp_path: Path) -> None:
    watch = labelled(100)
    watch.compile(tmp_path / "list.spvwl")
    mapped = WatchList.load(tmp_path / "list.spvwl")
    digests = {labels_digest(watch)}
    assert labels_digest(mapped) in digests
    for each in (mapped, watch):
        each.relabel(3, None)
    assert labels_digest(watch) == labels_digest(mapped) not in digests
    other = labelled(100)
    other.add_keychain("chain", lambda index: build.p2wpkh(bytes([1]) + index.to_bytes(19, "big")), "own")
    assert labels_digest(other) not in {*digests, labels_digest(watch)}
