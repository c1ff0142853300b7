"""Silent payments for tests: a wallet's keys and descriptors, and transactions that pay its addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from spvfilter import MatchKind, build_tx
from spvfilter.address import Bech32Encoding, bech32_encode
from spvfilter.hashes import hash160
from spvfilter.kernel import silent_candidate, spent_outpoints
from spvfilter.kernel.pure.address import to_5_bits
from spvfilter.network import MAINNET, Network
from spvfilter.node import Regtest
from spvfilter.primitives import OutPoint, TxOut, read_compact_size
from spvfilter.signatures.sighash import SigHashes
from spvfilter.silent.address import SilentAddress, silent_prefix
from spvfilter.transaction import Transaction, TxIn
from support.blocks import build, chains, undo
from support.peers.corenode import CoreNode

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""Order of the curve secp256k1."""


def public(private: int) -> bytes:
    """The compressed public key of a private key."""
    from btclib_secp256k1 import keys

    return bytes(keys.pubkey_from_prvkey(private.to_bytes(32, "big")))


class Wallet:
    """The keys of a silent payment wallet."""

    def __init__(self, scan: int = 7, spend: int = 11, network: Network = MAINNET) -> None:
        self.scan_key = scan.to_bytes(32, "big")
        self.spend_key = spend.to_bytes(32, "big")
        self.spend_pubkey = public(spend)
        self.network = network
        self.scan_pubkey = public(scan)

    @property
    def scan_text(self) -> str:
        return encoded(f"{self._prefix}scan", self.scan_key + self.spend_pubkey)

    @property
    def _prefix(self) -> str:
        return silent_prefix(self.network)

    @property
    def descriptor(self) -> str:
        return f"sp([deadbeef/352h/0h/0h]{self.scan_text})"

    def address(self, label: int | None = None) -> SilentAddress:
        from btclib_secp256k1 import silentpayments

        spend = self.spend_pubkey
        if label is not None:
            point, _ = silentpayments.label(self.scan_key, label)
            spend = bytes(silentpayments.labeled_spend_pubkey(spend, point))
        return SilentAddress(self.scan_pubkey, spend, self.network)


def encoded(hrp: str, payload: bytes, version: int = 0) -> str:
    values = bytes((version,)) + to_5_bits(payload)
    return bech32_encode(hrp, values, Bech32Encoding.BECH32M, limit=2_000)


def payment(
    addresses: Sequence[SilentAddress], *, salt: int = 0, kind: str = "p2wpkh", value: int = 50_000, inputs: int = 1
) -> tuple[bytes, list[TxOut]]:
    """A transaction that pays addresses, and the outputs that it spends. Its keys depend on `salt`."""
    from btclib_secp256k1 import silentpayments

    privates = [1_000 + 10 * salt + number for number in range(inputs)]
    spends, spent = [], []
    for number, private in enumerate(privates):
        key = public(private)
        program = b"\0\x14" + hash160(key)
        txid = sha256(b"coin" + bytes((number,)) + salt.to_bytes(4, "big")).digest()
        if kind == "p2wpkh":
            spends.append(build.TxIn(txid, number, witness=(bytes(71), key)))
            spent.append(TxOut(1_000_000, program))
        elif kind == "p2tr":
            spends.append(build.TxIn(txid, number, witness=(bytes(64),)))
            spent.append(TxOut(1_000_000, b"\x51\x20" + key[1:]))
        else:
            raise ValueError(kind)
    smallest = min(each.outpoint for each in spends)
    keys = {"taproot_prvkeys": privates} if kind == "p2tr" else {"prvkeys": privates}
    made = silentpayments.create_outputs(
        [(each.scan_pubkey, each.spend_pubkey) for each in addresses],
        smallest,
        **{name: [each.to_bytes(32, "big") for each in values] for name, values in keys.items()},
    )
    outputs = [build.TxOut(value + number, b"\x51\x20" + bytes(key)) for number, key in enumerate(made)]
    return build.tx(spends, [*outputs, build.TxOut(1, b"\x51")]), spent


def chained_payment(address: SilentAddress) -> tuple[bytes, bytes]:
    """A transaction with a taproot output, and a transaction that spends this output and pays an address."""
    from btclib_secp256k1 import silentpayments

    private, value = 77, 90_000
    parent = build.tx([build.TxIn(b"\5" * 32, 3)], [build.TxOut(value, b"\x51\x20" + public(private)[1:])])
    spend = build.TxIn(build.txid(parent), 0, witness=(bytes(64),))
    (key,) = silentpayments.create_outputs(
        [(address.scan_pubkey, address.spend_pubkey)], spend.outpoint, taproot_prvkeys=[private.to_bytes(32, "big")]
    )
    return parent, build.tx([spend], [build.TxOut(value - 500, b"\x51\x20" + bytes(key))])


class SilentChain:
    """A regtest chain with silent payments to a wallet, their spends, a reused output and payments to others."""

    def __init__(self, wallet: Wallet, *, kind: str = "p2tr") -> None:
        coins: dict[bytes, undo.Spent] = {}

        def pay(addresses: Sequence[SilentAddress], salt: int) -> bytes:
            raw, spent = payment(addresses, salt=salt, kind=kind, inputs=1 + salt % 2)
            for outpoint, each in zip(spent_outpoints(raw), spent, strict=True):
                coins[outpoint] = undo.Spent(each.value, each.script_pubkey)
            return raw

        other = Wallet(scan=5, network=wallet.network)
        first = pay([wallet.address(), wallet.address(1)], 1)
        change = pay([other.address(), wallet.address(0)], 2)
        again = build.tx(
            [build.TxIn(build.txid(first), 2)], [build.TxOut(1, output_of(first, 0)), build.TxOut(0, b"\x6a")]
        )
        spend = build.tx([build.TxIn(build.txid(first), 0)], [build.TxOut(10, b"\x51")])
        both = build.tx(
            [build.TxIn(build.txid(first), 1), build.TxIn(build.txid(change), 1)], [build.TxOut(10, b"\x51")]
        )
        bodies = [
            [],
            [first],
            [pay([other.address()], 3)],
            [change, spend],
            [again],
            [],
            [both, pay([other.address()], 4)],
        ]
        bodies += [[pay([wallet.address(8)], 5)], [], []]
        genesis = Regtest().chain.active[0].raw
        self.blocks: list[bytes] = [genesis, *build.chain_of(bodies, build.block_hash(genesis), 1)]
        """The blocks of the chain, from the genesis block on."""
        self.spent: list[list[list[undo.Spent]]] = undo.spent_of(self.blocks, coins)
        """The coins that each block spends."""
        self.records: list[bytes] = undo.records_of(self.blocks, coins)
        """The undo record of each block."""
        spends, paid = MatchKind.INPUT, MatchKind.OUTPUT
        self.expected: list[tuple[MatchKind, bytes, int, int | None]] = [
            (paid, build.txid(first), 0, None),
            (paid, build.txid(first), 1, 1),
            (paid, build.txid(change), 1, 0),
            (spends, build.txid(spend), 0, None),
            (paid, build.txid(again), 0, None),
            (spends, build.txid(both), 0, 1),
            (spends, build.txid(both), 1, 0),
        ]
        """Kind, txid, index and label of each match, for a list that declares label 1 alone."""

    def write(self, folder: Path, *, has_undo: bool = True) -> Path:
        """Write the chain as files of blocks and undo records."""
        folder.mkdir(exist_ok=True)
        (folder / "blk00000.dat").write_bytes(b"".join(map(chains.record, self.blocks)))
        if has_undo:
            undo.write_undo(folder / "rev00000.dat", self.records)
        return folder

    def node(self) -> CoreNode:
        """A node of the chain that serves spent outputs."""
        node = CoreNode(self.blocks)
        node.spends(self.spent)
        return node


Map = dict[tuple[int, bytes], bytes]
"""Values of a map of a PSBT, by the type and the rest of the key."""


def psbt_maps(raw: bytes) -> list[Map]:
    """The maps of a PSBT in order."""
    if not raw.startswith(b"psbt\xff"):
        raise ValueError("not a PSBT")
    at, maps = 5, [Map()]
    while at < len(raw):
        size, start = read_compact_size(raw, at, "key")
        length, value = read_compact_size(raw, start + size, "value") if size else (0, start)
        at = value + length
        if not size:
            maps.append({})
        elif (key := (raw[start], raw[start + 1 : start + size])) in maps[-1]:
            raise ValueError("a key twice")
        else:
            maps[-1][key] = raw[value:at]
    return maps[:-1]


def signed(wallet: Wallet, psbt: bytes) -> bytes:
    """The final transaction of a PSBT of version 2 whose inputs all spend silent payments: a signer by BIP-376."""
    from btclib_secp256k1 import keys, ssa

    head, *maps = psbt_maps(psbt)
    if head[0xFB, b""] != b"\2\0\0\0" or (0, b"") in head:
        raise ValueError("not version 2")
    count = head[4, b""][0]
    ins, outs = maps[:count], maps[count:]
    if len(outs) != head[5, b""][0]:
        raise ValueError("another number of outputs")
    spends, privates = list[TxIn](), list[bytes]()
    for each in ins:
        spent = TxOut(int.from_bytes(each[1, b""][:8], "little"), each[1, b""][9:])
        if (0x1F, wallet.spend_pubkey) not in each:
            raise ValueError("the spend key of another wallet")
        tweak = int.from_bytes(each[0x20, b""], "big")
        private = ((int.from_bytes(wallet.spend_key, "big") + tweak) % ORDER).to_bytes(32, "big")
        if b"\x51\x20" + bytes(keys.pubkey_from_prvkey(private))[1:] != spent.script_pubkey:
            raise ValueError("the tweak is not that of the output")
        point = OutPoint(each[0x0E, b""], int.from_bytes(each[0x0F, b""], "little"))
        spends.append(TxIn(point, sequence=int.from_bytes(each[0x10, b""], "little"), spent=spent))
        privates.append(private)
    outputs = [TxOut(int.from_bytes(each[3, b""], "little"), each[4, b""]) for each in outs]
    version, lock_time = (int.from_bytes(head[kind, b""], "little") for kind in (2, 3))
    unsigned = Transaction.parse(build_tx(spends, outputs, version=version, lock_time=lock_time))
    hashes = SigHashes(unsigned, [each.spent for each in spends])
    witnesses = [bytes(ssa.sign(hashes.taproot(n, 0) or b"", private)) for n, private in enumerate(privates)]
    final = [replace(each, witness=(witness,)) for each, witness in zip(spends, witnesses, strict=True)]
    return build_tx(final, outputs, version=version, lock_time=lock_time)


def output_of(raw: bytes, index: int) -> bytes:
    """The script of an output."""
    return Transaction.parse(raw).outputs[index].script_pubkey


def tweak_of(raw: bytes, scripts: Sequence[bytes | None]) -> bytes | None:
    """The tweak of a transaction, the sum of its input keys times the hash of the inputs; None if it has none."""
    from btclib_secp256k1 import keys

    _, candidate = silent_candidate(raw, 0, scripts)
    if candidate is None or candidate.paths:
        return None
    found = [b"\2" + candidate.taproot_keys[at : at + 32] for at in range(0, len(candidate.taproot_keys), 32)]
    found += [candidate.keys[at : at + 33] for at in range(0, len(candidate.keys), 33)]
    found += [sig[-33:] for sig, key_hash in candidate.hashed if hash160(sig[-33:]) == key_hash]  # plain P2PKH
    if not found:
        return None
    total = bytes(keys.pubkey_combine(found))
    tag = sha256(b"BIP0352/Inputs").digest()
    return bytes(keys.pubkey_tweak_mul(total, sha256(tag + tag + candidate.outpoint + total).digest()))
