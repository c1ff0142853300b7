"""RpcError: the error of one request, with its JSON-RPC code."""

from __future__ import annotations

from enum import IntEnum


class RpcCode(IntEnum):
    """JSON-RPC error codes, as ElectrumX uses them."""

    BAD_REQUEST = 1
    """The server cannot do what the request asks for."""
    NOT_FOUND = 2
    """The client does not have the transaction or block (ElectrumX: an error of its full node)."""
    METHOD_NOT_FOUND = -32601
    """The protocol version has no such method."""
    INVALID_ARGUMENTS = -32602
    """The number, the names or the types of the arguments are wrong."""


class RpcError(Exception):
    """An error with which to answer a request. The session continues, unless `ends_session` is True."""

    def __init__(self, code: RpcCode, message: str, *, ends_session: bool = False) -> None:
        super().__init__(message)
        self.code = code
        """JSON-RPC code."""
        self.message = message
        """Reason for the error, for a person to read."""
        self.ends_session = ends_session
        """True if the server closes the connection after the answer."""
