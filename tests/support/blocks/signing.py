"""Transactions that spend coins of every common script, with real signatures. No assertions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from spvfilter.hashes import hash160
from spvfilter.node.scripts import push
from spvfilter.primitives import OutPoint, TxOut, compact_size
from spvfilter.signatures import Curve, SigHashes, find_curve
from spvfilter.signatures.curve import ORDER
from spvfilter.signatures.sighash import tagged_hash
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn

Spend = tuple[bytes, tuple[bytes, ...]]
"""ScriptSig and witness of an input."""


def curve() -> Curve:
    found = find_curve()
    if found is None:
        pytest.skip("libsecp256k1: pip install 'spvfilter[descriptors]'", allow_module_level=True)
    return found


def secret(number: int) -> bytes:
    """A private key for tests."""
    return hashlib.sha256(b"key of tests %d" % number).digest()


def public(number: int, *, compressed: bool = True) -> bytes:
    key = curve().public_key(secret(number))
    if compressed:
        return key
    prime = 2**256 - 2**32 - 977
    x = int.from_bytes(key[1:], "big")
    y = pow(x**3 + 7, (prime + 1) // 4, prime)
    if y % 2 != key[0] % 2:
        y = prime - y
    return b"\x04" + key[1:] + y.to_bytes(32, "big")


def der(signature: bytes) -> bytes:
    """A signature of 64 bytes in DER."""
    numbers = b""
    for part in (signature[:32], signature[32:]):
        number = part.lstrip(b"\x00") or b"\x00"
        number = (b"\x00" if number[0] & 0x80 else b"") + number
        numbers += bytes((2, len(number))) + number
    return bytes((0x30, len(numbers))) + numbers


def high_s(signature: bytes) -> bytes:
    """The same signature of 64 bytes with n - s."""
    return signature[:32] + (ORDER - int.from_bytes(signature[32:], "big")).to_bytes(32, "big")


def taproot_key(number: int, root: bytes = b"") -> tuple[bytes, bytes]:
    """The tweaked private key and the output key, 32 bytes each."""
    key, private = curve().public_key(secret(number)), secret(number)
    if key[0] == 3:
        private = (ORDER - int.from_bytes(private, "big")).to_bytes(32, "big")
    tweaked = curve().tweak_secret(private, tagged_hash("TapTweak", key[1:] + root))
    return tweaked, curve().public_key(tweaked)[1:]


@dataclass(frozen=True)
class Kind:
    """A script of a coin, and how it is spent."""

    name: str
    script_pubkey: bytes
    spend: Callable[[SigHashes, int, int], Spend] = field(repr=False)
    """Takes the hashes, the index of the input and the hash type."""


def _signed(hashes: SigHashes, index: int, script: bytes, kind: int, key: int, *, segwit: bool) -> bytes:
    digest = (hashes.segwit if segwit else hashes.legacy)(index, script, kind)
    if digest is None:
        raise RuntimeError("no hash")
    return der(curve().sign_ecdsa(secret(key), digest)) + bytes((kind,))


def pk(key: int, *, compressed: bool = True) -> Kind:
    script = push(public(key, compressed=compressed)) + b"\xac"
    return Kind("pk", script, lambda h, i, t: (push(_signed(h, i, script, t, key, segwit=False)), ()))


def pkh_script(data: bytes) -> bytes:
    return b"\x76\xa9\x14" + hash160(data) + b"\x88\xac"


def pkh(key: int, *, compressed: bool = True) -> Kind:
    data = public(key, compressed=compressed)
    script = pkh_script(data)
    return Kind("pkh", script, lambda h, i, t: (push(_signed(h, i, script, t, key, segwit=False)) + push(data), ()))


def wpkh(key: int, *, compressed: bool = True) -> Kind:
    data = public(key, compressed=compressed)
    script = pkh_script(data)
    return Kind(
        "wpkh",
        b"\x00\x14" + hash160(data),
        lambda h, i, t: (b"", (_signed(h, i, script, t, key, segwit=True), data)),
    )


def sh(inner: Kind) -> Kind:
    """P2SH of another kind; its own script is the redeem script."""

    def spend(hashes: SigHashes, index: int, kind: int) -> Spend:
        script_sig, witness = inner.spend(hashes, index, kind)
        return script_sig + push(inner.script_pubkey), witness

    return Kind(f"sh-{inner.name}", b"\xa9\x14" + hash160(inner.script_pubkey) + b"\x87", spend)


def multi_script(required: int, keys: Sequence[bytes]) -> bytes:
    def number(value: int) -> bytes:
        return bytes((0x50 + value,)) if value <= 16 else bytes((1, value))

    return number(required) + b"".join(map(push, keys)) + number(len(keys)) + b"\xae"


def multi(required: int, keys: Sequence[int], signers: Sequence[int] | None = None) -> Kind:
    script = multi_script(required, [public(key) for key in keys])
    chosen = list(keys[:required] if signers is None else signers)

    def spend(hashes: SigHashes, index: int, kind: int) -> Spend:
        signatures = [_signed(hashes, index, script, kind, key, segwit=False) for key in chosen]
        return b"\x00" + b"".join(map(push, signatures)), ()

    return Kind(f"multi-{required}-{len(keys)}", script, spend)


def wsh_multi(required: int, keys: Sequence[int], signers: Sequence[int] | None = None) -> Kind:
    script = multi_script(required, [public(key) for key in keys])
    chosen = list(keys[:required] if signers is None else signers)

    def spend(hashes: SigHashes, index: int, kind: int) -> Spend:
        signatures = [_signed(hashes, index, script, kind, key, segwit=True) for key in chosen]
        return b"", (b"", *signatures, script)

    return Kind(f"wsh-multi-{required}-{len(keys)}", b"\x00\x20" + hashlib.sha256(script).digest(), spend)


def wsh_pk(key: int) -> Kind:
    script = push(public(key)) + b"\xac"
    return Kind(
        "wsh-pk",
        b"\x00\x20" + hashlib.sha256(script).digest(),
        lambda h, i, t: (b"", (_signed(h, i, script, t, key, segwit=True), script)),
    )


def tr(key: int) -> Kind:
    tweaked, output_key = taproot_key(key)

    def spend(hashes: SigHashes, index: int, kind: int) -> Spend:
        digest = hashes.taproot(index, kind)
        if digest is None:
            raise RuntimeError("no hash")
        return b"", (curve().sign_schnorr(tweaked, digest) + (bytes((kind,)) if kind else b""),)

    return Kind("tr", b"\x51\x20" + output_key, spend)


def tr_script(key: int) -> Kind:
    """Taproot that is spent by a script."""
    script = push(public(key)[1:]) + b"\xac"
    leaf = tagged_hash("TapLeaf", b"\xc0" + compact_size(len(script)) + script)
    sibling = bytes(range(32))
    root = tagged_hash("TapBranch", b"".join(sorted((leaf, sibling))))
    inner = public(key)[1:]
    output = curve().tweak_key(b"\x02" + inner, tagged_hash("TapTweak", inner + root))
    control = bytes((0xC0 | (output[0] & 1),)) + inner + sibling

    def spend(hashes: SigHashes, index: int, _: int) -> Spend:
        parts = [b"\x00\x00", hashes.tx.raw[:4], hashes.tx.raw[-4:]]
        known = [out for out in hashes.spent if out is not None]
        tx = hashes.tx
        parts.append(_sha(b"".join(tx.inputs)))
        parts.append(_sha(b"".join([out.value.to_bytes(8, "little") for out in known])))
        parts.append(_sha(b"".join([bytes(out)[8:] for out in known])))
        parts.append(_sha(b"".join([number.to_bytes(4, "little") for number in tx.sequences])))
        parts.append(_sha(b"".join(map(bytes, tx.outputs))))
        parts += [b"\x02", index.to_bytes(4, "little"), leaf, b"\x00", b"\xff" * 4]
        digest = tagged_hash("TapSighash", b"".join(parts))
        return b"", (curve().sign_schnorr(secret(key), digest), script, control)

    return Kind("tr-script", b"\x51\x20" + output[1:], spend)


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def kinds() -> list[Kind]:
    """Return a coin of each kind."""
    return [
        pk(1),
        pk(2, compressed=False),
        pkh(3),
        pkh(4, compressed=False),
        wpkh(5),
        sh(wpkh(6)),
        multi(2, [7, 8, 9], [7, 9]),
        sh(multi(2, [10, 11, 12], [11, 12])),
        sh(pkh(13)),
        wsh_multi(2, [14, 15, 16], [14, 15]),
        sh(wsh_multi(3, range(17, 22))),
        sh(multi(1, range(22, 37), [36])),
        wsh_multi(1, range(40, 60), [59]),
        wsh_pk(60),
        tr(61),
    ]


def signed_tx(
    coins: Sequence[tuple[Kind, int]],
    outputs: Sequence[TxOut],
    hash_types: Sequence[int],
    *,
    sequence: int = 0xFFFFFFFD,
    version: int = 2,
    lock_time: int = 0,
    outpoints: Sequence[OutPoint] | None = None,
) -> tuple[Transaction, list[TxOut], list[TxIn]]:
    """A transaction that spends coins (kind and value), the outputs that it spends, and its inputs."""
    places = outpoints or [OutPoint(hashlib.sha256(b"coin %d" % at).digest(), at) for at in range(len(coins))]
    spent = [TxOut(value, kind.script_pubkey) for kind, value in coins]
    unsigned = [TxIn(place, sequence=sequence) for place in places]
    hashes = SigHashes(Transaction.parse(build_tx(unsigned, outputs, version=version, lock_time=lock_time)), spent)
    inputs = []
    for at, ((kind, _), hash_type) in enumerate(zip(coins, hash_types, strict=True)):
        script_sig, witness = kind.spend(hashes, at, hash_type)
        inputs.append(TxIn(places[at], script_sig, witness, sequence))
    raw = build_tx(inputs, outputs, version=version, lock_time=lock_time)
    return Transaction.parse(raw), spent, inputs
