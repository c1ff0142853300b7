"""A Bitcoin Dev Kit wallet with spvfilter's history, to build transactions and fee bumps for a signer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError, remedy
from spvfilter.light.client import LightClient
from spvfilter.network import Network
from spvfilter.store.views import HistoryEntry
from spvfilter.store.windowviews import KeychainStatus
from spvfilter.watch.descriptor import parse_descriptor

if TYPE_CHECKING:
    import bdkpython as bdk
else:
    bdk = deferred("bdkpython")

_NETWORKS = {
    "mainnet": "BITCOIN",
    "testnet3": "TESTNET",
    "testnet4": "TESTNET4",
    "signet": "SIGNET",
    "regtest": "REGTEST",
}
"""BDK's names of the networks."""


@public
async def bdk_wallet(client: LightClient, keychain: str | None = None, *, account: str | None = None) -> bdk.Wallet:
    """Return a BDK wallet with the history of a client's keychains, for TxBuilder and BumpFeeTxBuilder.

    The wallet is a snapshot, without a database or private keys. Sign the PSBTs that it builds with another program,
    and pass the result to `LightClient.broadcast`. Then create a new wallet.

    Revealed addresses count as used, so BDK never pays change to an open invoice. The wallet's next unused address is
    the same as `LightClient.next_address`. BDK spends only coins of `LightClient.unspent(trusted_change=True)`: the
    others, such as unconfirmed payments from other people, are locked.

    Args:
        client: A running client.
        keychain: Name or label of one keychain, or of two, for receiving and for change, in this order. By default, all
            of the client's keychains.
        account: Only keychains of this account.

    Raises:
        UnknownAccountError: The wallet has no such account.
        ParameterError: There are not one or two such keychains, each with a descriptor. Also if BDK does not support
            the network or a descriptor, or derives other addresses from it, or if bdkpython is missing.
        NotRunningError: The client is not running.
        StoreError: The database cannot be read.
    """
    name = network_name(client.network)
    try:
        network = getattr(bdk.Network, name)
    except ImportError:
        raise ParameterError(f"a BDK wallet needs bdkpython; {remedy('bdk')}") from None
    found, keychains, unspent = await client.read(
        lambda views: (
            views.history(),
            views.keychains(keychain, account=account),
            views.unspent(account=account, trusted_change=True),
        )
    )
    entries = [each for each in found if each.status.counts]
    if not 1 <= len(keychains) <= 2 or any(map(_is_unknown, keychains)):
        raise ParameterError(
            f"a BDK wallet needs one or two keychains, each with a descriptor other than sp(), not {len(keychains)}:"
            " select them by label or account"
        )
    taken = [{*each.used, *each.pending, *range(each.revealed), *each.revealed_elsewhere} for each in keychains]
    descriptors = [_descriptor(each.name, client.network) for each in keychains]
    facts = bdk.ChangeSet.from_aggregate(
        descriptors[0],
        descriptors[1] if len(descriptors) > 1 else None,
        network,
        _chain(client, entries),
        _graph(entries),
        bdk.IndexerChangeSet(
            last_revealed={
                descriptor.descriptor_id(): max(indexes)
                for descriptor, indexes in zip(descriptors, taken, strict=True)
                if indexes
            }
        ),
    )
    wallet = _loaded(descriptors, facts)
    for kind, indexes in zip((bdk.KeychainKind.EXTERNAL, bdk.KeychainKind.INTERNAL), taken, strict=False):
        for index in indexes:
            wallet.mark_used(kind, index)
    free = {(coin.outpoint.txid, coin.outpoint.index) for coin in unspent}
    for output in wallet.list_unspent():
        if (output.outpoint.txid.serialize(), output.outpoint.vout) not in free:
            wallet.lock_outpoint(output.outpoint)
    return wallet


def _is_unknown(keychain: KeychainStatus) -> bool:
    """Return True if BDK cannot read the keychain, because it has no descriptor or an sp() descriptor."""
    return keychain.descriptor is None or keychain.descriptor.startswith("sp(")


def _descriptor(text: str, network: Network) -> Any:
    """Return BDK's descriptor. Raises ParameterError if BDK does not support it, as for addr() and musig().

    BDK derives other scripts from sortedmulti() with an uncompressed key: the wallet would have another address.
    """
    kind = bdk.NetworkKind.MAIN if network.name == "mainnet" else bdk.NetworkKind.TEST
    try:
        descriptor = bdk.Descriptor(text, kind)
        theirs = descriptor.derive_address(0, getattr(bdk.Network, network_name(network))).script_pubkey().to_bytes()
    except bdk.DescriptorError as error:
        raise ParameterError(f"BDK does not support the keychain {text[:80]!r}") from error
    if (theirs,) != parse_descriptor(text, network)[0].scripts(0):
        raise ParameterError(f"BDK derives other addresses than Bitcoin Core from the keychain {text[:80]!r}")
    return descriptor


def network_name(network: Network) -> str:
    """Return BDK's name of a network. Raises ParameterError if BDK does not know the network."""
    if network.signet_challenge is not None:
        return "SIGNET"
    name = _NETWORKS.get(network.name)
    if name is None:
        raise ParameterError(f"BDK does not support the network {network.name[:80]!r}, only {', '.join(_NETWORKS)}")
    return name


def _chain(client: LightClient, entries: list[HistoryEntry]) -> Any:
    """Return the blocks that contain the transactions, together with the genesis block and the tip."""
    blocks = {0: client.network.genesis_hash, client.chain.height: client.chain.tip_hash}
    blocks |= {each.height: each.block_hash for each in entries if each.height is not None and each.block_hash}
    changes = [bdk.ChainChange(height=at, hash=bdk.BlockHash.from_bytes(blocks[at])) for at in sorted(blocks)]
    return bdk.LocalChainChangeSet(changes=changes)


def _graph(entries: list[HistoryEntry]) -> Any:
    """Return the transactions, with the blocks that contain them or the times at which they were first seen."""
    anchors, seen = [], {}
    for each in entries:
        txid = bdk.Txid.from_bytes(each.txid)
        if each.height is None:
            seen[txid] = each.first_seen or 1
        else:
            block = bdk.BlockId(height=each.height, hash=bdk.BlockHash.from_bytes(each.block_hash))
            time = bdk.ConfirmationBlockTime(block_id=block, confirmation_time=each.time)
            anchors.append(bdk.Anchor(confirmation_block_time=time, txid=txid))
    txs = [bdk.Transaction(each.raw) for each in entries]
    return bdk.TxGraphChangeSet(txs=txs, txouts={}, anchors=anchors, last_seen=seen, first_seen={}, last_evicted={})


def _loaded(descriptors: list[Any], facts: Any) -> Any:
    """Load a wallet from a set of facts."""

    class Facts(bdk.Persistence):  # type: ignore[misc]  # without types
        def initialize(self) -> Any:
            return facts

        def persist(self, changeset: Any) -> None:
            """Drop the changes, because the wallet has no database."""

    persister = bdk.Persister.custom(Facts())
    # BDK must not find payments to addresses that spvfilter does not watch yet
    if len(descriptors) == 1:
        return bdk.Wallet.load_single(descriptors[0], persister, lookahead=0)
    return bdk.Wallet.load(*descriptors, persister, lookahead=0)
