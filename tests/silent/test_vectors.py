"""The published vectors of BIP-352: addresses, and the outputs and tweaks that a scanner finds."""

from __future__ import annotations

from typing import Any

import pytest

from spvfilter.kernel import silent_candidate
from spvfilter.kernel.pure import silent as pure
from spvfilter.primitives import TxOut
from spvfilter.silent.address import SilentAddress
from spvfilter.silent.scanner import SilentScanner, read_inputs
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.silentpayments import encoded
from support.vectors import vector_file, vectors_root

pytest.importorskip("btclib_secp256k1")
pytestmark = pytest.mark.vectors
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def cases() -> list[Any]:
    if vectors_root() is None:
        return [pytest.param(None, id="missing")]
    groups = vector_file("14_bip352/send_and_receive_test_vectors.json")
    return [
        pytest.param(case, id=f"{number}.{which}")
        for number, group in enumerate(groups)
        for which, case in enumerate(group["receiving"])
    ]


def witness(text: str) -> tuple[bytes, ...]:
    """The items of a witness stack as the vectors write it: a count, then each item behind its length."""
    raw = bytes.fromhex(text)
    if not raw:
        return ()
    items, at = [], 1
    for _ in range(raw[0]):
        size, at = (raw[at], at + 1) if raw[at] < 0xFD else (int.from_bytes(raw[at + 1 : at + 3], "little"), at + 3)
        items.append(raw[at : at + size])
        at += size
    assert at == len(raw)
    return tuple(items)


def transaction(given: Any) -> tuple[bytes, list[bytes]]:
    """A transaction with the inputs and outputs of a case, and the scripts that it spends."""
    inputs = [
        build.TxIn(
            bytes.fromhex(each["txid"])[::-1],
            each["vout"],
            bytes.fromhex(each["scriptSig"]),
            witness=witness(each["txinwitness"]),
        )
        for each in given["vin"]
    ]
    outputs = [build.TxOut(1_000, b"\x51\x20" + bytes.fromhex(key)) for key in given["outputs"]]
    return build.tx(inputs, outputs), [bytes.fromhex(each["prevout"]["scriptPubKey"]["hex"]) for each in given["vin"]]


def scanner_of(case: Any) -> SilentScanner:
    material = case["given"]["key_material"]
    from btclib_secp256k1 import keys

    spend = bytes(keys.pubkey_from_prvkey(bytes.fromhex(material["spend_priv_key"])))
    return SilentScanner(bytes.fromhex(material["scan_priv_key"]), spend, labels=case["given"]["labels"])


@pytest.mark.long
@pytest.mark.parametrize("case", cases())
def test_a_scanner_finds_the_outputs_and_tweaks_of_a_case(case: Any) -> None:
    scanner = scanner_of(case)
    raw, spent = transaction(case["given"])
    end, candidate = silent_candidate(raw, 0, spent)
    assert (end, candidate) == pure.silent_candidate(raw, 0, spent)
    assert end == len(raw)
    inputs = None if candidate is None else read_inputs(candidate)
    found = [] if inputs is None else scanner.find(inputs)
    expected = case["expected"]
    if "outputs" in expected:
        listed = {each["pub_key"]: each["priv_key_tweak"] for each in expected["outputs"]}
        assert {output.key.hex(): output.tweak.hex() for output in found} == listed
        assert [case["given"]["outputs"][output.index] for output in found] == [output.key.hex() for output in found]
    else:
        assert len(found) == expected["n_outputs"]


@pytest.mark.long
@pytest.mark.parametrize("case", cases())
def test_a_watch_list_matches_the_outputs_of_a_case(case: Any) -> None:
    material = case["given"]["key_material"]
    from btclib_secp256k1 import keys

    spend = bytes(keys.pubkey_from_prvkey(bytes.fromhex(material["spend_priv_key"])))
    text = encoded("spscan", bytes.fromhex(material["scan_priv_key"]) + spend)
    watch = WatchList()
    (keychain,) = watch.add_descriptor(f"sp({text})")
    assert keychain.name in case["expected"]["addresses"]
    for label in case["given"]["labels"]:
        watch.add_sp_label(label)
    raw, spent = transaction(case["given"])
    matches = watch.match_tx(raw, spent=[TxOut(1_000, script) for script in spent])
    expected = case["expected"]
    if "outputs" in expected:
        found = {each.script_pubkey: watch.windows.found_at(-1, each.script_pubkey) for each in matches}
        tweaks = {
            script[2:].hex(): place.tweak.hex()
            for script, place in found.items()
            if script is not None and place is not None
        }
        assert tweaks == {each["pub_key"]: each["priv_key_tweak"] for each in expected["outputs"]}
    else:
        assert len(matches) == expected["n_outputs"]


@pytest.mark.long
@pytest.mark.parametrize("case", cases())
def test_a_found_outputs_private_key_signs_for_it(case: Any) -> None:
    from btclib_secp256k1 import keys

    scanner = scanner_of(case)
    raw, spent = transaction(case["given"])
    candidate = silent_candidate(raw, 0, spent)[1]
    inputs = None if candidate is None else read_inputs(candidate)
    spend = int(case["given"]["key_material"]["spend_priv_key"], 16)
    for output in [] if inputs is None else scanner.find(inputs)[:20]:
        private = (spend + int.from_bytes(output.tweak, "big")) % ORDER
        assert bytes(keys.pubkey_from_prvkey(private.to_bytes(32, "big")))[1:] == output.key


@pytest.mark.parametrize("case", cases())
def test_the_addresses_of_a_case_are_encoded_and_decoded(case: Any) -> None:
    scanner = scanner_of(case)
    labels = [label for label in case["given"]["labels"] if label]
    made = [str(scanner.address()), *(str(scanner.address(label)) for label in labels)]
    published = list(case["expected"]["addresses"])
    assert set(made) <= set(published)
    for text in published:
        assert str(SilentAddress.parse(text)) == text
