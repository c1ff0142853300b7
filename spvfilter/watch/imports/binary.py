"""Recognize wallet files that are binary or encrypted, and say what to export instead."""

from __future__ import annotations

_TEXT = bytes({*b"\t\n\r", *range(32, 256)})
"""The bytes that occur in text files, in UTF-8 or another character set."""
_CORE_EXPORT = "export its descriptors with `bitcoin-cli listdescriptors > FILE`"
_ELECTRUM_EXPORT = (
    "remove the encryption of the file with Wallet > Password, or copy the descriptor or the master public key from"
    " Wallet > Information"
)
_BDB_MAGIC = (b"\x62\x31\x05\x00", b"\x00\x05\x31\x62")
_CORE_APPLICATIONS = frozenset(
    bytes.fromhex(each) for each in ("f9beb4d9", "0b110907", "1c163f28", "0a03cf40", "fabfb5da")
)
"""Application ids of the SQLite databases of Bitcoin Core: the magic of each network."""
_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"H:2,", "a Sparrow wallet database (.mv.db): in Sparrow choose File > Export Wallet > Output Descriptor"),
    (b"SPRW1", "an encrypted Sparrow wallet database: in Sparrow choose File > Export Wallet > Output Descriptor"),
    (b"QklFM", f"an encrypted Electrum wallet file: {_ELECTRUM_EXPORT}"),
    (b"BIE1", f"an encrypted Electrum file: {_ELECTRUM_EXPORT}"),
    (b"7z\xbc\xaf'\x1c", "a 7z archive, such as a Coldcard backup: export Generic JSON or a descriptor instead"),
    (b"psbt\xff", "a PSBT, which is a transaction: give the wallet's descriptor"),
    (b"cHNidP", "a PSBT, which is a transaction: give the wallet's descriptor"),
    (b"%PDF", "a PDF: export the descriptor as text"),
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet: unpack it, or save the table as CSV"),
    (b"\x1f\x8b", "compressed with gzip: decompress it first"),
    (b"age-encryption.org", "encrypted with age: decrypt it first"),
    (b"-----BEGIN PGP MESSAGE", "encrypted with PGP: decrypt it first"),
    (b"<!DOCTYPE", "a web page (HTML): save the text file itself"),
    (b"<html", "a web page (HTML): save the text file itself"),
)


def refusal_of(start: bytes) -> str | None:
    """Return an error message if the start of a file shows that it cannot contain a watch list.

    Returns None if the file may be text.
    """
    head = start[:4096]
    if start.startswith(b"SQLite format 3\0"):
        if start[68:72] in _CORE_APPLICATIONS:
            return f"this is a Bitcoin Core wallet (SQLite): {_CORE_EXPORT}"
        return "this is an SQLite database, not a watch list: give a wallet's database with --db"
    if head[12:16] in _BDB_MAGIC:
        return f"this is an old Bitcoin Core wallet (Berkeley DB): migrate it with `migratewallet`, then {_CORE_EXPORT}"
    for begin, what in _STARTS:
        if head.startswith(begin):
            return f"this is {what}"
    if b"org.bitcoin." in head[:32]:
        return "this is a bitcoinj wallet: give its extended public key or its addresses"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or (len(head) >= 8 and (any(head[::2]) != any(head[1::2]))):
        return "this file is UTF-16: save it as UTF-8"
    if len(head.translate(None, _TEXT)) > max(8, len(head) // 10):
        return "this is a binary file, not a watch list: expected text with one entry per line"
    return None
