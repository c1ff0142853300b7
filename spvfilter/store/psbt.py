"""PSBTs, partially signed transactions (BIP-174 and 371), with all known facts about inputs and outputs.

A PSBT that spends a silent payment has version 2 (BIP-370), because only that version has a field for the output's
tweak (BIP-376). All others have version 0.

A PSBT consists of a magic and a list of maps: one for the transaction, one for each input and one for each output. A
map is a list of keys and values, each preceded by its length, and ends with a zero byte. The first byte of a key is its
type.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from spvfilter.errors import DescriptorWarning, ParameterError, counted
from spvfilter.hashes import hash160
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.primitives import OutPoint, TxOut, compact_size
from spvfilter.store.windowviews import Checked, EntryPlaces
from spvfilter.transaction import Transaction
from spvfilter.watch.descriptor.descriptor import parse_descriptor
from spvfilter.watch.descriptor.keys import account_keys
from spvfilter.watch.descriptor.silent import Origin, parse_silent
from spvfilter.watch.descriptor.spending import Spending

_MAGIC = b"psbt\xff"
_LEAF_VERSION = b"\xc0"
_MOST_NAMED = 5
"""Largest number of keys that a warning names (our choice)."""
_PER_QUERY = 900
"""Largest number of scripts in one query (our choice: every SQLite allows 999 values)."""
Pair = tuple[int, bytes, bytes]
"""Type of a key, the rest of the key, and the value."""


def encode(
    tx: Transaction, xpubs: Iterable[Pair], inputs: Iterable[Iterable[Pair]], outputs: Iterable[Iterable[Pair]]
) -> bytes:
    """Return the bytes of a PSBT of version 0. `xpubs` are additional pairs for the first map."""
    return _joined([[(0x00, b"", tx.raw), *xpubs], *inputs, *outputs])


def encode_version_2(
    tx: Transaction, xpubs: Iterable[Pair], inputs: Iterable[Iterable[Pair]], outputs: Iterable[Iterable[Pair]]
) -> bytes:
    """Return the bytes of a PSBT of version 2 (BIP-370), whose inputs and outputs must not change."""
    spans = tx.span
    head = [
        *xpubs,
        (0x02, b"", tx.raw[:4]),
        (0x03, b"", tx.raw[-4:]),  # the lock time, since no input requires a different one
        (0x04, b"", compact_size(len(spans.inputs))),
        (0x05, b"", compact_size(len(spans.outputs))),
        (0xFB, b"", (2).to_bytes(4, "little")),
    ]
    spends = [
        [*pairs, (0x0E, b"", outpoint[:32]), (0x0F, b"", outpoint[32:]), (0x10, b"", tx.raw[end : end + 4])]
        for pairs, outpoint, (_, _, end) in zip(inputs, tx.inputs, spans.inputs, strict=True)
    ]
    pays = [
        [*pairs, (0x03, b"", bytes(output)[:8]), (0x04, b"", output.script_pubkey)]
        for pairs, output in zip(outputs, tx.outputs, strict=True)
    ]
    return _joined([head, *map(sorted, spends), *map(sorted, pays)])


def _joined(maps: Iterable[Iterable[Pair]]) -> bytes:
    parts = [_MAGIC]
    for pairs in maps:
        parts += (_sized(bytes((kind,)) + key) + _sized(value) for kind, key, value in pairs)
        parts.append(b"\0")
    return b"".join(parts)


def _sized(data: bytes) -> bytes:
    return compact_size(len(data)) + data


def input_pairs(output: TxOut, previous: bytes, found: Spending | None) -> Iterator[Pair]:
    """Yield the pairs of an input.

    Args:
        output: The output that the input spends.
        previous: The transaction that contains this output.
        found: Scripts and keys of the output, or None if none of the wallet's descriptors derives it.
    """
    program = output.script_pubkey if found is None else found.redeem_script or output.script_pubkey
    version = _witness_version(program)
    if version != 1:  # a taproot signature commits to all amounts
        yield 0x00, b"", previous
    if version is not None:
        yield 0x01, b"", bytes(output)
    if found is None:
        return
    yield from _scripts(found, redeem=0x04, witness=0x05, origin=0x06, tap_origin=0x16)
    for leaf in found.leaves:
        yield 0x15, leaf.control_block, leaf.script + _LEAF_VERSION
    if found.internal_key is not None:
        yield 0x17, b"", found.internal_key
    if found.merkle_root is not None:
        yield 0x18, b"", found.merkle_root


class SilentSpend(NamedTuple):
    """The secret and the key that a signer needs to spend a silent payment."""

    tweak: bytes
    """Secret to add to the private spend key to get the output's private key. Empty if unknown."""
    spend_pubkey: bytes
    """Compressed public spend key."""
    origin: Origin | None
    """Origin of the spend key, if the descriptor includes it."""


def silent_pairs(output: TxOut, found: SilentSpend) -> Iterator[Pair]:
    """Yield the pairs of an input that spends a silent payment (BIP-376)."""
    fingerprint, path = found.origin or (hash160(found.spend_pubkey)[:4], ())
    yield 0x01, b"", bytes(output)
    yield 0x1F, found.spend_pubkey, fingerprint + b"".join(step.to_bytes(4, "little") for step in path)
    yield 0x20, b"", found.tweak


def output_pairs(found: Spending | None) -> Iterator[Pair]:
    """Yield the pairs of an output, which let a signing device recognize change."""
    if found is None:
        return
    yield from _scripts(found, redeem=0x00, witness=0x01, origin=0x02, tap_origin=0x07)
    if found.internal_key is not None:
        yield 0x05, b"", found.internal_key
    if found.leaves:
        yield 0x06, b"", b"".join(bytes((leaf.depth,)) + _LEAF_VERSION + _sized(leaf.script) for leaf in found.leaves)


def _scripts(found: Spending, *, redeem: int, witness: int, origin: int, tap_origin: int) -> Iterator[Pair]:
    """Yield scripts and keys, with the types for an input or an output."""
    if found.redeem_script is not None:
        yield redeem, b"", found.redeem_script
    if found.witness_script is not None:
        yield witness, b"", found.witness_script
    for key in found.keys:
        place = key.fingerprint + b"".join(step.to_bytes(4, "little") for step in key.path)
        if len(key.public_key) == 32:
            yield tap_origin, key.public_key, compact_size(len(key.leaf_hashes)) + b"".join(key.leaf_hashes) + place
        else:
            yield origin, key.public_key, place


def _witness_version(script: bytes) -> int | None:
    """Return the version of a witness program (BIP-141), or None if the script is not one."""
    if not 4 <= len(script) <= 42 or script[1] != len(script) - 2 or not (script[0] == 0 or 0x51 <= script[0] <= 0x60):
        return None
    return script[0] and script[0] - 0x50


def psbt_of(checked: Checked, network: Network, tx: Transaction, previous: Mapping[bytes, Transaction]) -> bytes:
    """Return a PSBT for an unsigned transaction.

    Args:
        checked: Function that reads rows of the database.
        network: Network of the wallet.
        tx: The unsigned transaction.
        previous: The wallet's transactions, keyed by txid.

    A DescriptorWarning names the keys of inputs that signing devices will not recognize.

    Raises:
        ParameterError: The transaction is signed, spends an output that does not exist, or spends no output of a
            transaction that the wallet knows.
        DescriptorError: A descriptor contains musig(), or the `descriptors` extra is not installed.
    """
    if tx.span.witness or any(start != end for _, start, end in tx.span.inputs):
        raise ParameterError("the transaction has signatures: pass it without them")
    spent = [_spent(outpoint, previous) for outpoint in tx.inputs]
    if not any(spent):
        raise ParameterError("the wallet knows none of the outputs that the transaction spends")
    scripts = {output.script_pubkey for output in (*tx.outputs, *filter(None, spent))}
    found, descriptors, silent = _spendings(checked, network, scripts)
    signed = {text for output in filter(None, spent) if (text := descriptors.get(output.script_pubkey)) is not None}
    inputs = list[Iterable[Pair]]()
    for outpoint, output in zip(tx.inputs, spent, strict=True):
        if output is None:
            inputs.append(())
        elif (payment := silent.get(output.script_pubkey)) is None:
            inputs.append(input_pairs(output, previous[outpoint[:32]].raw, found.get(output.script_pubkey)))
        elif payment.tweak:
            inputs.append(silent_pairs(output, payment))
        else:
            raise ParameterError(
                f"the tweak of the silent payment {OutPoint.parse(outpoint)} is unknown: rescan, starting at its block"
            )
    outputs = (output_pairs(found.get(output.script_pubkey)) for output in tx.outputs)
    has_silent = any(output is not None and output.script_pubkey in silent for output in spent)
    psbt = (encode_version_2 if has_silent else encode)(tx, xpub_pairs(signed), inputs, outputs)
    _warn_of_strangers(signed)
    return psbt


def xpub_pairs(descriptors: Iterable[str]) -> list[Pair]:
    """Return the pairs of a multisig wallet's extended keys, which signing devices ask for.

    A key without a known path from its master key is omitted, as BIP-174 requires.
    """
    found: dict[bytes, bytes] = {}
    for text in descriptors:
        placed = account_keys(text)
        for key in placed if len(placed) > 1 else ():
            if (place := key.place) is not None:
                found.setdefault(key.raw, place)
    return [(0x01, key, found[key]) for key in sorted(found)]


def _warn_of_strangers(descriptors: Iterable[str]) -> None:
    """Warn with DescriptorWarning about keys that a signing device cannot recognize in the PSBT."""
    strangers = (key for text in descriptors for key in account_keys(text) if not key.is_found)
    lost = sorted({f"{key.text[:12]}…{key.text[-4:]}" for key in strangers})
    if lost:
        warnings.warn(
            f"signing devices will not recognize {', '.join(lost[:_MOST_NAMED])} in this PSBT, because the descriptor"
            " does not include the key's whole origin. Watch the descriptor with [FINGERPRINT/PATH] before each key,"
            " where FINGERPRINT is the master key's",
            DescriptorWarning,
            stacklevel=2,
        )


def _spent(outpoint: bytes, previous: Mapping[bytes, Transaction]) -> TxOut | None:
    """Return the output that an input spends, or None if the wallet does not know its transaction."""
    tx, index = previous.get(outpoint[:32]), int.from_bytes(outpoint[32:], "little")
    if tx is None:
        return None
    if index >= (number := len(tx.span.outputs)):
        raise ParameterError(
            f"{OutPoint.parse(outpoint)} does not exist: that transaction has {counted(number, 'output')}"
        )
    return tx.output(index)


def _spendings(
    checked: Checked, network: Network, scripts: set[bytes]
) -> tuple[dict[bytes, Spending], dict[bytes, str], dict[bytes, SilentSpend]]:
    """Return the scripts and keys of watched scripts whose keychain has a descriptor, keyed by scriptPubKey.

    The second result contains the names of these keychains, which are their descriptors. The third contains the scripts
    of silent payments, which are not in the first two.
    """
    silent = dict[bytes, SilentSpend]()
    places, derive = EntryPlaces(checked), dict[str, Callable[[int], tuple[Spending, ...]] | None]()
    found: dict[bytes, Spending] = {}
    owners: dict[bytes, str] = {}
    wanted = sorted(scripts)
    for at in range(0, len(wanted), _PER_QUERY):  # each query reads the whole table, which has no index of scripts
        part = wanted[at : at + _PER_QUERY]
        where = f"FROM watch WHERE kind = ? AND value IN ({', '.join('?' * len(part))})"
        for row, _, script, *_ in checked("watch", where, (int(EntryKind.SCRIPT), *part)):
            name, index = places.find(row)
            if name is not None and (payment := _silent_spend(checked, network, row, name)) is not None:
                silent[script] = payment
                continue
            if name is None or index is None:
                continue
            if name not in derive:
                derive[name] = _deriving(checked, network, name)
            spending = derive[name]
            if spending is not None:
                made = {each.script_pubkey: each for each in spending(index)}
                found |= made
                owners |= dict.fromkeys(made, name)
    return found, owners, silent


def _silent_spend(checked: Checked, network: Network, row: int, name: str) -> SilentSpend | None:
    """Return what is needed to spend a silent payment, or None if the entry is not one.

    `name` is its keychain's name.
    """
    for _, tweak, _ in checked("sp_outputs", "FROM sp_outputs WHERE entry = ?", (row,)):
        where = "FROM sp_keys WHERE keychain IN (SELECT id FROM keychains WHERE name = ?)"
        for _, secret, *_ in checked("sp_keys", where, (name,)):
            descriptor = parse_silent(secret, network)
            return SilentSpend(tweak, descriptor.spend_pubkey, descriptor.spend_origin)
    return None


def _deriving(checked: Checked, network: Network, name: str) -> Callable[[int], tuple[Spending, ...]] | None:
    """Return a function that derives the scripts and keys of a keychain, or None if it has no descriptor."""
    for _, _, _, descriptor, *_ in checked("keychains", "FROM keychains WHERE name = ?", (name,)):
        if descriptor is not None:
            found = parse_descriptor(descriptor, network, is_stored=True)
            return next((each.spending for each in found if each.text == name), None)
    return None
