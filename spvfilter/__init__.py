"""spvfilter finds a wallet's Bitcoin transactions, live from full nodes or in raw block files.

This package exports the names that a first program needs. All other names are in these packages: spvfilter.bloom,
.bloom.exchange, .bloom.redis, .chain, .filters, .interop, .light, .node, .p2p, .rpc, .scan, .store, .wallet, .watch,
.watch.descriptor, .wire and .wire.messages. The modules spvfilter.address, .bloom.sizing, .errors, .hashes, .network,
.primitives, .signing, .testing and .transaction are public as well. Each of them lists its names in `__all__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter._version import __version__ as __version__
    from spvfilter.address import address_to_script as address_to_script, script_to_address as script_to_address
    from spvfilter.bloom import BloomFilter as BloomFilter, CountingBloomFilter as CountingBloomFilter
    from spvfilter.errors import (
        AddressError as AddressError,
        FormatError as FormatError,
        ParameterError as ParameterError,
        PeerError as PeerError,
        SpvFilterError as SpvFilterError,
        StoreError as StoreError,
    )
    from spvfilter.filters import (
        BasicFilter as BasicFilter,
        Bip37Filter as Bip37Filter,
        UpdateFlags as UpdateFlags,
        match_filters as match_filters,
    )
    from spvfilter.light import (
        LightClient as LightClient,
        PeerWarning as PeerWarning,
        Progress as Progress,
        Synced as Synced,
        SyncLightClient as SyncLightClient,
    )
    from spvfilter.network import (
        MAINNET as MAINNET,
        REGTEST as REGTEST,
        SIGNET as SIGNET,
        TESTNET3 as TESTNET3,
        TESTNET4 as TESTNET4,
        Network as Network,
    )
    from spvfilter.node import Node as Node
    from spvfilter.primitives import OutPoint as OutPoint, TxOut as TxOut
    from spvfilter.scan import BlockFiles as BlockFiles, Matcher as Matcher
    from spvfilter.signing import build_tx as build_tx
    from spvfilter.store import (
        Balance as Balance,
        Coin as Coin,
        HistoryEntry as HistoryEntry,
        TxStatus as TxStatus,
    )
    from spvfilter.transaction import TxIn as TxIn
    from spvfilter.wallet import (
        MatchConfirmed as MatchConfirmed,
        MatchFound as MatchFound,
        MatchUnconfirmed as MatchUnconfirmed,
        MatchWithdrawn as MatchWithdrawn,
        WalletStore as WalletStore,
    )
    from spvfilter.watch import (
        Completeness as Completeness,
        Match as Match,
        MatchKind as MatchKind,
        WatchList as WatchList,
    )
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        _version="__version__",
        address="address_to_script script_to_address",
        bloom="BloomFilter CountingBloomFilter",
        errors="AddressError FormatError ParameterError PeerError SpvFilterError StoreError",
        filters="BasicFilter Bip37Filter UpdateFlags match_filters",
        light="LightClient PeerWarning Progress SyncLightClient Synced",
        network="MAINNET Network REGTEST SIGNET TESTNET3 TESTNET4",
        node="Node",
        primitives="OutPoint TxOut",
        scan="BlockFiles Matcher",
        signing="build_tx",
        store="Balance Coin HistoryEntry TxStatus",
        transaction="TxIn",
        wallet="MatchConfirmed MatchFound MatchUnconfirmed MatchWithdrawn WalletStore",
        watch="Completeness Match MatchKind WatchList",
    )
