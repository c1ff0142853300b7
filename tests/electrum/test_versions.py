"""The negotiation of the protocol version."""

from __future__ import annotations

import pytest

from spvfilter.electrum.rpcerrors import RpcError
from spvfilter.electrum.versions import negotiated, version_text


@pytest.mark.parametrize(
    ("requested", "found"),
    [
        ("1.4", "1.4"),
        ("1.4.2", "1.4.2"),
        (["1.2", "1.4"], "1.4"),
        (["1.4", "1.6"], "1.6"),
        (["1.4", "1.7"], "1.6"),
        (["1.4", "2.0"], "1.6"),
        (["1.4", "1.5"], "1.4.3"),
        (["1.4.1", "1.4.3"], "1.4.3"),
        (["1.4", "1.4.7"], "1.4.3"),
        ("1.6", "1.6"),
        ("1.4.0", "1.4"),
    ],
)
def test_newest_common_version_is_chosen(requested: object, found: str) -> None:
    assert version_text(negotiated(requested)) == found


@pytest.mark.parametrize(
    "requested",
    [
        "1.3",
        ["1.0", "1.3"],
        "1.7",
        ["1.7", "2.0"],
        "1.5",
        ["1.5", "1.5.9"],
        "1.4.7",
        ["1.6", "1.4"],
        "",
        "1.",
        "x",
        "1.4.2.3.4",
    ],
)
def test_version_without_a_common_one_ends_the_session(requested: object) -> None:
    with pytest.raises(RpcError, match="protocol version") as caught:
        negotiated(requested)
    assert caught.value.ends_session


@pytest.mark.parametrize("requested", [None, 1.4, [], ["1.4"], ["1.4", "1.5", "1.6"], [1, 2], {"1.4": 1}, "9" * 50])
def test_malformed_version_is_refused(requested: object) -> None:
    with pytest.raises(RpcError, match="protocol version") as caught:
        negotiated(requested)
    assert caught.value.ends_session
