"""Public values are readable: reprs without raw bytes, and hashes in hex and as arguments."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, strategies as st

from spvfilter._public import public
from spvfilter.chain import HeaderChain
from spvfilter.errors import ParameterError
from spvfilter.filters import BasicFilter
from spvfilter.network import REGTEST
from spvfilter.node import Regtest
from spvfilter.primitives import Header, OutPoint, TxOut, hash_of, hash_to_hex
from spvfilter.store.place import MEMORY
from spvfilter.store.store import Store
from spvfilter.wire.messages import Unknown
from support.project.publicnames import public as public_names
from support.project.rules import assert_none
from support.project.values import VALUES

ALL = [value for values in VALUES.values() for value in values]
INTERNAL = {"StoredMatch", "StoredTx", "Hit", "TxMatch", "Place", "Linked"}
"""Records of a database and of the kernel, and a protocol: no method of a client returns such an object."""


def test_repr_shows_no_raw_bytes_and_is_short() -> None:
    shown = [repr(value) for value in ALL if not isinstance(value, (Exception, Unknown))]  # they show their arguments
    assert len(shown) > 200
    assert_none(text for text in shown if "\\x" in text or len(text) >= 4_000)


def test_repr_shows_hashes_in_hex_and_shortens_the_rest() -> None:
    @public
    @dataclasses.dataclass(frozen=True)
    class Shown:
        txid: bytes
        script: bytes
        raw: bytes
        hashes: tuple[bytes, ...]
        many: dict[int, int]
        hidden: int = dataclasses.field(default=0, repr=False)

    digest = bytes(range(32))
    shown = repr(Shown(digest, b"\x00\x14" + digest[:20], bytes(300), (digest,) * 5, dict.fromkeys(range(9), 1)))
    assert shown.endswith(
        f"Shown(txid={digest[::-1].hex()}, script=0014{digest[:20].hex()}, raw={'00' * 16}… (300 bytes), hashes=("
        f"{digest.hex()}, {digest.hex()}, {digest.hex()}, … (5 items)), many={{… (9 items)}})"
    )
    lone = repr(Shown(digest, b"", b"", (digest,), {}))
    assert f"hashes=({digest.hex()},), " in lone  # a comma, as in Python: else it looks like one value
    assert repr(TxOut(5, b"")) == "TxOut(value=5, script_pubkey=b'')"


@pytest.mark.parametrize("name", ["txid", "wtxid", "hash", "block_hash", "by", "rival", "spent_by", "tip_hash"])
def test_every_public_class_with_a_hash_has_it_in_hex(name: str) -> None:
    lacking = [
        f"{room}.{value.__name__}"
        for room, _, value in public_names()
        if isinstance(value, type)
        and (name in getattr(value, "__match_args__", ()) or isinstance(vars(value).get(name), property))
        and not hasattr(value, f"{name}_hex")
        and not issubclass(value, Exception)
    ]
    assert [each for each in lacking if each.rpartition(".")[2] not in INTERNAL] == []


def test_hex_of_a_hash_is_its_reversed_bytes() -> None:
    pairs = [(value, name) for value in ALL for name in dir(type(value)) if name.endswith("_hex") and name != "is_hex"]
    assert len(pairs) > 50
    for value, name in pairs:
        digest = getattr(value, name.removesuffix("_hex"))
        assert getattr(value, name) == (None if digest is None else hash_to_hex(digest)), (value, name)


@given(st.binary(min_size=32, max_size=32))
def test_hash_is_taken_as_bytes_or_hex(digest: bytes) -> None:
    assert hash_of(digest, "txid") == hash_of(hash_to_hex(digest), "txid") == digest


@pytest.mark.parametrize("value", [b"", bytes(31), bytes(33), None, 7, bytearray(32)])
def test_other_values_are_no_hash(value: object) -> None:
    with pytest.raises(ParameterError, match="a txid must be 32 bytes or 64 hex digits, not"):
        hash_of(value, "txid")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "00" * 31, "00" * 33, "zz" * 32, " " + "0" * 63])
def test_other_texts_are_no_hash(text: str) -> None:
    with pytest.raises(ParameterError, match=r"a hash must be 64 hex digits, but these \d+ characters are not"):
        hash_of(text, "txid")


def test_methods_take_a_hash_in_hex() -> None:
    regtest, chain = Regtest(), HeaderChain(REGTEST)
    regtest.mine(101)
    genesis = hash_to_hex(chain.hash_at(0))
    assert chain.height_of(genesis) == chain.common_height(genesis) == 0
    assert chain.work_of(genesis) == chain.work
    assert chain.tip_hash_hex == genesis == Header.parse(REGTEST.genesis).hash_hex
    txid = regtest.pay(TxOut(5_000, b"\x00\x14" + bytes(20)))
    assert regtest.find_tx(hash_to_hex(txid)) == regtest.find_tx(txid)
    bumped = regtest.bump(hash_to_hex(txid))
    spent = regtest.double_spend(hash_to_hex(bumped))
    assert regtest.evict(hash_to_hex(spent)) == [spent]
    regtest.mine(on=hash_to_hex(regtest.chain.tip.hash))
    assert regtest.height == 102
    assert BasicFilter.parse(b"\x00", genesis) == BasicFilter.parse(b"\x00", chain.hash_at(0))
    assert OutPoint(txid, 1).txid_hex == hash_to_hex(txid)
    with Store.open(MEMORY, REGTEST) as store:
        assert store.views.transaction(hash_to_hex(txid)) is None
