"""Every edge that shows a wallet's money, and rules that compare them. No assertions."""

from __future__ import annotations

import asyncio
import csv
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.randomlife import Life
from spvfilter.electrum.histories import script_hash_of
from spvfilter.interop import bdk_wallet
from spvfilter.primitives import OutPoint
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.store.scriptviews import TxEffects
from spvfilter.store.views import Balance, Coin, HistoryEntry, Views
from spvfilter.store.windowviews import KeychainStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import WalletEvent
from spvfilter.wallet.reader import WalletStore
from support.blocks.chains import write_records
from support.client.lightworld import identity
from support.commands.processes import process

METHODS = ("get_balance", "listunspent", "get_history")
PATIENCE_S = 10.0  # the Electrum server reads events a moment after the client has stored them


@dataclass
class Share:
    """Money of the wallet, an account, a keychain, or a label, as the library shows it."""

    balance: Balance
    coins: list[Coin]
    unspent: list[Coin]
    with_change: list[Coin]
    """Also trusted change."""
    history: list[HistoryEntry]


@dataclass
class Answers:
    """The answers of the library at one moment."""

    sequence: int
    tip: int
    whole: Share
    shares: dict[str, Share]
    """The same for each account, each keychain, and each label."""
    accounts: tuple[str, ...]
    keychains: tuple[KeychainStatus, ...]
    effects: dict[bytes, TxEffects]
    histories: dict[bytes, list[HistoryEntry]]
    """The history of each script that may have been paid."""
    reserved: set[OutPoint]
    is_complete: bool
    """True if no entry skips blocks."""
    labels: dict[bytes, str]
    """The label of each watched script that has one."""


def share_of(
    views: Views, *, account: str | None = None, keychain: str | None = None, label: str | None = None
) -> Share:
    return Share(
        views.balance(label, keychain=keychain, account=account),
        views.coins(label=label, keychain=keychain, account=account),
        views.unspent(label=label, keychain=keychain, account=account),
        views.unspent(label=label, keychain=keychain, account=account, trusted_change=True),
        views.history(label=label, keychain=keychain, account=account),
    )


def answers_of(views: Views, life: Life) -> Answers:
    watch, whole, accounts, keychains = life.client.watch, share_of(views), views.accounts(), views.keychains()
    shares = {f"account {each}": share_of(views, account=each) for each in accounts}
    shares |= {f"keychain {each.name}": share_of(views, keychain=each.name) for each in keychains}
    labels = {coin.label for coin in whole.coins if coin.label is not None}
    shares |= {f"label {each}": share_of(views, label=each) for each in sorted(labels)}
    return Answers(
        views.sequence(),
        life.regtest.height,
        whole,
        shares,
        accounts,
        keychains,
        {each.txid: each for each in views.effects()},
        {script: views.history(script=script) for script in life.paid if script in watch},
        {*views.reserved()},
        not any(each.skipped for each in views.searched()),
        {
            value: label
            for at, (kind, value, _) in enumerate(watch.entries())
            if not kind and (label := watch.label(at))
        },
    )


# Rules of the library itself


def wrong_balances(answers: Answers) -> Iterator[str]:
    """A balance is made of the coins, and it is the sum of the nets of the history."""
    for name, share in {"the wallet": answers.whole, **answers.shares}.items():
        balance = balance_of(share.coins, answers.tip)
        if share.balance != balance:
            yield f"{name}: {share.balance}, and of its coins {balance}"
        if sum(each.value for each in share.unspent) != balance.spendable:
            yield f"{name}: {balance.spendable} is spendable, unspent() has {share.unspent}"
    for name in ("the wallet", *(f"account {each}" for each in answers.accounts)):
        share = answers.whole if name == "the wallet" else answers.shares[name]
        net = sum(each.net for each in share.history if each.status.counts)
        if net != share.balance.total:
            yield f"{name}: a total of {share.balance.total}, and of {net} in its history"


def balance_of(coins: Iterable[Coin], tip: int) -> Balance:
    """The balance by its definition, recounted from coins."""
    sums = Counter[str]()
    for coin in coins:
        if coin.height is None:
            sums["pending_in"] += 0 if coin.spent_by else coin.value
            sums["trusted_pending"] += coin.value if coin.is_trusted and not coin.spent_by else 0
            continue
        sums["confirmed" if is_mature(coin, tip) else "immature"] += coin.value
        sums["pending_out"] += coin.value if coin.spent_by else 0
        sums["spendable"] += coin.value if coin.is_spendable else 0
    return Balance(
        confirmed=sums["confirmed"],
        immature=sums["immature"],
        pending_in=sums["pending_in"],
        pending_out=sums["pending_out"],
        spendable=sums["spendable"],
        trusted_pending=sums["trusted_pending"],
    )


def is_mature(coin: Coin, tip: int) -> bool:
    """True if the next block may spend the coin."""
    return coin.height is None or not coin.is_coinbase or tip + 1 - coin.height >= COINBASE_MATURITY


def wrong_shares(answers: Answers) -> Iterator[str]:
    """An account has the coins that name it."""
    for account in answers.accounts:
        expected = {each.outpoint for each in answers.whole.coins if each.account == account}
        yield from difference(
            f"coins of account {account}", points(answers.shares[f"account {account}"].coins), expected
        )


def wrong_effects(answers: Answers) -> Iterator[str]:
    """Effects have the net of the history, and each transaction that counts, but for those without a wallet's output.

    After an account is removed, the wallet's payments from it stay in the history without outputs.
    """
    counted = [each for each in answers.whole.history if each.status.counts]
    expected = {each.txid_hex: each.net for each in counted if each.txid in answers.effects or each.net}
    found = {
        each.txid_hex: sum(-effect.value if effect.is_spend else effect.value for effect in each.effects)
        for each in answers.effects.values()
    }
    yield from difference("effects and history", {*found.items()}, {*expected.items()})


def wrong_trust(answers: Answers) -> Iterator[str]:
    """Change is trusted if the wallet's own transaction spends only its coins, each in a block or trusted."""
    own = {each.txid for each in answers.whole.history if each.is_own}

    def is_trusted(txid: bytes) -> bool:
        effects = answers.effects.get(txid)
        if effects is None or effects.height is not None:
            return effects is not None
        spent = [each.outpoint for each in effects.effects if each.is_spend]
        has_all = txid in own and len(spent) == len(Transaction.parse(raws[txid]).inputs)
        return has_all and all(is_trusted(each[:32]) for each in spent)

    raws = {each.txid: each.raw for each in answers.whole.history}
    pending = [each for each in answers.whole.coins if each.height is None]
    expected = {each.outpoint for each in pending if is_trusted(each.outpoint.txid)}
    yield from difference("trusted change", {each.outpoint for each in pending if each.is_trusted}, expected)
    free = {each.outpoint for each in answers.whole.with_change if each.height is None}
    yield from difference("trusted change that is free", free, expected - answers.reserved - frozen(pending))


def frozen(coins: Iterable[Coin]) -> set[OutPoint]:
    return {each.outpoint for each in coins if each.is_frozen}


def wrong_labels(answers: Answers) -> Iterator[str]:
    """A transaction has the labels of the scripts that it pays."""
    for entry in answers.whole.history:
        for output in Transaction.parse(entry.raw).outputs:
            label = answers.labels.get(output.script_pubkey)
            if label is not None and label not in entry.labels:
                yield f"{entry.txid_hex} is {entry.status} and lacks the label {label}: {entry.labels}"


LIBRARY: list[Callable[[Answers], Iterator[str]]] = [
    wrong_balances,
    wrong_shares,
    wrong_effects,
    wrong_trust,
    wrong_labels,
]

# Other edges


async def electrum(life: Life, answers: Answers) -> list[str]:
    """The Electrum server shows the balance, coins and history of each script, once it has read the last events."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while found := await wrong_replies(life, answers):
        if asyncio.get_running_loop().time() > deadline or await life.client.sequence() != answers.sequence:
            break
        await asyncio.sleep(0.02)
    return found


async def wrong_replies(life: Life, answers: Answers) -> list[str]:
    scripts = [*answers.histories]
    requests = [(f"blockchain.scripthash.{each}", script_hash_of(script)) for script in scripts for each in METHODS]
    replies = iter(await life.electrum.batch(*requests)) if requests else iter(())
    return [
        each
        for script in scripts
        for each in wrong_electrum(script, answers, next(replies), next(replies), next(replies))
    ]


def wrong_electrum(
    script: bytes,
    answers: Answers,
    balance: dict[str, int],
    unspent: list[dict[str, Any]],
    history: list[dict[str, Any]],
) -> Iterator[str]:
    """Pending spends of confirmed coins are negative there, and reserved coins are not listed."""
    name, coins = script.hex(), [each for each in answers.whole.coins if each.script_pubkey == script]
    shown = balance_of(coins, answers.tip)
    expected = {"confirmed": shown.confirmed + shown.immature, "unconfirmed": shown.pending_in - shown.pending_out}
    if balance != expected:
        yield f"Electrum balance of {name}: {balance}, not {expected}"
    yield from difference(
        f"Electrum coins of {name}",
        {(row["tx_hash"], row["tx_pos"], row["height"], row["value"]) for row in unspent},
        {
            (each.outpoint.txid_hex, each.outpoint.index, each.height or 0, each.value)
            for each in coins
            if each.outpoint not in answers.reserved
        },
    )
    yield from difference(
        f"Electrum history of {name}",
        {(row["tx_hash"], max(row["height"], 0)) for row in history},
        {(each.txid_hex, each.height or 0) for each in answers.histories[script] if each.status.counts},
    )


async def events(life: Life, answers: Answers) -> list[str]:
    """All events so far, applied one after the other, give the matches and the total."""
    if answers.sequence > life.last_told:
        stream = life.client.events(since=life.last_told)
        async for event in stream:
            life.told.take(event)
            if isinstance(event, WalletEvent) and event.sequence >= answers.sequence:
                break
        await stream.aclose()
        life.last_told = answers.sequence
    told = life.told.matches
    total = sum((-1 if kind == "input" else 1) * (match.value or 0) for (kind, _, _), match in told.items())
    found = [] if total == answers.whole.balance.total else [f"events give {total}, not {answers.whole.balance}"]
    expected = {(*identity(each.match), each.match.height, each.match.value) for each in await life.client.matches()}
    given = {(*key, match.height, match.value) for key, match in told.items()}
    return [*found, *difference("matches of the events", given, expected)]


async def reader(life: Life, answers: Answers) -> list[str]:
    """Another process reads the same from the database."""
    with WalletStore.open(life.path) as store:
        found = share_of(store)
    return [] if found == answers.whole else [f"WalletStore shows {found}, not {answers.whole}"]


async def node(life: Life, answers: Answers) -> list[str]:
    """Confirmed coins are those of the node's UTXO set, but for those in blocks that an entry skips."""
    unspent = life.regtest.chain.coins.items()
    expected = {(key, coin.value, coin.height) for key, coin in unspent if coin.script_pubkey in answers.histories}
    found = {(bytes(each.outpoint), each.value, each.height) for each in answers.whole.coins if each.height is not None}
    return [*difference("confirmed coins", found, expected if answers.is_complete else found & expected)]


async def bdk_edge(life: Life, answers: Answers) -> list[str]:
    """BDK has the balance of the main account's keychains, and spends what unspent(trusted_change=True) returns."""
    keychains = [each.name for each in answers.keychains if each.account == "main"]
    if not 1 <= len(keychains) <= 2 or keychains[0].startswith("addr("):  # BDK has no addr()
        return []
    wallet, share = await bdk_wallet(life.client, account="main"), answers.shares["account main"]
    coins = [each for each in share.coins if each.keychain in keychains and each.spent_by is None]
    recounted, balance = balance_of(coins, answers.tip), wallet.balance()
    shown = (
        balance.confirmed.to_sat(),
        balance.immature.to_sat(),
        balance.trusted_pending.to_sat() + balance.untrusted_pending.to_sat(),
    )
    expected = (recounted.confirmed, recounted.immature, recounted.pending_in)
    found = [] if shown == expected else [f"BDK's balance is {shown}, not {expected}"]
    unspent, locked = {outpoint_of(each.outpoint) for each in wallet.list_unspent()}, wallet.list_locked_outpoints()
    free = unspent - {*map(outpoint_of, locked)}
    may_spend = points(share.with_change) & points(coins)
    return [*found, *difference("BDK's coins", unspent, points(coins)), *difference("BDK may spend", free, may_spend)]


def outpoint_of(outpoint: Any) -> OutPoint:
    """An outpoint of BDK."""
    return OutPoint(outpoint.txid.serialize(), outpoint.vout)


EDGES: list[Callable[[Life, Answers], Awaitable[list[str]]]] = [electrum, events, reader, node, bdk_edge]


async def disagreements(life: Life) -> list[str]:
    """Wait until the client has the node's tip, and describe what the edges show differently at that moment."""
    for _ in range(10):
        await life.settle()
        answers = await life.client.read(lambda views: answers_of(views, life))
        found = [each for rule in LIBRARY for each in rule(answers)]
        for edge in EDGES:
            found += await edge(life, answers)
        if await life.client.sequence() == answers.sequence:
            return found
    return ["events came during each of ten comparisons"]


# Commands, after the end of a life


def scan_and_export(life: Life) -> list[str]:
    """A scan and an export of the node's blocks give the wallet's confirmed value. Skipped blocks may lack some."""
    with WalletStore.open(life.path) as store:
        coins, is_complete = store.coins(), not any(each.skipped for each in store.searched())
    if not is_complete:
        return []
    confirmed = Counter[bytes]()
    for coin in coins:
        if coin.height is not None:
            confirmed[coin.script_pubkey] += coin.value
    blocks = life.folder / "blocks"
    blocks.mkdir()
    write_records(blocks / "blk00000.dat", [each.raw for each in life.regtest.chain.blocks.values()])
    return [*wrong_scan(life, blocks, confirmed.total()), *wrong_export(life, blocks, confirmed)]


def wrong_scan(life: Life, blocks: Path, expected: int) -> Iterator[str]:
    """A scan also looks at indexes beyond the wallet's windows, so their coins do not count."""
    watch, out = life.folder / "watch.txt", life.folder / "scan"
    life.watch.save(watch)
    ran = process("scan", blocks, "--watch", watch, "--network", "regtest", "--out", out)
    total = sum(int(row["received"]) - int(row["spent"]) for row in rows_of(out / "totals.csv"))
    beyond = sum(
        int(row["value"]) * (-1 if row["kind"] == "input" else 1)
        for row in rows_of(out / "matches.csv")
        if bytes.fromhex(row["script_pubkey"]) not in life.watch
    )
    if total - beyond != expected:
        yield f"scan finds {total}, of which {beyond} is beyond the windows, not {expected}: {ran.stderr.decode()}"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]


def wrong_export(life: Life, blocks: Path, confirmed: Mapping[bytes, int]) -> Iterator[str]:
    import pyarrow.parquet as pq

    out = life.folder / "export"
    process("export", blocks, "--network", "regtest", "--out", out, "--balances", "--columns", "blocks")
    (file,) = (out / "balances").rglob("*.parquet")
    rows = pq.read_table(file, partitioning=None).to_pylist()
    balances = {row["script"]: row["value"] for row in rows}
    yield from difference("exported balances", {(key, balances.get(key, 0)) for key in confirmed}, {*confirmed.items()})


def points(coins: Iterable[Coin]) -> set[OutPoint]:
    return {each.outpoint for each in coins}


def difference(what: str, found: set[Any], expected: set[Any]) -> Iterator[str]:
    if found != expected:
        yield f"{what}: {[*map(str, found - expected)]} too much, {[*map(str, expected - found)]} lacking"
