"""Spent outputs in the answers of a node: blocks in JSON, and getutxos. Malformed answers are errors."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import NodeAnswerError
from spvfilter.kernel import spent_coins
from spvfilter.primitives import TxOut
from spvfilter.rpc.endpoint import Endpoint
from spvfilter.rpc.prevouts import parsed_output, parsed_utxos, spent_of_details
from spvfilter.rpc.spent import SpentOutput, record_of_outputs
from support.blocks.silentpayments import SilentChain, Wallet
from support.blocks.undo import Spent
from support.peers.corenode import CoreNode, output_json, spent_json

pytest.importorskip("btclib_secp256k1")

NODE = Endpoint.parse("http://127.0.0.1:8332")
COINS = st.builds(
    Spent, st.integers(0, 21_000_000 * 10**8), st.binary(max_size=60), st.integers(0, 4_999_999), st.booleans()
)


@given(st.lists(st.lists(COINS, min_size=1, max_size=3), max_size=4))
def test_details_give_the_undo_record_of_the_block(spent: list[list[Spent]]) -> None:
    inputs = [[{"prevout": spent_json(coin)} for coin in coins] for coins in spent]
    found = {"tx": [{"vin": [{"coinbase": "00"}]}, *({"vin": each} for each in inputs)]}
    outputs = spent_of_details(found, NODE)
    assert outputs is not None
    read = spent_coins(record_of_outputs(outputs, bytes(32))[:-32])
    assert [[(coin.value, coin.script, coin.height, coin.coinbase) for coin in coins] for coins in read] == [
        [(coin.value, coin.script, coin.height or None, coin.coinbase if coin.height else None) for coin in coins]
        for coins in spent
    ]


@pytest.mark.parametrize("height", [None, -1, 5_000_000, 1.5, "1", True])
def test_a_wrong_height_of_a_spent_output_is_unknown(height: object) -> None:
    coin = output_json(Spent(5, b"")) | {"height": height}
    assert spent_of_details({"tx": [{}, {"vin": [{"prevout": coin}]}]}, NODE) == [
        [SpentOutput(TxOut(5, b""), 0, False)]
    ]


@given(COINS)
def test_an_output_in_json_is_read(coin: Spent) -> None:
    assert parsed_output(output_json(coin), NODE) == TxOut(coin.value, coin.script)


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {},
        {"tx": []},
        {"tx": "00"},
        {"tx": [{}, {}]},
        {"tx": [{}, {"vin": 5}]},
        {"tx": [{}, 5]},
        {"tx": [{}, {"vin": [{"prevout": 5}]}]},
        {"tx": [{}, {"vin": [{"prevout": {"value": 1}}]}]},
        {"tx": [{}, {"vin": [{"prevout": {"value": -1, "scriptPubKey": {"hex": ""}}}]}]},
        {"tx": [{}, {"vin": [{"prevout": {"value": 22e6, "scriptPubKey": {"hex": ""}}}]}]},
        {"tx": [{}, {"vin": [{"prevout": {"value": "1", "scriptPubKey": {"hex": ""}}}]}]},
        {"tx": [{}, {"vin": [{"prevout": {"value": 1, "scriptPubKey": {"hex": "0"}}}]}]},
        {"tx": [{}, {"vin": [{"prevout": {"value": 1, "scriptPubKey": {"hex": "00" * 20_000}}}]}]},
    ],
)
def test_malformed_details_are_errors(found: object) -> None:
    with pytest.raises(NodeAnswerError):
        spent_of_details(found, NODE)


@pytest.mark.parametrize("each", [{}, {"prevout": None}, 5])
def test_details_without_spent_outputs_give_none(each: object) -> None:
    assert spent_of_details({"tx": [{}, {"vin": [each]}]}, NODE) is None


@given(st.lists(st.none() | COINS, min_size=1, max_size=15))
def test_unspent_outputs_are_read(found: list[Spent | None]) -> None:
    names = [f"{number:064x}-{number}" for number in range(len(found))]
    points = [number.to_bytes(32, "little") + number.to_bytes(4, "little") for number in range(len(found))]
    node = CoreNode(SilentChain(Wallet()).blocks[:1])
    node.coins = {point: coin for point, coin in zip(points, found, strict=True) if coin is not None}
    body = node.utxos(names)
    assert parsed_utxos(body, len(found), NODE) == [coin and TxOut(coin.value, coin.script) for coin in found]
    for cut in range(len(body)):
        with pytest.raises(NodeAnswerError):
            parsed_utxos(body[:cut], len(found), NODE)


@given(st.binary(max_size=120), st.integers(1, 15))
def test_any_bytes_are_outputs_or_an_error(body: bytes, count: int) -> None:
    try:
        found = parsed_utxos(body, count, NODE)
    except NodeAnswerError as error:
        assert str(error).startswith(str(NODE))
    else:
        assert len(found) == count
