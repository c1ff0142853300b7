"""A wallet with a silent payment address: others pay it and its labels, and the wallet spends what it gets.

The sender's keys decide which outputs are the wallet's: the formulas of BIP-352 are written out here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from simulation.host import Ranges
from simulation.schedule import moment
from simulation.silentsources import Sources
from simulation.truth import Coin, Truth
from simulation.violation import Violation
from spvfilter.errors import ParameterError, RefusedError
from spvfilter.light.engine.requests import AddAccount, RemoveAccount, Request, RevealAddress, SearchStart
from spvfilter.light.events import Event, Synced
from spvfilter.network import REGTEST
from spvfilter.node.scripts import Lock, p2pkh, p2sh, p2tr, p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.silent.address import SilentAddress
from spvfilter.transaction import Transaction
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import STRANGER, build_tx, key, private_key_of, public_key
from support.blocks.silentpayments import ORDER, Wallet

if TYPE_CHECKING:
    from simulation.host import Process
    from simulation.world import World

_ACCOUNT = "gifts"
_FEE = 1_000  # satoshi
_LEAST = 1_000  # satoshi of an output
_MOST_REVEALED = 8  # a tweak server allows 20 labels
_UNKNOWN = 30  # a label that nobody reveals
_LABELS = 20  # labels that an address may have
_CHANGE = 0  # the label of change
_OTHER = Wallet(scan=5, network=REGTEST)


class Paid(NamedTuple):
    """An output that pays the wallet, as its sender knows it."""

    txid: bytes
    label: int | None
    tweak: bytes
    is_known: bool
    """True if the wallet searched for the labels of this output and of those before it when they were made."""


class Silent:
    """The wallet's keys, the payments to it, and the requests of its user."""

    def __init__(self, rng: random.Random, *, is_late: bool = False) -> None:
        """With `is_late`, the user adds the account while the client runs."""
        self._rng = rng
        self._wallet = Wallet(rng.getrandbits(250) + 1, rng.getrandbits(250) + 1, REGTEST)
        self._is_late = is_late or rng.random() < 0.2
        self._account = _ACCOUNT if self._is_late or rng.random() < 0.6 else None
        self._declared = [] if self._is_late else rng.sample(range(1, 5), rng.choice([0, 0, 1, 2]))
        self._revealed: list[int] = []
        self._addresses = {str(self._wallet.address(label)): label for label in range(_LABELS)}
        self._paid: dict[bytes, Paid] = {}  # by script
        self._planned = self._present = not self._is_late  # whether the wallet will have the address, and has it
        self._was_added = False  # whether an account was asked for
        self._secrets = (self._wallet.scan_text, self._wallet.scan_key.hex(), repr(self._wallet.scan_key)[2:-1])
        (chain,) = WatchList(REGTEST).add_descriptor(self._wallet.descriptor)
        self.anchor: bytes = chain.scripts(0)[0]
        """The script whose searched blocks were searched for payments."""
        self._world: World | None = None
        self._sources: Sources | None = None

    # The beginning

    def begin(self, truth: Truth) -> None:
        """Payments are in the chain before the client starts."""
        for _ in range(self._rng.choice([0, 2, 5, 10])):
            self._pay(truth)
            if self._rng.random() < 0.7:
                truth.mine()

    def enter(self, world: World) -> None:
        """The world is made."""
        self._world = world
        world.wishes.ever.update(self._paid)
        self._sources = Sources(self._rng, world.truth, lambda: world.is_calm)

    def first_scripts(self) -> list[bytes]:
        """The scripts that the first run watches."""
        return [self.anchor] if self._present else []

    @property
    def _there(self) -> World:
        assert self._world is not None
        return self._world

    @property
    def sources(self) -> Sources:
        """The sources that the client may ask."""
        assert self._sources is not None
        return self._sources

    def give(self, watch: WatchList, path: Path) -> None:
        """The user gives the address to the client: at first, and sometimes again. The database has it as well."""
        if not self._present or (path.exists() and (self._is_late or self._rng.random() < 0.5)):
            return
        if self._account is None:
            watch.add_descriptor(self._wallet.descriptor, "silent")
        else:
            watch.add_account(self._account, self._wallet.descriptor)
        for label in self._declared:
            watch.add_sp_label(label, f"payer {label}")

    # The acts of the user, and of others

    def schedule(self, duration: float) -> None:
        """Schedule all acts within a number of seconds."""
        rng, world = self._rng, self._there
        kinds = [*[self._receive] * 8, *[self._reveal] * 2, *[self._spend] * 3, self._change_account]
        for _ in range(rng.randrange(8, 24)):
            kind = rng.choice(kinds)
            world.at(moment(rng, duration), f"silent: {kind.__name__.strip('_').replace('_', ' ')}", kind)
        for _ in range(rng.randrange(3, 9)):
            world.at(moment(rng, duration), "silent: a block", world.truth.mine)
        if self._is_late:
            world.at(moment(rng, duration), "silent: the account is added", self._add)

    def farewell(self) -> None:
        """Faults have ended: others pay the address again, and the latest label."""
        truth = self._there.truth
        self._pay(truth, [None, *self._revealed[-1:]])
        self._pay(truth, [_CHANGE])

    def _receive(self) -> None:
        self._pay(self._there.truth)

    def _spend(self) -> None:
        """The wallet's coins of this kind are spent before others."""
        truth = self._there.truth
        found = [coin for coin in truth.coins if coin.lock.script_pubkey in self._paid]
        if found and self._rng.random() < 0.7:
            coin = self._rng.choice(found)
            truth.coins.remove(coin)
            truth.coins.append(coin)
            with suppress(RefusedError):
                truth.regtest.submit_tx(build_tx([coin.spend()], [STRANGER.pays(max(coin.value - _FEE, 0))]))
            truth.coins.remove(coin)
        elif found and self._there.process is not None:
            coin = self._rng.choice(found)
            if coin.value > 2 * _LEAST:
                truth.coins.remove(coin)
                raw = build_tx([coin.spend()], [STRANGER.pays(coin.value - _FEE)])
                self._there.broadcast(raw, is_private=self._rng.random() < 0.2)

    def _reveal(self) -> None:
        if self._planned and len(self._revealed) < _MOST_REVEALED and self._there.process is not None:
            self._there.ask_for(RevealAddress(self._account, self._rng.random() < 0.5))

    def _change_account(self) -> None:
        """Remove the account of a late wallet, or add it again."""
        if self._is_late and self._was_added and self._rng.random() < 0.3:
            if self._planned:
                self._planned = False
                self._there.ask_for(RemoveAccount(_ACCOUNT))
            else:
                self._add()

    def _add(self) -> None:
        if self._planned:
            return
        self._planned = self._was_added = True
        height = self._rng.choice([None, None, 0, self._rng.randrange(1, 250), self._there.truth.height])
        more = WatchList.of_account(_ACCOUNT, [self._wallet.descriptor], REGTEST)
        more.windows.anchor_silent()
        self._there.ask_for(AddAccount(more, SearchStart(height)))

    def answered(self, request: Request, value: object) -> None:
        """The client has done it, or has refused it because the account was removed before."""
        match request:
            case AddAccount(_, start):
                self._present = True
                self._there.wishes.watch([self.anchor], start.from_height)
            case RemoveAccount() if not isinstance(value, Exception):
                self._present = False
                self._there.wishes.unwatch([self.anchor])
            case RevealAddress() if not isinstance(value, Exception):
                label = self._addresses.get(str(value))
                if label is None or label in (_CHANGE, *self._declared):
                    raise Violation("true", f"revealed label {label}, which is not for payers")
                if label in self._revealed:
                    raise Violation("true", f"label {label} was revealed twice")
                self._revealed.append(label)
            case _:
                pass

    # Payments

    def _pay(self, truth: Truth, labels: Sequence[int | None] = ()) -> None:
        """Somebody pays addresses, with an output for each. The wallet itself may be the sender."""
        from btclib_secp256k1 import silentpayments

        rng, known = self._rng, [None, None, _CHANGE, *self._declared, *self._revealed]
        if not labels:
            labels = [rng.choice(known) if rng.random() < 0.95 else _UNKNOWN for _ in range(rng.choice([1, 1, 2, 4]))]
        addresses: list[tuple[int | None, SilentAddress]] = [(label, self._wallet.address(label)) for label in labels]
        if rng.random() < 0.3:
            addresses.insert(rng.randrange(len(addresses) + 1), (None, _OTHER.address()))
        coins = self._coins(truth)
        privates = [_private(coin.lock) for coin in coins]
        value = (sum(coin.value for coin in coins) - _FEE) // (len(addresses) + 1)
        if not any(privates) or value < _LEAST:
            return
        smallest = min(bytes(coin.outpoint) for coin in coins)
        by_kind: dict[bool, list[bytes]] = {True: [], False: []}
        for coin, private in zip(coins, privates, strict=True):
            if private is not None:
                by_kind[_is_taproot(coin.lock)].append(private)
        made = silentpayments.create_outputs(
            [(each.scan_pubkey, each.spend_pubkey) for _, each in addresses],
            smallest,
            prvkeys=by_kind[False],
            taproot_prvkeys=by_kind[True],
        )
        locks = [p2tr(bytes(each)) for each in made]
        raw = build_tx(
            [coin.spend() for coin in coins],
            [*(lock.pays(value + n) for n, lock in enumerate(locks)), STRANGER.pays(value - 99)],
        )
        txid = Transaction.parse(raw).txid
        tweaks = self._tweaks(by_kind, smallest, len(labels))
        ours = [n for n, (_, address) in enumerate(addresses) if address.scan_pubkey == self._wallet.scan_pubkey]
        is_known = True
        for n in ours:  # a search ends at the first k without an output
            label = addresses[n][0]
            tweak = self._tweak_of(locks[n].script_pubkey, label, tweaks.pop(0))
            is_known = is_known and label in known
            self._paid[locks[n].script_pubkey] = Paid(txid, label, tweak, is_known)
        truth.learn_payments([coin.lock for coin in coins], [locks[n] for n in ours])
        if self._world is not None:
            self._world.wishes.ever.update(locks[n].script_pubkey for n in ours)
        with suppress(RefusedError):
            truth.regtest.submit_tx(raw)
            truth.coins += [Coin(OutPoint(txid, n), value + n, locks[n]) for n in ours]

    def _coins(self, truth: Truth) -> list[Coin]:
        """The coins that a payment spends: new ones of a payer, and sometimes the wallet's own."""
        rng, coins = self._rng, list[Coin]()
        for _ in range(rng.choice([1, 1, 2])):
            name = key(50_000 + rng.randrange(1_000_000))
            lock = rng.choice([p2wpkh(name), p2wpkh(name), p2tr(name[1:]), p2pkh(name), p2sh(p2wpkh(name))])
            value = rng.randrange(20_000, 200_000)
            with suppress(ParameterError, RefusedError):
                coins.append(Coin(OutPoint(truth.regtest.pay(lock.pays(value)), 0), value, lock))
        if truth.coins and rng.random() < 0.25:
            coins.append(truth.coins.pop(rng.randrange(len(truth.coins))))
        return coins

    def _tweaks(self, privates: Mapping[bool, Sequence[bytes]], smallest: bytes, count: int) -> list[int]:
        """t_k of each output to the wallet (BIP-352 § Scanning), by the private keys of the inputs."""
        from btclib_secp256k1 import keys

        total = sum(int.from_bytes(each, "big") for each in privates[False])
        for each in privates[True]:
            number = int.from_bytes(each, "big")
            total += number if public_key(each)[0] == 2 else ORDER - number
        point = bytes(keys.pubkey_from_prvkey((total % ORDER).to_bytes(32, "big")))
        point = bytes(keys.pubkey_tweak_mul(point, _tagged("Inputs", smallest + point)))
        shared = bytes(keys.pubkey_tweak_mul(point, self._wallet.scan_key))
        return [int.from_bytes(_tagged("SharedSecret", shared + k.to_bytes(4, "big")), "big") for k in range(count)]

    def _tweak_of(self, script: bytes, label: int | None, tweak: int) -> bytes:
        """The tweak of an output, from its t_k. Its private key signs from now on."""
        if label is not None:
            tweak += int.from_bytes(_tagged("Label", self._wallet.scan_key + label.to_bytes(4, "big")), "big")
        private = (int.from_bytes(self._wallet.spend_key, "big") + tweak) % ORDER
        assert public_key(private.to_bytes(32, "big"))[1:] == script[2:]
        return (tweak % ORDER).to_bytes(32, "big")

    # Invariants

    def has(self, script: bytes) -> bool:
        """Whether a script is an output that pays the address, or stands for the address."""
        return script in self._paid or script == self.anchor

    def is_wanted(self, script: bytes) -> bool:
        """Whether the client must find a script, in blocks that it has searched."""
        paid, world = self._paid.get(script), self._there
        if not self._present or world.process is None:
            return False
        if script in world.process.watch:
            return True
        return paid is None or (paid.is_known and not self.sources.may_hide(paid.txid))

    @property
    def reads_all(self) -> bool:
        """True if the client may have read blocks only because a node says what they spend."""
        return any(not each.is_server for each in self.sources.used)

    def claimed(self, ranges: dict[bytes, Ranges]) -> dict[bytes, Ranges]:
        """Ranges of scripts, with the payments: the blocks searched for the address were searched for all of them."""
        searched = ranges.get(self.anchor)
        if searched is None:
            return ranges
        return ranges | {script: searched for script in self._paid if self.is_wanted(script)}

    def told(self, event: Event) -> None:
        """Quiet: no event has a secret. Honest: the status names the source that may hide payments."""
        text = repr(event)
        if any(secret in text for secret in self._secrets):
            raise Violation("quiet", f"an event shows the scan key: {type(event).__name__}")
        process = self._there.process
        if not isinstance(event, Synced) or process is None:
            return
        named = process.status.silent_source
        has_chain = any(True for _ in process.watch.windows.silent)
        if named != (self.sources.present.name if has_chain else None):
            raise Violation("honest", f"the status names {named} as the source of silent payments")
        self._check_found(process)

    def _check_found(self, process: Process) -> None:
        """True: every payment that the client has found has its label and its tweak, and so a key that spends it."""
        for chain in process.watch.windows.silent:
            for script, found in chain.found.items():
                paid = self._paid.get(script)
                if paid is None or (found.label, found.tweak) != (paid.label, paid.tweak):
                    raise Violation("true", f"a payment to label {paid and paid.label} was found as {found}")

    def check_end(self, process: Process) -> None:
        """True: the coins of the database have the labels and tweaks of their payments, and the account."""
        self._check_found(process)
        if process.disk.waiting:
            return
        for coin in process.disk.store.views.coins():
            paid = self._paid.get(coin.script_pubkey) if self._present else None
            if paid is None:
                continue
            if (coin.sp_label, coin.sp_tweak, coin.account) != (paid.label, paid.tweak, self._account):
                raise Violation("true", f"the coin {coin} pays label {paid.label}")
        if self._present and (problem := process.status.spent_problem) is not None:
            raise Violation("alive", f"the source answers, and the status says: {problem}")


def _tagged(tag: str, data: bytes) -> bytes:
    digest = sha256(f"BIP0352/{tag}".encode()).digest()
    return sha256(digest + digest + data).digest()


def _is_taproot(lock: Lock) -> bool:
    return lock.script_pubkey.startswith(b"\x51\x20")


def _private(lock: Lock) -> bytes | None:
    """The private key of an input that counts for a silent payment (BIP-352 § Inputs For Shared Secret Derivation)."""
    script = lock.script_pubkey
    kinds = ((b"\x00\x14", 22), (b"\x51\x20", 34), (b"\x76\xa9\x14", 25), (b"\xa9\x14", 23))
    if any(script.startswith(start) and len(script) == size for start, size in kinds):
        return private_key_of(script)
    return None
