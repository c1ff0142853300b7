"""Forged databases: any value in any cell, under right checksums, gives an error of the store or is harmless."""

from __future__ import annotations

import json
import lzma
import random
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from spvfilter.errors import EventGapError, InexpressibleError, StoreError, StoreForeignError
from spvfilter.light.client import LightClient
from spvfilter.light.engine.options import Options
from spvfilter.light.running import opened
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.keychains import KeychainChange
from spvfilter.store.migrations import COLUMNS_6
from spvfilter.store.schema import MARKED, TABLES
from spvfilter.store.sqlite import mark
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.labels import Label
from spvfilter.watch.watchlist import WatchList
from support.blocks.silentpayments import Wallet, payment
from support.vectors import effort
from support.wallets.forgery import remark, unchecked
from support.wallets.storesqlite import writing

LABELS = [
    Label("addr", "bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202", "later"),
    Label("tx", "ab" * 32, "rent", "wpkh([d34db33f])", other={"height": 7}),
    Label("output", f"{'ab' * 32}:1", spendable=False),
]
FIXTURE = Path(__file__).parent / "fixtures" / "0.3.0.db.xz"
OLD = FIXTURE.with_name("0.2.0.db.xz")


pytest.importorskip("btclib_secp256k1")

WALLET = Wallet(network=REGTEST)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound database of the current version."""
    path = tmp_path_factory.mktemp("sound") / "w.db"
    path.write_bytes(lzma.decompress(FIXTURE.read_bytes()))
    opened(path, WatchList(REGTEST), Options(), rebuild=False)[0].close()
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(bip329=LABELS))
        store.attach(watch := WatchList(REGTEST))
        revealed = [KeychainChange(each.name, revealed=15, exclusive=True) for each in store.keychains.load()]
        confirmed = next(each for each in store.views.history() if each.block_hash is not None and each.height)
        branches = {confirmed.txid: (confirmed.block_hash or b"", bytes(64))}
        store.commit(
            Batch(keychains=revealed, frozen={bytes(store.views.coins()[0].outpoint): True}, branches=branches)
        )
        with writing(store) as rows:
            store.keychains.keep_revealed_scripts([bytes(22)])
            rows.insert("held", (bytes(36), bytes(32)))
    with Store.open(path, REGTEST) as store:
        silent = WatchList(REGTEST)
        silent.add_descriptor(WALLET.descriptor)
        silent.add_sp_label(3, "Alice")
        raw, spent = payment([WALLET.address(3)])
        assert silent.match_tx(raw, spent=spent)
        store.attach(silent)
    with Store.open(path, REGTEST) as store:
        owned = WatchList(REGTEST)
        with owned.within_account("shop"):
            for script in watch.script_pubkeys():
                owned.add_script(script)
        store.attach(owned)
        assert store.views.history(account="shop")
    return path.read_bytes()


def other(value: object, rng: random.Random) -> object:
    """A value in place of another one: of another type, length or size, truncated, or changed within."""
    values: list[object] = [
        None, 0, -1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63), 0.5, float("inf"), "", "text", "9" * 5_000, b"",
        bytes(31), bytes(32), bytes(33), bytes(36), bytes(100_000), b"{}", b"[]", b"[[]]", b'{"a":1}', b"[" * 100_000,
        b"9" * 5_000, b"null", b"-1", b"[1e999]",
    ]  # fmt: skip
    if isinstance(value, bytes):
        values += [value[: rng.randrange(len(value) + 1)], value + bytes(rng.randrange(1, 9)), value.decode("latin-1")]
        values += list(changed_json(value, rng)) * 4
    if isinstance(value, int):
        values += [value + 1, value - 1, str(value), bytes(8), value << 20 & (1 << 62) - 1] * 2
    return rng.choice(values)


def changed_json(value: bytes, rng: random.Random) -> Iterator[bytes]:
    """The same JSON with one value replaced."""
    try:
        found = json.loads(value)
    except ValueError:
        return
    places: list[tuple[dict[str, object] | list[object], object]] = []
    waiting = [found]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (dict, list)):
            keys = list(each) if isinstance(each, dict) else list(range(len(each)))
            places += [(each, key) for key in keys]
            waiting += [each[key] for key in keys]
    if places:
        holder, key = rng.choice(places)
        holder[key] = rng.choice([None, True, -1, 1 << 70, 0.5, float("nan"), "zz", [], {}, [[]], {"a": []}])  # type: ignore[index,call-overload]
        yield json.dumps(found).encode("ascii")


class NoSource:
    """Never asked, as no peer sends a block."""

    async def undo_record(self, digest: bytes, previous: bytes, *, by_details: bool = False) -> bytes | None:
        raise NotImplementedError


OFTEN = ("meta", "meta", "meta", "transactions", "matches", "events")


def forged(path: Path, marked: Mapping[str, str], rng: random.Random, tables: Sequence[str]) -> str | None:
    """Replace one cell of one of the tables, and write right checksums.

    Returns a description, or None if SQLite cannot store the value.
    """
    table = rng.choice(tables)
    names = marked[table].split(", ") if table in marked else list(TABLES[table].columns)
    column = rng.choice(names)
    with unchecked(path) as db:
        rows = db.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
        row = rng.choice(rows)
        if table == "meta":
            column = "value"
        value = other(row[names.index(column)], rng)
        where = " AND ".join(f"{name} IS ?" for name in names)
        try:
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value, *row))
            if table in marked and (table, row[0]) != ("meta", "sums"):
                remark(db, table, marked)
            elif table == "meta":
                db.execute("UPDATE meta SET mark = ? WHERE key = 'sums'", (mark("meta", ("sums", value)),))
        except sqlite3.IntegrityError:
            return None
    return f"{table}.{column} of {str(row[0])[:30]!r}: {str(row[names.index(column)])[:60]} -> {str(value)[:60]}"


def use_store(path: Path) -> None:
    with Store.open(path, REGTEST) as store:
        store.attach(WatchList(REGTEST))
        list(store.timed_matches())
        store.transactions(-1), store.addresses.load()


def use_views(path: Path) -> None:
    with WalletStore.open(path) as wallet:
        for account in wallet.accounts():
            wallet.balance(account=account), wallet.coins(account=account), wallet.history(account=account)
        wallet.balance(), wallet.balance("shop"), wallet.coins(), wallet.coins(label="rent"), wallet.searched()
        wallet.history(limit=None)
        with suppress(InexpressibleError):  # a sound entry, though one without elements
            wallet.bip37_elements()
        wallet.searched_height(), wallet.tip(), wallet.labels()
        with suppress(EventGapError):
            wallet.events(since=0, limit=10_000)
        wallet.is_used("bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080")
        for keychain in wallet.keychains():
            wallet.history(keychain=keychain.name), wallet.coins(keychain=keychain.name)


def use_client(path: Path) -> None:
    opened(path, WatchList(REGTEST), Options(spent_source="node"), rebuild=False)[0].close()


@pytest.mark.parametrize("seed", range(effort(40, 150, 1_500)))
def test_forged_cell_gives_an_error_of_the_store_or_works(seed: int, sound: bytes, tmp_path: Path) -> None:
    rng, path = random.Random(seed), tmp_path / "w.db"
    path.write_bytes(sound)
    what = forged(path, MARKED, rng, [*TABLES, *OFTEN])
    data = path.read_bytes()
    for use in (use_views, use_store, use_client):
        path.write_bytes(data)
        try:
            use(path)
        except StoreError:
            continue
        except BaseException as error:
            pytest.fail(f"{use.__name__}, {what}: {error!r}")


@pytest.mark.parametrize("seed", range(effort(10, 50, 500)))
def test_forged_old_database_is_migrated_or_refused(seed: int, tmp_path: Path) -> None:
    rng, path = random.Random(seed), tmp_path / "w.db"
    path.write_bytes(lzma.decompress(OLD.read_bytes()))
    what = forged(path, COLUMNS_6, rng, [*COLUMNS_6, "headers", "filter_hashes", *OFTEN])
    try:
        use_client(path)
    except StoreError:
        return
    except BaseException as error:
        pytest.fail(f"{what}: {error!r}")


@pytest.mark.parametrize("seed", range(effort(15, 50, 500)))
def test_forged_database_can_be_rebuilt(seed: int, sound: bytes, tmp_path: Path) -> None:
    rng, path = random.Random(seed), tmp_path / "w.db"
    path.write_bytes(sound)
    what = forged(path, MARKED, rng, ("meta", "watch", "keychains", "runs", "used"))
    try:
        with Store.open(path, REGTEST, rebuild=True) as store:
            store.attach(watch := WatchList(REGTEST))
            assert len(watch) > 30
    except StoreForeignError:
        assert what is not None
        assert "network" in what


@pytest.mark.parametrize("seed", range(effort(10, 40, 400)))
async def test_run_with_a_forged_cell_raises_only_store_errors(seed: int, sound: bytes, tmp_path: Path) -> None:
    rng, path = random.Random(seed), tmp_path / "w.db"
    path.write_bytes(sound)
    with Store.open(path, REGTEST) as store:
        store.attach(WatchList(REGTEST))
        store.commit(Batch(notes={"private": None, "bans": b'{"127.0.0.2:1":1.5}', "anchors": b'["127.0.0.1:8"]'}))
    what = forged(path, MARKED, rng, [*TABLES, *OFTEN, "meta", "meta"])
    try:
        async with LightClient(
            WatchList(REGTEST), peers=["127.0.0.1:1"], store=path, mode="compact", spent_source=NoSource()
        ) as client:
            await client.bookmark("shop")
            await client.balance()
            await client.coins()
            await client.history()
    except StoreError:
        return
    except Exception as error:
        pytest.fail(f"{what}: {error!r}")
