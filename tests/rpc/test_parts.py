"""The parts of a node client: URL, credentials, retry policy, and the spent outputs of a block."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spvfilter.errors import (
    FormatError,
    NodeAnswerError,
    NodeBusyError,
    NodeError,
    NodeRefusedError,
    NodeUnreachableError,
    ParameterError,
)
from spvfilter.kernel import spent_coins
from spvfilter.protocol import MAX_MONEY
from spvfilter.rpc import CookieFile, Endpoint, Password, Patience, RpcLimits
from spvfilter.rpc.credentials import basic, redacted
from spvfilter.rpc.spent import undo_record
from support.blocks.undo import KEYS, Spent, record_of, undo_of
from support.client.pauses import Pauses
from support.peers.corenode import spent_answer
from support.vectors import effort


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8332", "http://127.0.0.1:8332"),
        ("http://127.0.0.1:18443/", "http://127.0.0.1:18443"),
        ("HTTP://node.example", "http://node.example:8332"),
        ("https://node.example:443", "https://node.example:443"),
        ("http://[::1]:8332", "http://[::1]:8332"),
        ("http://[::1]", "http://[::1]:8332"),
    ],
)
def test_a_url_is_parsed_and_shown(url: str, shown: str) -> None:
    assert str(Endpoint.parse(url)) == shown


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "127.0.0.1:8332",
            "ftp://node.example",
            "file:///etc/passwd",
            "http://",
            "http://:8332",
            "http://a b:1",
            "http://node:0",
        ),
        *(
            "http://node:65536",
            "http://node:1:2",
            "http://node/path",
            "http://node?query",
            "http://node#fragment",
            "http://::1:8332",
        ),
        *(
            "http://alice:geheim@node",
            "http://geheim@node:8332",
            "http://node:8332/@geheim",
            "http://no\nde:1",
            "http://[::1%25eth0]:1",
        ),
    ],
)
def test_an_unsuitable_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ParameterError) as error:
        Endpoint.parse(url)
    assert "geheim" not in str(error.value)


def test_a_cookie_is_read_for_each_request(tmp_path: Path) -> None:
    path = tmp_path / ".cookie"
    cookie = CookieFile(path)
    with pytest.raises(NodeRefusedError, match=r"\.cookie: No such file"):
        cookie.secret()
    for secret in ("__cookie__:1234", "__cookie__:5678"):
        path.write_text(secret)
        assert cookie.secret() == secret
    for wrong in (b"", b"no colon", b"a:b\nc:d", b"a:" + b"x" * 2_000, b"a:\xff\n", b"a:\0"):
        path.write_bytes(wrong)
        with pytest.raises(NodeRefusedError, match="not a cookie file") as error:
            cookie.secret()
        assert "x" * 20 not in str(error.value)
    assert repr(cookie) == f"CookieFile({str(path)!r})"


def test_a_password_is_hidden() -> None:
    password = Password("alice", "geheim:1")
    assert password.secret() == "alice:geheim:1"
    assert "geheim" not in repr(password) + str(vars(password).keys())
    for user, word in (("", "x"), ("a:b", "x"), ("a", "x" * 2_000)):
        with pytest.raises(ParameterError) as error:
            Password(user, word)
        assert word not in str(error.value) or word == "x"
    echoed = redacted(f"alice:geheim:1, {basic('alice:geheim:1')}, geheim:1", "alice:geheim:1")
    assert "geheim" not in echoed
    assert basic("alice:geheim:1")[6:] not in echoed
    assert redacted("nothing", None) == "nothing"


def test_limits_and_retries_must_be_valid_numbers() -> None:
    for wrong in ({"connections": 0}, {"connect_s": 0}, {"answer_s": -1}, {"answer_s": float("nan")}):
        with pytest.raises(ParameterError):
            RpcLimits(**wrong)
    for seconds in (-1, float("nan")):
        with pytest.raises(ParameterError):
            Patience(seconds)


class Calls:
    """Raises one of these errors for each call, and then returns a number."""

    def __init__(self, *errors: NodeError) -> None:
        self.errors = list(errors)

    async def __call__(self) -> int:
        if self.errors:
            raise self.errors.pop(0)
        return 5


async def test_retries_to_a_node_that_is_down_have_growing_pauses() -> None:
    pauses = Pauses()
    assert (
        await pauses.patience().ask(Calls(*[NodeUnreachableError("down")] * 4, *[NodeBusyError("starting")] * 6)) == 5
    )
    assert pauses.slept == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert pauses.told == ["down; trying again"] * 4 + ["starting; trying again"] * 6


async def test_retries_end() -> None:
    pauses = Pauses()
    with pytest.raises(NodeUnreachableError):
        await pauses.patience(20).ask(Calls(*[NodeUnreachableError("down")] * 100))
    assert sum(pauses.slept) <= 20 < sum(pauses.slept) + 30
    endless = Pauses()
    assert await endless.patience(None).ask(Calls(*[NodeUnreachableError("down")] * 1_000)) == 5
    assert endless.now > 20_000


async def test_only_a_starting_node_is_waited_for_at_first() -> None:
    pauses = Pauses()
    with pytest.raises(NodeUnreachableError):
        await pauses.patience().ask(Calls(NodeUnreachableError("refused")), is_known=False)
    assert await pauses.patience().ask(Calls(NodeBusyError("starting")), is_known=False) == 5
    assert pauses.slept == [0.5]


async def test_a_false_answer_is_retried_twice_and_a_refusal_never() -> None:
    pauses = Pauses()
    assert await pauses.patience().ask(Calls(*[NodeAnswerError("wrong")] * 2)) == 5
    with pytest.raises(NodeAnswerError):
        await pauses.patience().ask(Calls(*[NodeAnswerError("wrong")] * 3))
    before = len(pauses.slept)
    with pytest.raises(NodeRefusedError):
        await pauses.patience().ask(Calls(NodeRefusedError("no")))
    assert len(pauses.slept) == before


def coin(rng: random.Random) -> Spent:
    shape = rng.randrange(6)
    value = rng.choice(
        [0, 1, 9, 10, MAX_MONEY, rng.randrange(MAX_MONEY), rng.randrange(1, 2_100) * 10 ** rng.randrange(12)]
    )
    scripts = [
        b"\x76\xa9\x14" + rng.randbytes(20) + b"\x88\xac",
        b"\xa9\x14" + rng.randbytes(20) + b"\x87",
        b"\x41" + rng.choice(KEYS) + b"\xac",
        b"\x21\x02" + rng.choice(KEYS)[1:33] + b"\xac",
        rng.randbytes(rng.choice([0, 1, 121, 122, 123, 252, 253, 10_000])),
        b"\x00\x14" + rng.randbytes(20),
    ]
    return Spent(value, scripts[shape])


@pytest.mark.parametrize("seed", range(effort(10, 40, 2_000)))
def test_a_response_becomes_an_undo_record_of_the_same_coins(seed: int) -> None:
    rng = random.Random(seed)
    spent = [[coin(rng) for _ in range(rng.choice([0, 1, 2, 300]))] for _ in range(rng.randrange(5))]
    previous = rng.randbytes(32)
    record = undo_record(spent_answer(spent), previous)
    assert record[-32:] == record_of(bytes(4) + previous, record[:-32])[-32:]
    assert spent_coins(record[:-32]) == spent_coins(undo_of(spent))


def test_a_truncated_response_is_an_error() -> None:
    rng = random.Random(1)
    answer = spent_answer([[coin(rng), Spent(5, b"\x51")], [Spent(MAX_MONEY, b"")]])
    for size in range(len(answer)):
        with pytest.raises(FormatError):
            undo_record(answer[:size], bytes(32))
    for wrong in (
        answer + b"\0",
        b"\0",  # without even the coinbase
        b"\x01\x01" + answer[3:],  # a coinbase that spends
        b"\xfe\xff\xff\xff\x00\0",  # more transactions than fit into a block
        b"\x02\0\xfe\xff\xff\xff\x00",
        b"\x02\0\x01" + (MAX_MONEY + 1).to_bytes(8, "little") + b"\0",
        b"\x02\0\x01" + (-1).to_bytes(8, "little", signed=True) + b"\0",
    ):
        with pytest.raises(FormatError):
            undo_record(wrong, bytes(32))
