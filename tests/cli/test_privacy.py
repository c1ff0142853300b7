"""`privacy`: the report of a list and of a database, as a table, JSON and a picture, and every argument that can be
wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch, Bip37Parameters
from spvfilter.store.store import Store
from spvfilter.watch.watchlist import WatchList

ADDRESS = "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"
QUICK = ("--probes", 20_000, "--restarts", 3)
NAMES = ["now", "restarts", "added-known", "added-new", "no-decoys", "new-tweaks", "bitcoinj", "bitcoinj-restarts"]


def test_json_has_every_case_with_its_sample(run: Any) -> None:
    ran = run("privacy", ADDRESS, *QUICK, "--fp-rate", 0.01)
    told = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert [case["case"] for case in told["cases"]] == NAMES
    now = told["cases"][0]
    assert (told["own"], told["same_bytes_after_restarts"], told["universe"]) == (1, True, 1_000_000_000)
    assert now["decoys"] == pytest.approx(1e7, rel=0.05)
    assert now["posterior"] == pytest.approx(1e-7, rel=0.05)
    assert now["sampled"]["hits"] == pytest.approx(200, abs=60)
    assert run("privacy", ADDRESS, *QUICK, "--fp-rate", 0.01) == ran


def test_the_table_says_it_in_words(run: Any) -> None:
    ran = run("privacy", ADDRESS, *QUICK, "--format", "table", "--universe", 1_000_000)
    assert "Privacy of the wallet's filter among 1,000,000 addresses" in ran.out
    assert "addresses, keys and data: 1; outpoints: 0" in ran.out
    assert "give the same bytes" in ran.out
    assert "filters before and after 10 additions" in ran.out
    assert ran.out.count("… after 3 restarts") == 3
    assert "… after 3 restarts, with new tweaks" in ran.out
    assert "other people's addresses that match. The last column" in ran.out
    silent = run("privacy", ADDRESS, "--probes", 0, "--restarts", 1, "--format", "table")
    assert "under" not in silent.out


def test_a_database_s_filter_has_the_database_s_parameters(run: Any, tmp_path: Path) -> None:
    path, watch = tmp_path / "wallet.db", WatchList(REGTEST)
    watch.add_script(bytes.fromhex("0014") + bytes(20))
    with Store.open(path, REGTEST) as store:
        store.attach(watch)
    ran = run("privacy", "--db", path, *QUICK)
    fresh = json.loads(ran.out)
    assert "no peer of this wallet has been given a BIP-37 filter yet" in ran.err
    assert (fresh["capacity"], fresh["nominal_fp_rate"]) == (1_024, 0.0001)
    with Store.open(path, REGTEST) as store:
        store.attach(watch)
        store.commit(Batch(bip37_parameters=Bip37Parameters(3, 2_048, 0.002, b"k" * 32)))
    ran = run("privacy", "--db", path, *QUICK)
    known = json.loads(ran.out)
    assert ran.err == ""
    assert (known["capacity"], known["nominal_fp_rate"], known["own"]) == (2_048, 0.002, 1)
    other = json.loads(run("privacy", "--db", path, *QUICK, "--fp-rate", 0.01).out)
    assert (other["capacity"], other["nominal_fp_rate"]) == (1_024, 0.01)


@pytest.mark.slow
@pytest.mark.plot
def test_the_picture_is_a_png_file(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "privacy.png"
    assert run("privacy", ADDRESS, *QUICK, "--plot", path).code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    path.write_bytes(b"a text")
    ran = run("privacy", ADDRESS, *QUICK, "--plot", path)
    assert (ran.code, ran.out) == (2, "")
    assert path.read_bytes() == b"a text"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "nothing to report on: give an ADDRESS, --watch FILE or --db FILE"),
        (("--db", "x.db", ADDRESS), "--db cannot be combined with ADDRESS and --watch"),
        (("--db", "missing.db"), "there is no database at missing.db"),
        ((ADDRESS, "--restarts", "0"), "expected a whole number from 1 to 1000"),
        ((ADDRESS, "--added", "0"), "expected a whole number from 1 to 1000000"),
        ((ADDRESS, "--probes", "1000000001"), "expected a whole number from 0 to 1000000000"),
        ((ADDRESS, "--fp-rate", "1"), "expected a number between 0 and 1"),
        ((ADDRESS, "--universe", "0"), "expected a whole number from 1 to"),
        ((ADDRESS, "--plot", "x.txt"), "--plot writes a PNG picture"),
    ],
)
def test_wrong_arguments_are_named(run: Any, argv: tuple[str, ...], message: str) -> None:
    ran = run("privacy", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
