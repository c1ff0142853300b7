"""Parse the outputs that transactions spend, given a node's JSON or the answer to its REST call getutxos."""

from __future__ import annotations

from spvfilter.errors import FormatError, NodeAnswerError, ParameterError
from spvfilter.primitives import Reader, TxOut
from spvfilter.protocol import MAX_BLOCK_TRANSACTIONS, MAX_MONEY, MAX_SCRIPT_SIZE
from spvfilter.rpc.api import MOST_BLOCKS, parsed_hex
from spvfilter.rpc.endpoint import Endpoint
from spvfilter.rpc.spent import SpentOutput

_COIN = 100_000_000  # satoshi
_COIN_HEAD = 8  # size in bytes of a coin's version and height, which precede its output in an answer to getutxos


def spent_of_details(found: object, endpoint: Endpoint) -> list[list[SpentOutput]] | None:
    """Return the outputs that each transaction of a block spends, given the block's JSON from `getblock HASH 3`.

    The coinbase is omitted. Returns None if the JSON lacks the spent outputs, as it does before Core 23 or without an
    undo file. Raises NodeAnswerError if it is malformed.
    """
    txs = found.get("tx") if isinstance(found, dict) else None
    if not isinstance(txs, list) or not 1 <= len(txs) <= MAX_BLOCK_TRANSACTIONS:
        raise NodeAnswerError(f"{endpoint}: its block details contain no list of transactions")
    spent: list[list[SpentOutput]] = []
    for tx in txs[1:]:
        inputs = tx.get("vin") if isinstance(tx, dict) else None
        if not isinstance(inputs, list):
            raise NodeAnswerError(f"{endpoint}: its transaction details contain no list of inputs")
        spent.append([])
        for each in inputs:
            coin = each.get("prevout") if isinstance(each, dict) else None
            output = parsed_output(coin, endpoint)
            if output is None or not isinstance(coin, dict):
                return None
            spent[-1].append(SpentOutput(output, _height(coin), coin.get("generated") is True))
    return spent


def _height(coin: dict[object, object]) -> int:
    """Return the height at which an output was created, or 0 if it is not known."""
    height = coin.get("height")
    return height if type(height) is int and 0 <= height < MOST_BLOCKS else 0


def parsed_output(found: object, endpoint: Endpoint) -> TxOut | None:
    """Parse an output with the fields `value` and `scriptPubKey`, or return None for null.

    Raises NodeAnswerError if it is malformed.
    """
    if found is None:
        return None
    value = found.get("value") if isinstance(found, dict) else None
    script = found.get("scriptPubKey") if isinstance(found, dict) else None
    if not isinstance(value, (int, float)) or not 0 <= value * _COIN <= MAX_MONEY or not isinstance(script, dict):
        raise NodeAnswerError(f"{endpoint}: an output in its answer lacks a value or scriptPubKey")
    return TxOut(round(value * _COIN), parsed_hex(script.get("hex"), MAX_SCRIPT_SIZE, endpoint))


def parsed_utxos(body: bytes, count: int, endpoint: Endpoint) -> list[TxOut | None]:
    """Parse the answer to getutxos for `count` outpoints (Core rest.cpp): height, tip, bitmap, and the coins found.

    Raises NodeAnswerError if it is malformed.
    """
    reader = Reader(body, 4 + 32)
    try:
        bitmap = reader.take(reader.compact_size("bitmap"), "bitmap")
        total = reader.compact_size("coin count")
        there = [at // 8 < len(bitmap) and bitmap[at // 8] >> at % 8 & 1 for at in range(count)]
        if len(bitmap) != -(-count // 8) or total != sum(there):
            raise NodeAnswerError(f"{endpoint}: its answer contains {total} coins, which do not match its bitmap")
        coins = iter([_coin(reader) for _ in range(total)])
        return [next(coins) if is_there else None for is_there in there]
    except (FormatError, ParameterError) as error:
        raise NodeAnswerError(f"{endpoint}: its answer about unspent outputs is malformed: {error}") from None


def _coin(reader: Reader) -> TxOut:
    reader.take(_COIN_HEAD, "coin")
    value = int.from_bytes(reader.take(8, "value"), "little")
    return TxOut(value, reader.take(reader.compact_size("script"), "script"))
