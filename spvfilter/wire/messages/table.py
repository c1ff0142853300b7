"""The table of P2P messages: each command with its class and the size of its longest payload.

Each class is a frozen dataclass with `parse(payload)`, which raises FormatError with offset and field, and `__bytes__`,
which returns the payload.

- Every count and length is checked against its limit and against the remaining bytes before memory is allocated.
- Trailing bytes are refused, except in the version message, which later protocol versions may extend.
- A message object is always well-formed: its constructor raises ParameterError for values that have no encoding or
  exceed a limit.
"""

from __future__ import annotations

from typing import Protocol, Self, SupportsBytes

from spvfilter._public import public
from spvfilter.errors import FormatError, MessageError, ParameterError
from spvfilter.protocol import MAX_PAYLOAD_SIZE
from spvfilter.wire.messages import addresses, control, filters, inventory
from spvfilter.wire.messages.addresses import Addr, AddrV2, GetAddr, NetId, PeerAddress
from spvfilter.wire.messages.control import (
    FeeFilter,
    Ping,
    Pong,
    Reject,
    SendAddrV2,
    SendCmpct,
    SendHeaders,
    Verack,
    Version,
    WtxidRelay,
)
from spvfilter.wire.messages.filters import (
    CFCheckpt,
    CFHeaders,
    CFilter,
    FilterAdd,
    FilterClear,
    FilterLoad,
    GetCFCheckpt,
    GetCFHeaders,
    GetCFilters,
)
from spvfilter.wire.messages.inventory import (
    Block,
    GetBlocks,
    GetData,
    GetHeaders,
    Headers,
    Inv,
    InvItem,
    InvType,
    Mempool,
    NotFound,
    Tx,
    Unknown,
)
from spvfilter.wire.messages.merkleblock import MERKLEBLOCK_SIZE, MerkleBlock

__all__ = [
    "LIMITS",
    "Addr",
    "AddrV2",
    "Block",
    "CFCheckpt",
    "CFHeaders",
    "CFilter",
    "FeeFilter",
    "FilterAdd",
    "FilterClear",
    "FilterLoad",
    "GetAddr",
    "GetBlocks",
    "GetCFCheckpt",
    "GetCFHeaders",
    "GetCFilters",
    "GetData",
    "GetHeaders",
    "Headers",
    "Inv",
    "InvItem",
    "InvType",
    "Mempool",
    "MerkleBlock",
    "Message",
    "NetId",
    "NotFound",
    "PeerAddress",
    "Ping",
    "Pong",
    "Reject",
    "SendAddrV2",
    "SendCmpct",
    "SendHeaders",
    "Tx",
    "Unknown",
    "Verack",
    "Version",
    "WtxidRelay",
    "command_of",
    "parse_message",
]

Message = SupportsBytes  # an object of a class of the table, or Unknown; bytes(message) is the payload


class _Parsable(Protocol):
    def __bytes__(self) -> bytes: ...
    @classmethod
    def parse(cls, payload: bytes) -> Self: ...


# Bytes of the longest payload of a short message (our choice). It is more than these messages need: a message with
# trailing bytes is then dropped and does not end the stream.
_SHORT = 1_024

_TABLE: tuple[tuple[str, type[_Parsable], int], ...] = (
    ("version", Version, control.VERSION_SIZE),
    ("verack", Verack, _SHORT),
    ("wtxidrelay", WtxidRelay, _SHORT),
    ("sendaddrv2", SendAddrV2, _SHORT),
    ("sendheaders", SendHeaders, _SHORT),
    ("sendcmpct", SendCmpct, _SHORT),
    ("feefilter", FeeFilter, _SHORT),
    ("ping", Ping, _SHORT),
    ("pong", Pong, _SHORT),
    ("reject", Reject, control.REJECT_SIZE),
    ("getaddr", GetAddr, _SHORT),
    ("addr", Addr, addresses.ADDR_SIZE),
    ("addrv2", AddrV2, addresses.ADDRV2_SIZE),
    ("getheaders", GetHeaders, inventory.LOCATE_SIZE),
    ("getblocks", GetBlocks, inventory.LOCATE_SIZE),
    ("headers", Headers, inventory.HEADERS_SIZE),
    ("inv", Inv, inventory.INVENTORY_SIZE),
    ("getdata", GetData, inventory.INVENTORY_SIZE),
    ("notfound", NotFound, inventory.INVENTORY_SIZE),
    ("mempool", Mempool, _SHORT),
    ("tx", Tx, MAX_PAYLOAD_SIZE),
    ("block", Block, MAX_PAYLOAD_SIZE),
    ("merkleblock", MerkleBlock, MERKLEBLOCK_SIZE),
    ("filterload", FilterLoad, filters.FILTERLOAD_SIZE),
    ("filteradd", FilterAdd, filters.FILTERADD_SIZE),
    ("filterclear", FilterClear, _SHORT),
    ("getcfilters", GetCFilters, _SHORT),
    ("cfilter", CFilter, filters.CFILTER_SIZE),
    ("getcfheaders", GetCFHeaders, _SHORT),
    ("cfheaders", CFHeaders, filters.CFHEADERS_SIZE),
    ("getcfcheckpt", GetCFCheckpt, _SHORT),
    ("cfcheckpt", CFCheckpt, filters.CFCHECKPT_SIZE),
)
_CLASSES = {command: cls for command, cls, _ in _TABLE}
_COMMANDS: dict[type, str] = {cls: command for command, cls, _ in _TABLE}
LIMITS = {command: limit for command, _, limit in _TABLE}  # bytes of the longest payload by command, for Decoder


@public
def parse_message(command: str, payload: bytes) -> Message:
    """Parse the payload of a message into an object, which is an Unknown if the command is not in the table.

    Raises MessageError if the payload is malformed; its `__cause__` is a FormatError.
    """
    cls = _CLASSES.get(command)
    if cls is None:
        return Unknown(command, payload)
    try:
        return cls.parse(payload)
    except FormatError as error:
        raise MessageError(error.message, command=command, offset=error.offset, field=error.field) from error


@public
def command_of(message: Message) -> str:
    """Return the command of a message, such as "inv". Raises ParameterError if the object is not a message."""
    if isinstance(message, Unknown):
        return message.command
    try:
        return _COMMANDS[type(message)]
    except KeyError:
        raise ParameterError(f"expected a message, not {type(message).__name__}") from None
