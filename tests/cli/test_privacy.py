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


def test_the_table_says_it_in_words(transcript_of: Any) -> None:
    transcript_of(
        0,
        f"""
        privacy {ADDRESS} --probes 20000 --restarts 3 --format table --universe 1000000
        privacy {ADDRESS} --probes 0 --restarts 1 --format table
        """,
    )


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


def test_wrong_arguments_are_named(refused: Any) -> None:
    refused(f"""
        privacy
        privacy --db x.db {ADDRESS}
        privacy --db missing.db
        privacy {ADDRESS} --restarts 0
        privacy {ADDRESS} --added 0
        privacy {ADDRESS} --probes 1000000001
        privacy {ADDRESS} --fp-rate 1
        privacy {ADDRESS} --universe 0
        privacy {ADDRESS} --plot x.txt
    """)
