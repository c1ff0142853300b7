"""The SQL schema of the wallet's database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.errors import StoreForeignError
from spvfilter.network import NETWORKS

if TYPE_CHECKING:
    import pathlib
    import sqlite3
else:
    pathlib = deferred("pathlib")
    sqlite3 = deferred("sqlite3")

APPLICATION_ID = 0x53505646  # "SPVF", in the header of the file (SQLite § Application ID)
SCHEMA_VERSION = 6
EVENTS_SINCE = 5  # first version of the schema with a table of events
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL, mark INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE headers (first INTEGER PRIMARY KEY, raw BLOB NOT NULL);
CREATE TABLE watch (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, value BLOB NOT NULL, label TEXT,
    mark INTEGER NOT NULL);
CREATE TABLE keychains (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, label TEXT, descriptor TEXT,
    lookahead INTEGER NOT NULL,
    size INTEGER NOT NULL, window INTEGER NOT NULL, mark INTEGER NOT NULL);
CREATE TABLE runs (keychain INTEGER NOT NULL, first INTEGER NOT NULL, entry INTEGER NOT NULL, indexes INTEGER NOT NULL,
    scripts INTEGER NOT NULL, mark INTEGER NOT NULL, PRIMARY KEY (keychain, first, entry)) WITHOUT ROWID;
CREATE TABLE used (keychain INTEGER NOT NULL, place INTEGER NOT NULL, mark INTEGER NOT NULL, PRIMARY KEY (keychain,
    place)) WITHOUT ROWID;
CREATE TABLE coins (outpoint BLOB PRIMARY KEY, entry INTEGER NOT NULL, value INTEGER NOT NULL, script BLOB,
    mark INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE matches (spend INTEGER NOT NULL, txid BLOB NOT NULL, n INTEGER NOT NULL, position INTEGER NOT NULL,
    outpoint BLOB NOT NULL,
    value INTEGER NOT NULL, script BLOB, entry INTEGER NOT NULL, block BLOB, height INTEGER, completeness TEXT NOT NULL,
    mark INTEGER NOT NULL,
    PRIMARY KEY (txid, spend, n)) WITHOUT ROWID;
CREATE INDEX matches_by_height ON matches (height);
CREATE INDEX matches_by_outpoint ON matches (outpoint);
CREATE TABLE transactions (txid BLOB PRIMARY KEY, raw BLOB NOT NULL, status TEXT NOT NULL, own INTEGER NOT NULL,
    seen INTEGER,
    since INTEGER, block BLOB, height INTEGER, position INTEGER, rival BLOB, place INTEGER NOT NULL,
    net INTEGER NOT NULL, fee INTEGER,
    mark INTEGER NOT NULL);
CREATE INDEX transactions_by_place ON transactions (place, txid);
CREATE INDEX transactions_by_status ON transactions (status) WHERE status != 'confirmed';
CREATE TABLE tx_labels (txid BLOB NOT NULL, label TEXT NOT NULL, place INTEGER NOT NULL, mark INTEGER NOT NULL,
    PRIMARY KEY (txid, label)) WITHOUT ROWID;
CREATE INDEX tx_labels_by_place ON tx_labels (label, place, txid);
CREATE TABLE unspent (outpoint BLOB PRIMARY KEY, entry INTEGER NOT NULL, value INTEGER NOT NULL, script BLOB,
    height INTEGER,
    coinbase INTEGER NOT NULL, spender BLOB, place INTEGER NOT NULL, mark INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX unspent_by_place ON unspent (place, outpoint);
CREATE INDEX unspent_coinbases ON unspent (height) WHERE coinbase = 1;
CREATE TABLE events (sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL,
    mark INTEGER NOT NULL);
CREATE TABLE filter_hashes (first INTEGER PRIMARY KEY, hashes BLOB NOT NULL);
CREATE TABLE filters (hash BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE addresses (address TEXT PRIMARY KEY, services INTEGER NOT NULL, seen INTEGER NOT NULL,
    source TEXT NOT NULL,
    tried INTEGER NOT NULL, succeeded INTEGER NOT NULL, attempted INTEGER NOT NULL, failures INTEGER NOT NULL,
    faults INTEGER NOT NULL,
    speed INTEGER NOT NULL, mark INTEGER NOT NULL) WITHOUT ROWID;
"""
MARKED = {  # tables whose rows carry a checksum in the column `mark`, and the columns it covers
    "meta": "key, value",
    "watch": "id, kind, value, label",
    "keychains": "id, name, label, descriptor, lookahead, size, window",
    "runs": "keychain, first, entry, indexes, scripts",
    "used": "keychain, place",
    "coins": "outpoint, entry, value, script",
    "matches": "spend, txid, n, position, outpoint, value, script, entry, block, height, completeness",
    "transactions": "txid, raw, status, own, seen, since, block, height, position, rival, place, net, fee",
    "tx_labels": "txid, label, place",
    "events": "sequence, time, kind, data",
    "unspent": "outpoint, entry, value, script, height, coinbase, spender, place",
}


def network_of(genesis_hash: bytes | None) -> str:
    """Return the name of the network with this genesis block (wire order)."""
    return next((known.name for known in NETWORKS if known.genesis_hash == genesis_hash), "an unknown network")


def check_schema(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Raises StoreForeignError unless this is a database of this package with the current schema version."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreForeignError(f"{path}: this SQLite database belongs to another program")
    if version > SCHEMA_VERSION:
        raise StoreForeignError(
            f"{path}: it has schema version {version}, this program reads version {SCHEMA_VERSION}: update the program"
        )
    if version < SCHEMA_VERSION:
        raise StoreForeignError(
            f"{path}: it has schema version {version}, this program reads version {SCHEMA_VERSION}: open it with"
            " rebuild=True (watch --rebuild), which keeps the watch list and searches the chain again"
        )
