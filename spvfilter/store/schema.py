"""SQL schema of the wallet's database."""

from __future__ import annotations

APPLICATION_ID = 0x53505646  # "SPVF", in the header of the file (SQLite § Application ID)
SCHEMA_VERSION = 4
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL, mark INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE headers (first INTEGER PRIMARY KEY, raw BLOB NOT NULL);
CREATE TABLE watch (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, value BLOB NOT NULL, label TEXT, mark INTEGER NOT NULL);
CREATE TABLE coins (outpoint BLOB PRIMARY KEY, entry INTEGER NOT NULL, value INTEGER NOT NULL, script BLOB, mark INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE matches (spend INTEGER NOT NULL, txid BLOB NOT NULL, n INTEGER NOT NULL, position INTEGER NOT NULL, outpoint BLOB NOT NULL,
    value INTEGER NOT NULL, script BLOB, entry INTEGER NOT NULL, block BLOB, height INTEGER, completeness TEXT NOT NULL,
    mark INTEGER NOT NULL,
    PRIMARY KEY (txid, spend, n)) WITHOUT ROWID;
CREATE INDEX matches_by_height ON matches (height);
CREATE INDEX matches_by_outpoint ON matches (outpoint);
CREATE TABLE pending (txid BLOB PRIMARY KEY, raw BLOB NOT NULL, seen INTEGER NOT NULL, own INTEGER NOT NULL, mark INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE transactions (txid BLOB PRIMARY KEY, raw BLOB NOT NULL, height INTEGER NOT NULL, own INTEGER NOT NULL, mark INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE filter_hashes (first INTEGER PRIMARY KEY, hashes BLOB NOT NULL);
CREATE TABLE filters (hash BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE addresses (address TEXT PRIMARY KEY, services INTEGER NOT NULL, seen INTEGER NOT NULL, source TEXT NOT NULL,
    tried INTEGER NOT NULL, succeeded INTEGER NOT NULL, attempted INTEGER NOT NULL, failures INTEGER NOT NULL, faults INTEGER NOT NULL,
    speed INTEGER NOT NULL, mark INTEGER NOT NULL) WITHOUT ROWID;
"""
MARKED = {  # tables whose rows carry a checksum in the column `mark`, and the columns it covers
    "meta": "key, value",
    "watch": "id, kind, value, label",
    "coins": "outpoint, entry, value, script",
    "matches": "spend, txid, n, position, outpoint, value, script, entry, block, height, completeness",
    "pending": "txid, raw, seen, own",
    "transactions": "txid, raw, height, own",
    "addresses": "address, services, seen, source, tried, succeeded, attempted, failures, faults, speed",
}
