"""The P2P messages: a class for each message, the limits, and the table of commands.

Each class is a frozen dataclass with `parse(payload)`, which raises FormatError, and `__bytes__`, which returns the
payload. A message object is always well-formed: its constructor raises ParameterError for values that have no encoding
or exceed a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.wire.messages.addresses import (
        Addr as Addr,
        AddrV2 as AddrV2,
        GetAddr as GetAddr,
        NetId as NetId,
        PeerAddress as PeerAddress,
    )
    from spvfilter.wire.messages.control import (
        FeeFilter as FeeFilter,
        Ping as Ping,
        Pong as Pong,
        Reject as Reject,
        SendAddrV2 as SendAddrV2,
        SendCmpct as SendCmpct,
        SendHeaders as SendHeaders,
        Verack as Verack,
        Version as Version,
        WtxidRelay as WtxidRelay,
    )
    from spvfilter.wire.messages.filters import (
        CFCheckpt as CFCheckpt,
        CFHeaders as CFHeaders,
        CFilter as CFilter,
        FilterAdd as FilterAdd,
        FilterClear as FilterClear,
        FilterLoad as FilterLoad,
        GetCFCheckpt as GetCFCheckpt,
        GetCFHeaders as GetCFHeaders,
        GetCFilters as GetCFilters,
    )
    from spvfilter.wire.messages.inventory import (
        Block as Block,
        GetBlocks as GetBlocks,
        GetData as GetData,
        GetHeaders as GetHeaders,
        Headers as Headers,
        Inv as Inv,
        InvItem as InvItem,
        InvType as InvType,
        Mempool as Mempool,
        NotFound as NotFound,
        Tx as Tx,
        Unknown as Unknown,
    )
    from spvfilter.wire.messages.merkleblock import (
        Flaw as Flaw,
        MerkleBlock as MerkleBlock,
        Proof as Proof,
        ProvedTx as ProvedTx,
    )
    from spvfilter.wire.messages.table import (
        LIMITS as LIMITS,
        Message as Message,
        command_of as command_of,
        parse_message as parse_message,
    )
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        addresses="Addr AddrV2 GetAddr NetId PeerAddress",
        control="FeeFilter Ping Pong Reject SendAddrV2 SendCmpct SendHeaders Verack Version WtxidRelay",
        filters="CFCheckpt CFHeaders CFilter FilterAdd FilterClear FilterLoad GetCFCheckpt GetCFHeaders GetCFilters",
        inventory="Block GetBlocks GetData GetHeaders Headers Inv InvItem InvType Mempool NotFound Tx Unknown",
        merkleblock="Flaw MerkleBlock Proof ProvedTx",
        table="LIMITS Message command_of parse_message",
    )
