"""The merge: results of threads in order, and outputs that do not depend on the number of threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spvfilter.errors import SourceError
from spvfilter.kernel import Hit, pack_hits
from spvfilter.scan import merge
from spvfilter.scan.merge import CSV, JSON_LINES, in_threads, write_lines
from spvfilter.scan.partfile import BlockHits, PartFile, PartSummary, write_part
from spvfilter.watch.watchlist import WatchList


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_results_come_in_order_and_few_wait(jobs: int) -> None:
    taken = [0]

    def items() -> Iterator[int]:
        for number in range(50):
            taken[0] += 1
            yield number

    for number, result in enumerate(in_threads(lambda item: item * item, items(), jobs)):
        assert result == number * number
        assert taken[0] <= number + 1 + (jobs + 1 if jobs > 1 else 0)


def test_an_error_of_an_item_comes_out() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise SourceError("damaged")

    before = threading.active_count()
    with pytest.raises(SourceError, match="damaged"):
        list(in_threads(lambda item: item, items(), 3))
    assert threading.active_count() == before


def test_an_error_of_a_call_ends_the_threads() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda item: 1 // (5 - item), range(100), 3))
    assert threading.active_count() == before


@pytest.mark.parametrize("form", [CSV, JSON_LINES])
def test_lines_and_totals_do_not_depend_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: int) -> None:
    monkeypatch.setattr(merge, "PIECE", 500)
    rng, watch = random.Random(form), WatchList("regtest")
    for number in range(9):
        watch.add_script(b"\x00\x14" + bytes((number,)) * 20, f'label "{number % 3}"' if number % 4 else None)

    def block() -> BlockHits:
        hits = [
            Hit(False, 1, rng.randbytes(32), n, bytes(36), n, b"\x51", rng.randrange(9))
            for n in range(rng.randrange(9))
        ]
        hits = [hit._replace(outpoint=hit.txid + hit.n.to_bytes(4, "little")) for hit in hits]
        return BlockHits(rng.randbytes(32), rng.choice((None, 7)), 5, pack_hits(hits))

    parts = []
    for number in range(4):
        write_part(tmp_path / f"{number}", bytes(32), [block() for _ in range(20)], PartSummary())
        parts.append(PartFile(tmp_path / f"{number}"))
    results = []
    for jobs in (1, 3):
        totals = write_lines(tmp_path / "lines", parts, watch, form, jobs)
        results.append(((tmp_path / "lines").read_bytes(), list(totals)))
    assert results[0] == results[1]
    assert len(results[0][1]) == 9
