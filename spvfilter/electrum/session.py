"""ElectrumSession: the protocol of one connection to the Electrum server, without sockets.

A method returns its answer, or a question if it needs a fact first. `WalletLink` finds the fact and calls `then`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spvfilter._version import __version__
from spvfilter.chain import HeaderChain
from spvfilter.electrum import arguments
from spvfilter.electrum.budget import ElectrumBudget
from spvfilter.electrum.headerproofs import HeaderProofs
from spvfilter.electrum.histories import Histories
from spvfilter.electrum.knownscripts import KnownScripts
from spvfilter.electrum.limits import ElectrumLimits
from spvfilter.electrum.questions import (
    Answer,
    ExploreScript,
    FetchBranch,
    FindReserved,
    FindTransaction,
    PrepareProof,
    SendTransactions,
)
from spvfilter.electrum.rpcerrors import RpcCode, RpcError
from spvfilter.electrum.txdetails import tx_details
from spvfilter.electrum.versions import NEWEST, OLDEST, Version, negotiated, version_text
from spvfilter.errors import FormatError
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE
from spvfilter.store.scriptviews import TxProof
from spvfilter.transaction import Transaction
from spvfilter.wire.merkle import branch_root

MAX_HEADERS = 2_016
"""Largest number of headers in one answer: a difficulty period, which clients expect."""
MAX_UNKNOWN = 1_000
"""Largest number of unknown script hashes that a session remembers (our choice). The oldest are dropped."""
SOFTWARE = f"spvfilter {__version__}"
"""Name of the server software."""
BANNER = (
    "spvfilter answers from your own wallet's database. It knows only this wallet's scripts: add other wallets to"
    " its watch list."
)
_NEGOTIATION = "server.version"
_HEADERS, _SCRIPT = "blockchain.headers.subscribe", "blockchain.scripthash.subscribe"
_BEFORE_16: Version = (1, 4, 3)
_ONE_BITCOIN = 100_000_000  # satoshi
_INCREMENT = 1_000
"""The rate that a replacement adds to the fee to pay for its relay, in satoshi per 1,000 virtual bytes.

This is the default of Core before version 30. Later versions require less, and full mempools do not change it.
"""

Notice = tuple[str, tuple[object, ...]]
"""Method and arguments of a notification."""


@dataclass(slots=True)
class WalletState:
    """State that all sessions of a server share: the chain, and the wallet's scripts and transactions in memory."""

    chain: HeaderChain
    histories: Histories
    scripts: KnownScripts
    proofs: HeaderProofs
    relay_fee: Callable[[], int]
    """Function that returns the lowest fee rate that peers relay, in satoshi per 1,000 virtual bytes."""
    hosts: dict[str, dict[str, int]]
    """The server's ports for each host, as `server.features` reports them."""


class ElectrumSession:
    """One connection: the negotiated version and the subscriptions."""

    def __init__(self, state: WalletState, limits: ElectrumLimits, budget: ElectrumBudget, host: str) -> None:
        self._state = state
        self._limits = limits
        self._budget = budget
        self._host = host
        self._version: Version | None = None
        self._has_begun = False
        self._tip: bytes | None = None  # block hash of the last header that was sent to a subscriber
        self._statuses: dict[str, str | None] = {}  # last status that was sent, keyed by script hash
        self._unknown: dict[str, None] = {}  # script hashes that the wallet does not have

    @property
    def version(self) -> Version:
        """Version of the protocol. Until one is negotiated, it is the oldest version."""
        return self._version or OLDEST

    @property
    def subscriptions(self) -> Collection[str]:
        """Script hashes that the session has subscribed to."""
        return self._statuses.keys()

    @property
    def unknown(self) -> tuple[str, ...]:
        """The most recent script hashes that this session asked for and the wallet does not have, oldest first."""
        return tuple(each for each in self._unknown if each not in self._state.scripts)

    def answer(self, method: str, given: Sequence[object] | Mapping[str, object]) -> Answer:
        """Return the answer to a request, or a Question if a fact is needed first.

        Args:
            method: Name of the method.
            given: Arguments, in order or by name.

        Raises:
            RpcError: The method is unknown, an argument is wrong, or there is no answer.
        """
        found = METHODS.get(method)
        is_first, self._has_begun = not self._has_begun, True
        if found is None or not found.since <= self.version <= found.until:
            raise RpcError(RpcCode.METHOD_NOT_FOUND, f"unknown method {method[:80]!r}")
        spare = method == _NEGOTIATION
        values = arguments.bound_arguments(method, given, found.names, found.required, spare=spare)
        if method == _NEGOTIATION:
            return self._negotiate(*values, is_first=is_first)
        return found.function(self, *values)

    def end(self) -> None:
        """Forget the subscriptions of a connection that has ended."""
        self._budget.unsubscribe(self._host, len(self._statuses))
        self._statuses.clear()

    # Notifications

    def header_notice(self) -> list[Notice]:
        """Return the notification about a new tip, if the session has subscribed to headers and lacks the tip."""
        if self._tip is None or self._tip == self._state.chain.tip_hash:
            return []
        return [(_HEADERS, (self._tip_header(),))]

    def script_notices(self, script_hashes: Collection[str]) -> list[Notice]:
        """Return the notifications about scripts whose status has changed since the session was last notified."""
        notices: list[Notice] = []
        for script_hash in script_hashes:
            status = self._state.histories.status(script_hash)
            if script_hash in self._statuses and status != self._statuses[script_hash]:
                self._statuses[script_hash] = status
                notices.append((_SCRIPT, (script_hash, status)))
        return notices

    # server.*

    def _negotiate(self, name: object = "", requested: object = "1.4", *, is_first: bool) -> Answer:
        if self._version is not None:
            raise RpcError(RpcCode.BAD_REQUEST, "server.version was already sent")
        if not isinstance(name, str):
            raise RpcError(RpcCode.BAD_REQUEST, "client_name must be a string")
        self._version = negotiated(requested, NEWEST if is_first else _BEFORE_16)
        return [SOFTWARE, version_text(self._version)]

    def _features(self) -> Answer:
        return {
            "hosts": self._state.hosts,
            "genesis_hash": hash_to_hex(self._state.chain.network.genesis_hash),
            "hash_function": "sha256",
            "server_version": SOFTWARE,
            "protocol_min": version_text(OLDEST),
            "protocol_max": version_text(NEWEST),
            "pruning": None,
        }

    def _ping(self) -> Answer:
        return None

    def _banner(self) -> Answer:
        return BANNER

    def _donation_address(self) -> Answer:
        return ""

    def _peers(self) -> Answer:
        return []

    def _add_peer(self, features: object) -> Answer:
        return False

    # Fees

    def _estimate_fee(self, number: object, mode: object = None) -> Answer:
        arguments.natural(number, "number")
        return -1

    def _relay_fee(self) -> Answer:
        return self._state.relay_fee() / _ONE_BITCOIN

    def _fee_histogram(self) -> Answer:
        return []

    def _mempool_info(self) -> Answer:
        fee = self._relay_fee()
        return {"mempoolminfee": fee, "minrelaytxfee": fee, "incrementalrelayfee": _INCREMENT / _ONE_BITCOIN}

    # Headers

    def _subscribe_tip(self, raw: object = True) -> Answer:
        """Answer with the tip. Clients of protocol 1.2 send the `raw` argument, which has no effect since 1.4."""
        return self._tip_header()

    def _tip_header(self) -> Answer:
        chain = self._state.chain
        self._tip = chain.tip_hash
        return {"height": chain.height, "hex": chain.headers(chain.height, 1).hex()}

    def _checked_height(self, value: object, name: str) -> int:
        height = arguments.natural(value, name)
        if height > self._state.chain.height:
            raise RpcError(
                RpcCode.BAD_REQUEST, f"{name} {height} is above the tip, which has height {self._state.chain.height}"
            )
        return height

    def _header(self, height: object, cp_height: object = 0) -> Answer:
        at, checkpoint = self._checked_height(height, "height"), self._checked_height(cp_height, "cp_height")
        raw = self._state.chain.headers(at, 1).hex()
        if not checkpoint:
            return raw
        _check_below(at, checkpoint)
        return self._with_proof({"header": raw}, at, checkpoint)

    def _headers(self, start_height: object, count: object, cp_height: object = 0) -> Answer:
        start, most = arguments.natural(start_height, "start_height"), arguments.natural(count, "count")
        checkpoint = self._checked_height(cp_height, "cp_height")
        most = min(most, MAX_HEADERS)
        raw = self._state.chain.headers(start, most) if start <= self._state.chain.height else b""
        found = len(raw) // HEADER_SIZE
        answer: dict[str, object] = {"count": found, "max": MAX_HEADERS}
        if self.version >= NEWEST:
            answer["headers"] = [raw[at : at + HEADER_SIZE].hex() for at in range(0, len(raw), HEADER_SIZE)]
        else:
            answer["hex"] = raw.hex()
        if not checkpoint or not found:
            return answer
        _check_below(start + most - 1, checkpoint)
        return self._with_proof(answer, start + found - 1, checkpoint)

    def _with_proof(self, answer: dict[str, object], height: int, checkpoint: int) -> Answer:
        def prove() -> Answer:
            branch, root = self._state.proofs.proof(height, checkpoint)
            return {**answer, "branch": list(map(hash_to_hex, branch)), "root": hash_to_hex(root)}

        return PrepareProof(checkpoint, prove)

    # Scripts

    def _of_script(self, value: object, then: Callable[[str], Answer]) -> Answer:
        """Call `then` with a script hash. If the hash is unknown, first search the scripts past the windows."""
        script_hash, state = arguments.script_hash(value), self._state
        if script_hash in state.scripts or script_hash in state.histories:
            return then(script_hash)

        def explored() -> Answer:
            if script_hash not in state.scripts:
                self._unknown[script_hash] = None
                if len(self._unknown) > MAX_UNKNOWN:
                    del self._unknown[next(iter(self._unknown))]
            return then(script_hash)

        return ExploreScript(script_hash, explored)

    def _subscribe(self, scripthash: object) -> Answer:
        if arguments.script_hash(scripthash) not in self._statuses:
            self._check_subscriptions()

        def subscribe(script_hash: str) -> Answer:
            if script_hash not in self._statuses:
                self._check_subscriptions()
                self._count_subscription()
            status = self._statuses[script_hash] = self._state.histories.status(script_hash)
            return status

        return self._of_script(scripthash, subscribe)

    def _check_subscriptions(self) -> None:
        if len(self._statuses) >= self._limits.subscriptions:
            raise RpcError(
                RpcCode.BAD_REQUEST, f"a session may subscribe to at most {self._limits.subscriptions} script hashes"
            )

    def _count_subscription(self) -> None:
        if not self._budget.subscribe(self._host):
            most = self._limits.all_subscriptions
            raise RpcError(
                RpcCode.BAD_REQUEST,
                f"all sessions together may subscribe to at most {most} script hashes, and one host to at most half of"
                " that",
            )

    def _unsubscribe(self, scripthash: object) -> Answer:
        script_hash = arguments.script_hash(scripthash)
        is_there = script_hash in self._statuses
        if is_there:
            del self._statuses[script_hash]
            self._budget.unsubscribe(self._host)
        return is_there

    def _balance(self, scripthash: object) -> Answer:
        return self._of_script(scripthash, self._state.histories.balance)

    def _history(self, scripthash: object) -> Answer:
        return self._of_script(scripthash, self._state.histories.history)

    def _mempool(self, scripthash: object) -> Answer:
        return self._of_script(scripthash, self._state.histories.mempool)

    def _unspent(self, scripthash: object) -> Answer:
        def then(script_hash: str) -> Answer:
            return FindReserved(lambda reserved: self._state.histories.unspent(script_hash, reserved))

        return self._of_script(scripthash, then)

    # Transactions

    def _transaction(self, tx_hash: object, verbose: object = False) -> Answer:
        is_verbose = arguments.flag(verbose, "verbose")

        def found(tx: TxProof | None) -> Answer:
            if tx is None or not tx.status.counts:  # a full node drops the others from its mempool, and wallets poll
                raise RpcError(RpcCode.NOT_FOUND, "No such mempool or blockchain transaction")
            return tx_details(tx, self._state.chain) if is_verbose else tx.raw.hex()

        return FindTransaction(arguments.txid(tx_hash), found)

    def _merkle(self, tx_hash: object, height: object) -> Answer:
        txid, at = arguments.txid(tx_hash), self._checked_height(height, "height")

        def proved(position: int, branch: bytes) -> Answer:
            return {"block_height": at, "merkle": _hexes(branch), "pos": position}

        def found(tx: TxProof | None) -> Answer:
            if tx is None:
                raise RpcError(
                    RpcCode.NOT_FOUND, "the wallet has no such transaction, and the server cannot prove others"
                )
            if tx.height != at:
                raise RpcError(RpcCode.BAD_REQUEST, f"transaction {tx_hash} is not in the block at height {at}")
            return self._prove(txid, tx, at, proved)

        return FindTransaction(txid, found)

    def _id_from_pos(self, height: object, tx_pos: object, merkle: object = False) -> Answer:
        at, position = self._checked_height(height, "height"), arguments.natural(tx_pos, "tx_pos")
        is_proved = arguments.flag(merkle, "merkle")
        txid = self._state.histories.txid_at(at, position)
        if txid is None:
            raise RpcError(RpcCode.NOT_FOUND, f"no transaction of the wallet is at position {position} of block {at}")
        shown = hash_to_hex(txid)
        if not is_proved:
            return shown

        def proved(position: int, branch: bytes) -> Answer:
            return {"tx_hash": shown, "merkle": _hexes(branch)}

        def found(tx: TxProof | None) -> Answer:
            if tx is None or tx.height != at:  # a reorganization has just moved it
                raise RpcError(RpcCode.NOT_FOUND, f"transaction {shown} has left block {at}")
            return self._prove(txid, tx, at, proved)

        return FindTransaction(txid, found)

    def _prove(self, txid: bytes, tx: TxProof, height: int, proved: Callable[[int, bytes], Answer]) -> Answer:
        """Call `proved` with the position and the branch of a transaction.

        If the branch is not stored, fetch it first.
        """
        branch, position = tx.branch, tx.position or 0
        if (
            branch is not None
            and branch_root(txid, position, branch) == self._state.chain.header_at(height).merkle_root
        ):
            return proved(position, branch)
        return FetchBranch(height, txid, proved)

    def _broadcast(self, raw_tx: object) -> Answer:
        raw = arguments.raw_transaction(raw_tx)
        tx = _parsed(raw)

        def sent(errors: list[str | None]) -> Answer:
            if errors[0] is not None:
                raise RpcError(RpcCode.BAD_REQUEST, f"the transaction was rejected: {errors[0]}")
            return tx.txid_hex

        return SendTransactions((raw,), self._host, sent)

    def _broadcast_package(self, raw_txs: object, verbose: object = False) -> Answer:
        raws = arguments.package(raw_txs)
        arguments.flag(verbose, "verbose")
        txids = [_parsed(raw).txid_hex for raw in raws]

        def sent(errors: list[str | None]) -> Answer:
            failed = [
                {"txid": txid, "error": error} for txid, error in zip(txids, errors, strict=True) if error is not None
            ]
            return {"success": False, "errors": failed} if failed else {"success": True}

        return SendTransactions(raws, self._host, sent)


def _check_below(height: int, checkpoint: int) -> None:
    if height > checkpoint:
        raise RpcError(RpcCode.BAD_REQUEST, f"height {height} is above cp_height {checkpoint}")


def _hexes(branch: bytes) -> list[str]:
    return [hash_to_hex(branch[at : at + HASH_SIZE]) for at in range(0, len(branch), HASH_SIZE)]


def _parsed(raw: bytes) -> Transaction:
    try:
        return Transaction.parse(raw)
    except FormatError as error:
        raise RpcError(RpcCode.BAD_REQUEST, f"not a transaction: {error}") from None


class Method(NamedTuple):
    """A method of the protocol."""

    function: Callable[..., Answer]
    names: tuple[str, ...] = ()
    """Names of its arguments."""
    required: int = 0
    """Number of arguments that must be given."""
    since: Version = OLDEST
    """First version that has the method."""
    until: Version = NEWEST
    """Last version that has the method."""


_OF_SCRIPT = ("scripthash",), 1
METHODS: Mapping[str, Method] = {
    _NEGOTIATION: Method(ElectrumSession._negotiate, ("client_name", "protocol_version")),
    "server.features": Method(ElectrumSession._features),
    "server.ping": Method(ElectrumSession._ping),
    "server.banner": Method(ElectrumSession._banner),
    "server.donation_address": Method(ElectrumSession._donation_address),
    "server.peers.subscribe": Method(ElectrumSession._peers),
    "server.add_peer": Method(ElectrumSession._add_peer, ("features",), 1),
    _HEADERS: Method(ElectrumSession._subscribe_tip, ("raw",)),
    "blockchain.block.header": Method(ElectrumSession._header, ("height", "cp_height"), 1),
    "blockchain.block.headers": Method(ElectrumSession._headers, ("start_height", "count", "cp_height"), 2),
    "blockchain.estimatefee": Method(ElectrumSession._estimate_fee, ("number", "mode"), 1),
    "blockchain.relayfee": Method(ElectrumSession._relay_fee, until=_BEFORE_16),
    _SCRIPT: Method(ElectrumSession._subscribe, *_OF_SCRIPT),
    "blockchain.scripthash.unsubscribe": Method(ElectrumSession._unsubscribe, *_OF_SCRIPT, since=(1, 4, 2)),
    "blockchain.scripthash.get_balance": Method(ElectrumSession._balance, *_OF_SCRIPT),
    "blockchain.scripthash.get_history": Method(ElectrumSession._history, *_OF_SCRIPT),
    "blockchain.scripthash.get_mempool": Method(ElectrumSession._mempool, *_OF_SCRIPT),
    "blockchain.scripthash.listunspent": Method(ElectrumSession._unspent, *_OF_SCRIPT),
    "blockchain.transaction.get": Method(ElectrumSession._transaction, ("tx_hash", "verbose"), 1),
    "blockchain.transaction.get_merkle": Method(ElectrumSession._merkle, ("tx_hash", "height"), 2),
    "blockchain.transaction.id_from_pos": Method(ElectrumSession._id_from_pos, ("height", "tx_pos", "merkle"), 2),
    "blockchain.transaction.broadcast": Method(ElectrumSession._broadcast, ("raw_tx",), 1),
    "blockchain.transaction.broadcast_package": Method(
        ElectrumSession._broadcast_package, ("raw_txs", "verbose"), 1, since=NEWEST
    ),
    "mempool.get_fee_histogram": Method(ElectrumSession._fee_histogram),
    "mempool.get_info": Method(ElectrumSession._mempool_info, since=NEWEST),
}
"""The methods, keyed by name."""
