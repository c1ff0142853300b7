"""spvfilter: which of these transactions concern my wallet? The public names, loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from spvfilter._version import __version__

if TYPE_CHECKING:
    from spvfilter.address import address_to_script as address_to_script, script_to_address as script_to_address
    from spvfilter.bloom.counting import CountingBloomFilter as CountingBloomFilter
    from spvfilter.bloom.filter import BloomFilter as BloomFilter
    from spvfilter.bloom.hashing import (
        Bip37Hash as Bip37Hash,
        CustomHash as CustomHash,
        FastHash as FastHash,
        HashFamily as HashFamily,
        SipHash as SipHash,
    )
    from spvfilter.bloom.redis.filter import RedisBloomFilter as RedisBloomFilter
    from spvfilter.errors import (
        AddressError as AddressError,
        BlockFilterError as BlockFilterError,
        FalseFilterError as FalseFilterError,
        FormatError as FormatError,
        FpRateWarning as FpRateWarning,
        IncompleteScanError as IncompleteScanError,
        InexpressibleError as InexpressibleError,
        LostSpendsWarning as LostSpendsWarning,
        MismatchError as MismatchError,
        OrderError as OrderError,
        ParameterError as ParameterError,
        PeerError as PeerError,
        ProofError as ProofError,
        ReadOnlyError as ReadOnlyError,
        RemoteConnectionError as RemoteConnectionError,
        RemoteError as RemoteError,
        RemoteExistsError as RemoteExistsError,
        RemoteFullError as RemoteFullError,
        RemoteMissingError as RemoteMissingError,
        RemoteReadOnlyError as RemoteReadOnlyError,
        RemoteTypeError as RemoteTypeError,
        SourceError as SourceError,
        SpvFilterError as SpvFilterError,
        SpvFilterWarning as SpvFilterWarning,
        StoreError as StoreError,
        TooLargeError as TooLargeError,
        WatchFileError as WatchFileError,
        WrongNetworkError as WrongNetworkError,
    )
    from spvfilter.filters.batch import match_filters as match_filters
    from spvfilter.filters.bip37 import (
        Bip37Filter as Bip37Filter,
        MatchedTx as MatchedTx,
        UpdateFlags as UpdateFlags,
    )
    from spvfilter.filters.bip158 import BasicFilter as BasicFilter
    from spvfilter.filters.gcs import GolombCodedSet as GolombCodedSet
    from spvfilter.kernel import GcsQuery as GcsQuery
    from spvfilter.light.client import LightClient as LightClient
    from spvfilter.light.events import PeerChanged as PeerChanged, PeerWarning as PeerWarning, Progress as Progress, Synced as Synced
    from spvfilter.network import (
        MAINNET as MAINNET,
        NETWORKS as NETWORKS,
        REGTEST as REGTEST,
        SIGNET as SIGNET,
        TESTNET3 as TESTNET3,
        TESTNET4 as TESTNET4,
        Network as Network,
    )
    from spvfilter.node.server import Node as Node
    from spvfilter.p2p.limits import Limits as Limits
    from spvfilter.primitives import Header as Header, OutPoint as OutPoint, TxOut as TxOut
    from spvfilter.scan.feed import ScanReport as ScanReport
    from spvfilter.scan.matcher import Matcher as Matcher
    from spvfilter.scan.sources import BlockFiles as BlockFiles, RawBlock as RawBlock
    from spvfilter.wallet.events import (
        BlockConnected as BlockConnected,
        BlockDisconnected as BlockDisconnected,
        MatchConfirmed as MatchConfirmed,
        MatchFound as MatchFound,
        MatchWithdrawn as MatchWithdrawn,
    )
    from spvfilter.watch.match import Match as Match, MatchKind as MatchKind
    from spvfilter.watch.watchlist import WatchList as WatchList

_HOME = {
    "address": "address_to_script script_to_address",
    "p2p.limits": "Limits",
    "light.events": "PeerChanged PeerWarning Progress Synced",
    "wallet.events": "BlockConnected BlockDisconnected MatchConfirmed MatchFound MatchWithdrawn",
    "light.client": "LightClient",
    "scan.matcher": "Matcher",
    "node.server": "Node",
    "scan.feed": "ScanReport",
    "bloom.redis.filter": "RedisBloomFilter",
    "scan.sources": "BlockFiles RawBlock",
    "errors": "AddressError BlockFilterError FalseFilterError FormatError FpRateWarning IncompleteScanError InexpressibleError "
    "LostSpendsWarning MismatchError OrderError ParameterError PeerError ProofError ReadOnlyError RemoteConnectionError RemoteError "
    "RemoteExistsError RemoteFullError RemoteMissingError "
    "RemoteReadOnlyError RemoteTypeError SourceError SpvFilterError SpvFilterWarning StoreError TooLargeError WatchFileError "
    "WrongNetworkError",
    "filters.bip158": "BasicFilter",
    "filters.bip37": "Bip37Filter MatchedTx UpdateFlags",
    "bloom.filter": "BloomFilter",
    "filters.batch": "match_filters",
    "bloom.counting": "CountingBloomFilter",
    "bloom.hashing": "Bip37Hash CustomHash FastHash HashFamily SipHash",
    "filters.gcs": "GolombCodedSet",
    "kernel": "GcsQuery",
    "network": "MAINNET NETWORKS Network REGTEST SIGNET TESTNET3 TESTNET4",
    "primitives": "Header OutPoint TxOut",
    "watch.match": "Match MatchKind",
    "watch.watchlist": "WatchList",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
