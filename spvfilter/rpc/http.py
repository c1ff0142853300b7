"""HTTP requests to a node: one connection pool, answers of limited size, no redirects, no compression, no proxies."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING

from spvfilter._public import public
from spvfilter.errors import (
    NodeAnswerError,
    NodeBusyError,
    NodeError,
    NodeRefusedError,
    NodeUnreachableError,
    ParameterError,
    remedy,
)
from spvfilter.rpc.credentials import redacted
from spvfilter.rpc.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx

ERROR_BODY_SIZE = 16_384  # largest answer that reports an error, in bytes (our choice)
_SHOWN = 200  # most characters of the node's text that messages show
_BUSY = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)


@public
@dataclass(frozen=True, slots=True)
class RpcLimits:
    """Number of connections, and timeouts, for requests to a node.

    Raises ParameterError if a value is not above 0.
    """

    connections: int = 4
    """Largest number of open connections and simultaneous requests.

    Core up to version 28 processes 4 requests at a time by default.
    """
    connect_s: float = 10.0
    """Timeout for connecting to the node, in seconds."""
    answer_s: float = 120.0
    """Timeout for a complete answer, in seconds."""

    def __post_init__(self) -> None:
        if self.connections < 1 or not self.connect_s > 0 or not self.answer_s > 0:
            raise ParameterError(f"limits must be above 0: {self}")


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete HTTP answer from a node. Its status may report an error."""

    status: int
    """HTTP status code of the answer."""
    content_type: str
    """Media type of the body, in lower case and without parameters."""
    body: bytes
    """Body of the answer."""

    @property
    def words(self) -> str:
        """Return the body as a short printable text."""
        return shown(self.body[: 4 * _SHOWN].decode("utf-8", "replace"))


def shown(text: str) -> str:
    """Return text from the node as one line of at most 200 printable characters."""
    plain = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * _SHOWN]).split())
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"


def _httpx() -> ModuleType:
    try:
        import httpx
    except ImportError:
        raise ParameterError(f"requests to a node need httpx; {remedy('rpc')}") from None
    return httpx


class HttpClient:
    """A pool of HTTP connections to one node. Close it with `aclose`.

    Raises ParameterError if httpx is not installed.
    """

    def __init__(self, endpoint: Endpoint, limits: RpcLimits) -> None:
        library = _httpx()
        self.endpoint = endpoint
        self._limits = limits
        self._free = asyncio.Semaphore(limits.connections)
        self._client: httpx.AsyncClient = library.AsyncClient(
            base_url=str(endpoint),
            headers={"Accept-Encoding": "identity", "User-Agent": "spvfilter"},
            verify=ssl.create_default_context() if endpoint.scheme == "https" else False,
            follow_redirects=False,
            trust_env=False,  # no proxies, and no passwords from .netrc
            timeout=library.Timeout(limits.answer_s, connect=limits.connect_s),
            limits=library.Limits(max_connections=limits.connections, max_keepalive_connections=limits.connections),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, path: str, most: int) -> Reply:
        """Send a GET request. Raises NodeUnreachableError, or NodeAnswerError if the answer exceeds `most` bytes."""
        return await self._ask("GET", path, most, None, {})

    async def post(self, path: str, most: int, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Send a POST request with JSON. Raises the same errors as `get`."""
        return await self._ask("POST", path, most, body, {"Content-Type": "application/json", **headers})

    async def _ask(self, method: str, path: str, most: int, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        library = _httpx()
        async with self._free:
            try:
                async with (
                    asyncio.timeout(self._limits.answer_s),
                    self._client.stream(method, path, content=body, headers=headers) as answer,
                ):
                    return await self._read(answer, most)
            except NodeError:
                raise
            except (TimeoutError, library.TimeoutException) as error:
                connecting = isinstance(error, library.ConnectTimeout)
                within = self._limits.connect_s if connecting else self._limits.answer_s
                raise NodeUnreachableError(
                    f"{self.endpoint}: no {'connection' if connecting else 'answer'} within {within:g} s"
                ) from None
            except library.ConnectError as error:
                if _is_of_tls(error):
                    raise NodeRefusedError(f"{self.endpoint}: no secure connection: {shown(str(error))}") from None
                advice = "is the node running, and is this the port of its RPC or REST?"
                raise NodeUnreachableError(f"{self.endpoint}: no connection: {shown(str(error))}: {advice}") from None
            except library.RemoteProtocolError as error:
                raise NodeUnreachableError(
                    f"{self.endpoint}: the answer was cut off or is not HTTP: {shown(str(error))}"
                ) from None
            except (library.HTTPError, OSError) as error:
                raise NodeUnreachableError(
                    f"{self.endpoint}: the connection was lost: {type(error).__name__}"
                ) from None

    async def _read(self, answer: httpx.Response, most: int) -> Reply:
        if answer.is_redirect or 300 <= answer.status_code < 400:
            raise NodeAnswerError(f"{self.endpoint}: the answer redirects to another URL, which is not followed")
        coding = answer.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise NodeAnswerError(
                f"{self.endpoint}: the answer is compressed ({shown(coding)}), which was not requested"
            )
        most = most if answer.status_code == HTTPStatus.OK else max(most, ERROR_BODY_SIZE)
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > most:
                raise NodeAnswerError(f"{self.endpoint}: the answer exceeds {most:,} bytes")
        return Reply(
            answer.status_code, answer.headers.get("content-type", "").partition(";")[0].strip().lower(), bytes(body)
        )


def check_status(reply: Reply, endpoint: Endpoint, secret: str | None = None) -> None:
    """Check a status code that means the same in REST and RPC.

    Raises NodeRefusedError if it is 401 or 403, and NodeBusyError if it is 429, 502, 503 or 504. Messages never contain
    the secret.
    """
    if reply.status == HTTPStatus.UNAUTHORIZED:
        raise NodeRefusedError(f"{endpoint}: wrong user, password or cookie (401)")
    if reply.status == HTTPStatus.FORBIDDEN:
        raise NodeRefusedError(
            f"{endpoint}: the node forbids the request (403): check its rpcallowip and rpcwhitelist options"
        )
    if reply.status in _BUSY:
        raise NodeBusyError(
            f"{endpoint}: busy or starting ({reply.status}): {redacted(reply.words, secret) or 'it gives no reason'}"
        )


def _is_of_tls(error: BaseException | None) -> bool:
    """Return True if an error or its cause is a TLS error: an untrusted certificate, or a server without TLS."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
