"""PSBTs of a wallet's transactions: other programs sign and finalize them, and they recognize change."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from spvfilter._public import deferred
from spvfilter.errors import DescriptorError, DescriptorWarning, FormatError, ParameterError
from spvfilter.hashes import hash160
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signing import build_tx
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredMatch, StoredTx, TxStatus
from spvfilter.store.place import MEMORY
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction, TxIn
from spvfilter.watch.descriptor import parse_descriptor
from spvfilter.watch.match import Completeness
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import p2wpkh, txid
from support.oracles.coreengine import satisfies
from support.wallets.stores import opened

pytestmark = pytest.mark.descriptors
if TYPE_CHECKING:
    base58: Any
    bdk: Any
else:
    base58 = deferred("bitcoin.base58")
    bdk = deferred("bdkpython")

ACCOUNT = (  # m/84h/1h/0h of the phrase abandon … about
    "[73c5da0a/84'/1'/0']tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQ"
    "gewGiYZqrA9DsP4zbQ1M"
)
WORDS = {"A": "abandon " * 11 + "about", "B": "zoo " * 11 + "wrong"}
# a point without a known private key (BIP-341)
NUMS = "50929b74c1a04954b78b4b6035e97a5e078a5a0f28ec96d547bfee9ace803ac0"
STRANGER = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
DESCRIPTORS = [
    "pkh(A/0/*)",
    "wpkh(A/<0;1>/*)",
    "sh(wpkh(A/0/*))",
    "sh(multi(1,A/0/*,B/0/*))",
    "wsh(multi(2,A/0/*,B/0/*))",
    "sh(wsh(sortedmulti(2,A/0/*,B/1/*)))",
    "wsh(and_v(v:pk(A/0/*),older(5)))",
    "tr(A/0/*)",
    "tr(A/0/*,{pk(B/1/*),{pk(A/2/*),multi_a(1,A/3/*,B/4/*)}})",
    f"tr({NUMS},{{pk(B/1/*),and_v(v:pk(B/2/*),older(5))}})",
    f"tr({NUMS},{{{{pk({STRANGER}),pk(A/1/*)}},pk({NUMS})}})",
]


def accounts(*, is_secret: bool) -> dict[str, str]:
    """The accounts as extended keys, private or public, by BDK."""
    found = {}
    for name, words in WORDS.items():
        root = bdk.DescriptorSecretKey(bdk.NetworkKind.TEST, bdk.Mnemonic.from_string(words), None)
        key = root.derive(bdk.DerivationPath("m/84h/1h/0h"))
        found[name] = str(key if is_secret else key.as_public()).rstrip("/*")
    return found


def filled(descriptor: str, keys: dict[str, str]) -> str:
    for name, key in keys.items():
        descriptor = descriptor.replace(f"{name}/", f"{key}/")
    return descriptor


class Wallet:
    """A database with the keychains of a descriptor, and a payment of 90,000 satoshi to index 7 of the first one."""

    def __init__(self, descriptor: str) -> None:
        self.store: Store = opened(MEMORY)
        watch = WatchList(REGTEST)
        self.keychains = watch.add_descriptor(descriptor)
        watch.add_script(p2wpkh(b"\x07" * 20))
        watch.widen()
        self.store.attach(watch)
        self.store.commit(Batch(headers=REGTEST.genesis))
        self.script = self.keychains[0].scripts_at(7)[-1]
        outputs = [TxOut(5_000, p2wpkh(b"\x07" * 20)), TxOut(90_000, self.script)]
        raw = build_tx([TxIn(OutPoint(b"\x09" * 32, 0))], outputs)
        self.paid = OutPoint(txid(raw), 1)
        matches = [StoredMatch(hit, None, None, Completeness.PROVEN) for hit in watch.table.scan_tx(raw)]
        row = StoredTx(raw, TxStatus.PENDING, None, 5)
        self.store.commit(Batch(matches=matches, transactions={txid(raw): row}))

    def psbt(self) -> bytes:
        """The PSBT of `spend`."""
        return self.store.views.psbt(self.spend())

    def spend(self) -> bytes:
        """An unsigned transaction that spends the payment, with change at index 8 of the last keychain."""
        outputs = [TxOut(10_000, p2wpkh(b"\x08" * 20)), TxOut(79_000, self.keychains[-1].scripts_at(8)[-1])]
        return build_tx([TxIn(self.paid, sequence=5)], outputs)


def parsed(psbt: bytes) -> list[dict[bytes, bytes]]:
    """The maps of a PSBT, read by the test itself."""
    assert psbt.startswith(b"psbt\xff")
    maps, at = [dict[bytes, bytes]()], 5

    def take() -> bytes:
        nonlocal at
        size = psbt[at]
        at += 1
        if size == 0xFD:
            size, at = int.from_bytes(psbt[at : at + 2], "little"), at + 2
        at += size
        return psbt[at - size : at]

    while at < len(psbt):
        if key := take():
            assert key not in maps[-1]
            maps[-1][key] = take()
        else:
            maps.append({})
    assert maps.pop() == {}
    return maps


@pytest.mark.core
@pytest.mark.kyoto
@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_bdk_signs_and_finalizes(descriptor: str) -> None:
    wallet = Wallet(filled(descriptor, accounts(is_secret=False)))
    secret = filled(descriptor, accounts(is_secret=True)).replace("<0;1>", "0")
    signer = bdk.Wallet.create_single(
        bdk.Descriptor(secret, bdk.NetworkKind.TEST), bdk.Network.REGTEST, bdk.Persister.new_in_memory(), 25
    )
    unsigned = wallet.spend()
    psbt = bdk.Psbt(base64.b64encode(wallet.store.views.psbt(unsigned)).decode())
    options = bdk.SignOptions(
        trust_witness_utxo=False,
        assume_height=None,
        allow_all_sighashes=False,
        try_finalize=False,
        sign_with_tap_internal_key=True,
        allow_grinding=False,
    )
    signer.sign(psbt, options)
    result = psbt.finalize()
    assert result.could_finalize, result.errors  # it checks the signatures
    final, before = Transaction.parse(result.psbt.extract_tx().serialize()), Transaction.parse(unsigned)
    assert (final.inputs, final.sequences, final.outputs) == (before.inputs, before.sequences, before.outputs)
    assert result.psbt.fee() == 1_000
    assert satisfies(final.raw, [TxOut(90_000, wallet.script)])
    assert not satisfies(final.raw, [TxOut(90_000, p2wpkh(bytes(20)))])


def test_wallycore_reads_every_field() -> None:
    wally = pytest.importorskip("wallycore")
    wallet = Wallet(f"wpkh({ACCOUNT}/<0;1>/*)")
    psbt = wally.psbt_from_bytes(wallet.store.views.psbt(wallet.spend()), 0)
    assert (wally.psbt_get_num_inputs(psbt), wally.psbt_get_num_outputs(psbt)) == (1, 2)
    assert wally.psbt_get_input_keypaths_size(psbt, 0) == 1
    assert wally.psbt_get_output_keypaths_size(psbt, 1) == 1


@pytest.mark.core
@pytest.mark.embit
@pytest.mark.parametrize("descriptor", ["pkh(A/0/*)", "wpkh(A/0/*)", "sh(wpkh(A/0/*))", "tr(A/0/*)"])
def test_embit_signs_and_finalizes(descriptor: str) -> None:
    from embit import bip32, bip39, finalizer
    from embit.psbt import PSBT

    wallet = Wallet(descriptor.replace("A", ACCOUNT))
    unsigned = wallet.spend()
    psbt = PSBT.parse(wallet.store.views.psbt(unsigned))
    assert psbt.sign_with(bip32.HDKey.from_seed(bip39.mnemonic_to_seed(WORDS["A"]))) == 1
    final = finalizer.finalize_psbt(psbt).serialize()
    assert Transaction.parse(final).outputs == Transaction.parse(unsigned).outputs
    assert satisfies(final, [TxOut(90_000, wallet.script)])


def test_inputs_and_change_have_origins() -> None:
    wallet = Wallet(f"wpkh({ACCOUNT}/<0;1>/*)")
    _, spent, payment, change = parsed(wallet.store.views.psbt(wallet.spend()))
    previous = wallet.store.views.transaction(wallet.paid.txid)
    assert previous is not None
    assert spent[b"\x00"] == previous.raw
    assert spent[b"\x01"] == bytes(TxOut(90_000, wallet.script))
    steps = [(1 << 31) + 84, (1 << 31) + 1, 1 << 31]
    for found, kind, path in ((spent, 6, (*steps, 0, 7)), (change, 2, (*steps, 1, 8))):
        ((key, place),) = [(key, value) for key, value in found.items() if key[0] == kind]
        assert len(key) == 34
        assert place == bytes.fromhex("73c5da0a") + b"".join(step.to_bytes(4, "little") for step in path)
    assert payment == {}


@pytest.mark.parametrize("origin", ["", "[00000000/84h/1h/0h]", "[73c5da0a]", "[73c5da0a/84h/1h]"])
def test_a_key_that_no_signer_recognizes_is_named(origin: str) -> None:
    key = ACCOUNT.partition("]")[2]
    wallet = Wallet(f"wsh(multi(1,{origin}{key}/<0;1>/*,{ACCOUNT}/<2;3>/*))")
    with pytest.warns(DescriptorWarning, match=f"will not recognize {key[:12]}…{key[-4:]} in this PSBT") as caught:
        wallet.store.views.psbt(wallet.spend())
    assert len(caught) == 1


def test_multisig_states_its_extended_keys() -> None:
    keys = accounts(is_secret=False)
    wallet = Wallet(filled("wsh(sortedmulti(2,A/<0;1>/*,B/<0;1>/*))", keys))
    first, *_ = parsed(wallet.store.views.psbt(wallet.spend()))
    stated = {key[1:]: value for key, value in first.items() if key[0] == 0x01}
    path = b"".join(step.to_bytes(4, "little") for step in ((1 << 31) + 84, (1 << 31) + 1, 1 << 31))
    for text in keys.values():
        fingerprint, key = text[1:9], text.partition("]")[2]
        assert stated.pop(bytes(base58.decode(key)[:78])) == bytes.fromhex(fingerprint) + path
    assert stated == {}
    single, *_ = parsed(Wallet(f"wpkh({ACCOUNT}/<0;1>/*)").psbt())
    assert {key[0] for key in single} == {0x00}


def test_the_database_takes_the_spelling_with_origins() -> None:
    key = ACCOUNT.partition("]")[2]
    for first, second in ((key, ACCOUNT), (ACCOUNT, key), (key, f"[00000000/84h/1h/0h]{key}")):
        store, names = opened(MEMORY), list[str]()
        for text in (first, second):
            watch = WatchList(REGTEST)
            chain, _ = watch.add_descriptor(f"wpkh({text}/<0;1>/*)")
            chain.reveal(4)
            store.attach(watch)
            names = [each.name for each in store.keychains.load()]
            assert sorted(names) == sorted(each.name for each in watch.keychains)
        best = ACCOUNT if ACCOUNT in (first, second) else first
        assert [each.partition("#")[0] for each in names] == [f"wpkh({best}/{branch}/*)" for branch in "01"]
        assert [each.revealed for each in store.keychains.load()] == [5, 0]
        assert [each.name for each in store.views.keychains()] == names


def test_taproot_tree_is_stated_for_change() -> None:
    account = ACCOUNT
    wallet = Wallet(f"tr({account}/0/*,{{pk({account}/1/*),{{pk({account}/2/*),pk({account}/0/*)}}}})")
    _, spent, _, change = parsed(wallet.store.views.psbt(wallet.spend()))
    assert b"\x00" not in spent  # the signature commits to the amount
    assert [len(key) - 1 for key in spent if key[0] == 0x15] == [65, 97, 97]
    assert [key[0] for key in spent if key[0] == 0x16] == [0x16] * 3  # the internal key is also in a leaf
    leaves = {key[1:]: value[0] for key, value in spent.items() if key[0] == 0x16}
    assert leaves[spent[b"\x17"]] == 1
    tree, depths = change[b"\x06"], []
    while tree:
        depths.append(tree[0])
        tree = tree[3 + tree[2] :]
    assert depths == [1, 2, 2]


def test_spending_of_each_output_has_its_script() -> None:
    for text in (*DESCRIPTORS, "combo(A/0/*)", "rawtr(A/0/*)", "pk(A/*)"):
        keys = {"A": ACCOUNT, "B": ACCOUNT.replace("/84'", "/86'")}
        for each in parse_descriptor(filled(text.replace("B/", "B/9/"), keys), REGTEST):
            assert tuple(found.script_pubkey for found in each.spending(3)) == each.scripts(3)
    (fixed,) = parse_descriptor("raw(51)", REGTEST)
    assert [(each.script_pubkey, each.keys) for each in fixed.spending(0)] == [(b"\x51", ())]


def test_keys_without_origin_are_their_own_masters() -> None:
    key = ACCOUNT.partition("]")[2]
    (found,) = parse_descriptor(f"wpkh({key}/5/*)", REGTEST)
    (spending,) = found.spending(3)
    assert [(each.fingerprint.hex(), each.path) for each in spending.keys] == [("e99b8628", (5, 3))]
    (fixed,) = parse_descriptor(f"pkh(02{STRANGER})", REGTEST)
    (known,) = fixed.spending(0)[0].keys
    assert (known.fingerprint, known.path) == (hash160(bytes.fromhex(f"02{STRANGER}"))[:4], ())


def test_address_without_descriptor_has_its_output_only() -> None:
    wallet = Wallet("wpkh(" + ACCOUNT + "/0/*)")
    psbt = wallet.store.views.psbt(build_tx([TxIn(OutPoint(wallet.paid.txid, 0))], [TxOut(1, b"\x51")]))
    assert sorted(parsed(psbt)[1]) == [b"\x00", b"\x01"]


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        ("51024e73", [1]),  # version 1, as of taproot
        ("52024e73", [0, 1]),
        ("60024e73", [0, 1]),  # version 16, the highest
        ("61024e73", [0]),  # a script of the length of a program
    ],
)
def test_inputs_of_witness_programs_state_their_output(script: str, fields: list[int]) -> None:
    store, watch, raw = opened(MEMORY), WatchList(REGTEST), bytes.fromhex(script)
    watch.add_script(raw)
    store.attach(watch)
    paid = build_tx([TxIn(OutPoint(b"\x0a" * 32, 0))], [TxOut(9, raw)])
    store.commit(Batch(transactions={txid(paid): StoredTx(paid, TxStatus.PENDING, None, 7)}))
    made = store.views.psbt(build_tx([TxIn(OutPoint(txid(paid), 0))], [TxOut(1, b"\x51")]))
    assert [key[0] for key in parsed(made)[1]] == fields


def test_foreign_inputs_stay_empty() -> None:
    wallet = Wallet("pkh(" + ACCOUNT + "/0/*)")
    raw = build_tx([TxIn(OutPoint(b"\x0a" * 32, 0)), TxIn(wallet.paid)], [TxOut(1, b"\x51")])
    _, foreign, own, _ = parsed(wallet.store.views.psbt(raw))
    assert foreign == {}
    assert b"\x00" in own
    assert b"\x01" not in own


def test_unusable_transactions_are_refused() -> None:
    wallet = Wallet("wpkh(" + ACCOUNT + "/0/*)")
    out = [TxOut(1, b"\x51")]
    views = wallet.store.views
    with pytest.raises(FormatError):
        views.psbt(b"no")
    for signed in (TxIn(wallet.paid, script_sig=b"\x51"), TxIn(wallet.paid, witness=(b"\x01",))):
        with pytest.raises(ParameterError, match="has signatures: pass it without"):
            views.psbt(build_tx([signed], out))
    with pytest.raises(ParameterError, match=r"it spends output 2 of [0-9a-f]{64}, which has only 2 outputs"):
        views.psbt(build_tx([TxIn(OutPoint(wallet.paid.txid, 2))], out))
    with pytest.raises(ParameterError, match="knows none of the outputs"):
        views.psbt(build_tx([TxIn(OutPoint(b"\x0a" * 32, 0))], out))


@pytest.mark.musig
def test_musig_is_refused() -> None:
    key = ACCOUNT.partition("]")[2]
    (found,) = parse_descriptor(f"tr(musig({key}/0/*,{key}/1/*))", REGTEST)
    with pytest.raises(DescriptorError, match=r"a PSBT cannot describe the keys of musig\(\)"):
        found.spending(0)
