"""Requests to a node over HTTP: one connection pool, bounded answers, no redirects, no compression, no proxies."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass
from spvfilter._public import deferred, public
from spvfilter.errors import (
    NodeAnswerError,
    NodeBusyError,
    NodeError,
    NodeRefusedError,
    NodeUnreachableError,
    ParameterError,
)
from spvfilter.rpc.credentials import redacted
from spvfilter.rpc.endpoint import Endpoint

if TYPE_CHECKING:
    import asyncio
    import ssl

    import httpx
else:
    asyncio = deferred("asyncio")
    ssl = deferred("ssl")

ERROR_BODY_SIZE = 16_384  # bytes of an answer that is an error
_SHOWN = 200  # characters of the node's own words
_BUSY = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)


@public
@dataclass(frozen=True, slots=True)
class Limits:
    """What is spent on a node at most. Raises ParameterError for what is not positive."""

    connections: int = 4
    """As many requests at once; Core works on 4 by default up to version 28."""
    connect_s: float = 10.0
    answer_s: float = 120.0
    """For a whole answer, however slowly it comes."""

    def __post_init__(self) -> None:
        if self.connections < 1 or not self.connect_s > 0 or not self.answer_s > 0:
            raise ParameterError(f"limits are above 0: {self}")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that came in whole. Its status may be an error's."""

    status: int
    content_type: str
    body: bytes

    @property
    def words(self) -> str:
        """What the node says, printable and shortened."""
        return shown(self.body[: 4 * _SHOWN].decode("utf-8", "replace"))


def shown(text: str) -> str:
    """A text of the node as it may be printed: on one line, printable, not long."""
    plain = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * _SHOWN]).split())
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"


def _httpx() -> ModuleType:
    try:
        import httpx
    except ImportError:
        raise ParameterError("a node is asked with httpx: pip install 'spvfilter[rpc]'") from None
    return httpx


class HttpClient:
    """A pool of connections to one node, to be closed with `aclose`. Raises ParameterError without httpx."""

    def __init__(self, endpoint: Endpoint, limits: Limits) -> None:
        library = _httpx()
        self.endpoint = endpoint
        self._limits = limits
        self._free = asyncio.Semaphore(limits.connections)
        self._client: httpx.AsyncClient = library.AsyncClient(
            base_url=str(endpoint),
            headers={"Accept-Encoding": "identity", "User-Agent": "spvfilter"},
            verify=ssl.create_default_context() if endpoint.scheme == "https" else False,
            follow_redirects=False,
            trust_env=False,  # neither proxies nor passwords of .netrc
            timeout=library.Timeout(limits.answer_s, connect=limits.connect_s),
            limits=library.Limits(max_connections=limits.connections, max_keepalive_connections=limits.connections),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, path: str, most: int) -> Reply:
        """The answer to GET, of at most `most` bytes. Raises NodeUnreachableError, NodeAnswerError."""
        return await self._ask("GET", path, most, None, {})

    async def post(self, path: str, most: int, body: bytes, headers: Mapping[str, str]) -> Reply:
        """The answer to POST of JSON, likewise."""
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
                raise NodeUnreachableError(f"{self.endpoint}: no connection: {shown(str(error))}") from None
            except library.RemoteProtocolError as error:
                raise NodeUnreachableError(
                    f"{self.endpoint}: the answer was cut off or is no HTTP: {shown(str(error))}"
                ) from None
            except (library.HTTPError, OSError) as error:
                raise NodeUnreachableError(f"{self.endpoint}: the connection broke: {type(error).__name__}") from None

    async def _read(self, answer: httpx.Response, most: int) -> Reply:
        if answer.is_redirect or 300 <= answer.status_code < 400:
            raise NodeAnswerError(f"{self.endpoint}: redirects elsewhere, which is not followed")
        coding = answer.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise NodeAnswerError(
                f"{self.endpoint}: the answer is compressed ({shown(coding)}), which was not asked for"
            )
        most = most if answer.status_code == HTTPStatus.OK else max(most, ERROR_BODY_SIZE)
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > most:
                raise NodeAnswerError(f"{self.endpoint}: the answer has more than {most:,} bytes")
        return Reply(
            answer.status_code, answer.headers.get("content-type", "").partition(";")[0].strip().lower(), bytes(body)
        )


def check_status(reply: Reply, endpoint: Endpoint, secret: str | None = None) -> None:
    """Raise the error of a status that means the same by REST and RPC, without the secret:

    NodeRefusedError, NodeBusyError.
    """
    if reply.status == HTTPStatus.UNAUTHORIZED:
        raise NodeRefusedError(f"{endpoint}: wrong user, password or cookie (401)")
    if reply.status == HTTPStatus.FORBIDDEN:
        raise NodeRefusedError(f"{endpoint}: we may not ask that (403): see rpcallowip and rpcwhitelist of the node")
    if reply.status in _BUSY:
        raise NodeBusyError(
            f"{endpoint}: busy or starting ({reply.status}): {redacted(reply.words, secret) or 'it gives no reason'}"
        )


def _is_of_tls(error: BaseException | None) -> bool:
    """Whether an error, or one that it came of, is one of TLS: a certificate that is not trusted, or no TLS at all."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
