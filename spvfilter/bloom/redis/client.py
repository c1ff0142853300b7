"""Call Redis: clients, commands and scripts. redis-py's errors are translated into this package's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from spvfilter._public import public
from spvfilter.bloom.redis.scripts import Script
from spvfilter.errors import (
    FormatError,
    MismatchError,
    ParameterError,
    RemoteConnectionError,
    RemoteError,
    RemoteFullError,
    RemoteMissingError,
    RemoteReadOnlyError,
    RemoteTypeError,
    remedy,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster

    Client: TypeAlias = "Redis | RedisCluster"

# Result of a command that failed with NOSCRIPT: the server has never had the script, or was restarted or flushed.
_NOT_LOADED = object()
# Errors that the scripts of this package return: the kind, the index of the key, and its type.
_OURS = re.compile(r"\b(MISSING|ANOTHER|NOTSTRING|DAMAGED) (\d+)(?: (\w+))?")
# Error codes of Redis. In Redis 6.2 the error of a script has the code within its message.
_THEIRS = re.compile(r"\b(OOM|READONLY|WRONGTYPE|CROSSSLOT)\b")
# The part of a key after the prefix of its filter, and a prefix that is only a hash tag: see layout.py.
_PART = re.compile(r":(?:header|replaced|slices|(?:bits|slice|staged):[\da-f:]+)$")
_TAG = re.compile(r"^\{([^{}]+)\}$")


def exceptions() -> ModuleType:
    """Return the module of redis-py's exceptions. Raises ImportError, which names the extra, if it is missing."""
    try:
        from redis import exceptions
    except ImportError as error:
        raise ImportError(f"filters in Redis need redis-py; {remedy('redis')}") from error
    return exceptions


@public
def connect(url: str) -> Redis:
    """Return a client for a redis://, rediss:// or unix:// URL that never retries a command.

    A client that retries would hide a lost answer, and `add` could then report a new key as not new. Close the client
    with `async with` or `aclose`. Raises ImportError if redis-py is not installed, and ParameterError if the URL is
    invalid.
    """
    exceptions()
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    try:
        return Redis.from_url(url, retry=Retry(NoBackoff(), 0))
    except ValueError as error:
        raise ParameterError(f"not a URL of a Redis server: {error}") from None


def check_client(client: object) -> None:
    """Raise TypeError unless `client` is redis-py's asyncio client of a server or a cluster, and not a pipeline."""
    exceptions()
    from redis.asyncio import Redis
    from redis.asyncio.client import Pipeline
    from redis.asyncio.cluster import ClusterPipeline, RedisCluster

    if not isinstance(client, (Redis, RedisCluster)) or isinstance(client, (Pipeline, ClusterPipeline)):
        raise TypeError(f"expected a client of redis.asyncio, not {type(client).__module__}.{type(client).__name__}")


async def run(client: Client, script: Script, keys: Sequence[bytes], *arguments: bytes | int | str) -> object:
    """Run a script and return its result. Strings are returned as bytes, even if the client decodes them elsewhere.

    The script is identified by its SHA-1. Its body is sent only if the server does not have it yet.
    """
    tail = (len(keys), *keys, *arguments)
    answer = await command(client, keys, "EVALSHA", script.sha, *tail)
    return await command(client, keys, "EVAL", script.body, *tail) if answer is _NOT_LOADED else answer


async def command(client: Client, keys: Sequence[bytes], *words: bytes | int | str) -> object:
    """Run a command and return its result.

    Every error of redis-py is translated to a RemoteError. Raises MismatchError and FormatError if a script reports
    them.
    """
    errors = exceptions()
    task = asyncio.current_task()
    cancels = task.cancelling() if task else 0
    try:
        return await client.execute_command(*words, NEVER_DECODE=True)
    except errors.NoScriptError:
        return _NOT_LOADED
    except (errors.RedisError, errors.RedisClusterException) as error:
        raise translated(error, keys) from error
    finally:
        # redis-py uses asyncio.wait_for, which may swallow a cancellation in Python 3.11 (gh-86296)
        if task and task.cancelling() > cancels:
            raise asyncio.CancelledError


async def stored_header(client: Client, name: str, key: bytes) -> bytes:
    """Return the value of a filter's header key.

    Raises RemoteMissingError if there is none, RemoteTypeError if it is not a string, other RemoteErrors, and TypeError
    if `client` is not a client of redis-py.
    """
    check_client(client)
    raw = await command(client, [key], "GET", key)
    if raw is None:
        raise RemoteMissingError(f"no filter at {name!r}: it was never created, has expired, or was deleted or evicted")
    assert isinstance(raw, bytes)
    return raw


def translated(error: Exception, keys: Sequence[bytes]) -> RemoteError | MismatchError | FormatError:
    """Return the error of this package for an error of redis-py about these keys."""
    errors, message = exceptions(), str(error)
    if isinstance(error, (errors.ConnectionError, errors.TimeoutError)):
        advice = "start the server, or check its URL"
        told = f"no answer from the Redis server for the filter {_filter(keys[0])}: {message.rstrip('.')}; {advice}"
        return RemoteConnectionError(told)
    if ours := _OURS.search(message):
        key = _shown(keys[int(ours[2]) - 1])
        match ours[1]:
            case "MISSING":
                return RemoteMissingError(f"{key} is missing: it has expired, or was deleted or evicted")
            case "ANOTHER":
                return MismatchError(
                    f"{key} belongs to another filter: it has been re-created since this one was opened; open it again"
                )
            case "DAMAGED":
                return FormatError(f"{key} is not the state of a scalable filter", offset=0, field="slices")
            case _:
                return RemoteTypeError(f"{key} is not a string but a {ours[3]}")
    theirs = _THEIRS.search(message)
    code = theirs[1] if theirs else None
    if isinstance(error, errors.OutOfMemoryError) or code == "OOM":
        return RemoteFullError(f"{_shown(keys[0])}: the server has reached its maxmemory: {message}")
    if isinstance(error, errors.ReadOnlyError) or code == "READONLY":
        return RemoteReadOnlyError(f"{_shown(keys[0])}: the server is a read-only replica: {message}")
    if code == "WRONGTYPE":
        return RemoteTypeError(f"{_shown(keys[0])} is not a string: {message}")
    if (
        isinstance(error, errors.ClusterCrossSlotError)
        or code == "CROSSSLOT"
        or "same slot" in message
        or "same key slot" in message
    ):
        return RemoteError(
            f"{_shown(keys[0])}: keys are in different slots of a cluster; give their names the same hash tag:"
            f" {message}"
        )
    return RemoteError(f"{_shown(keys[0])}: {message}")


def _filter(key: bytes) -> str:
    """Return the name of the filter to which a key belongs, without the braces that make it a hash tag."""
    name = _PART.sub("", key.decode(errors="backslashreplace"))
    return repr(_TAG.sub(r"\1", name))


def _shown(key: bytes) -> str:
    return repr(key.decode(errors="backslashreplace"))
