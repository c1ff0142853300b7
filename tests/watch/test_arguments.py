"""Arguments of a wrong kind fail in the call itself, and the error names the argument."""

from __future__ import annotations

from typing import Any

import pytest

from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import ParameterError
from spvfilter.network import MAINNET
from spvfilter.scan.matcher import Matcher
from spvfilter.watch.watchlist import WatchList

ADDRESS = "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"


@pytest.mark.parametrize("network", [5, None, b"mainnet", ["mainnet"], 0.5, {"name": "mainnet"}])
def test_network_of_another_type_is_named(network: Any) -> None:
    for call in (
        lambda: address_to_script(ADDRESS, network),
        lambda: script_to_address(b"\x51", network),
        lambda: WatchList(network),
        lambda: WatchList.from_addresses([ADDRESS], network),
    ):
        with pytest.raises(TypeError, match="network: expected a Network or its name, not "):
            call()


def test_network_may_be_given_by_its_name() -> None:
    script = address_to_script(ADDRESS, "mainnet")
    assert script == address_to_script(ADDRESS, MAINNET)
    assert script_to_address(script, "mainnet") == ADDRESS
    with pytest.raises(ParameterError, match="unknown network"):
        address_to_script(ADDRESS, "manenet")


def test_mapping_of_addresses_has_labels() -> None:
    pairs = {ADDRESS: "rent", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq": None}
    assert WatchList.from_addresses(pairs) == WatchList.from_addresses(pairs.items())
    assert [label for _, _, label in WatchList.from_addresses(pairs).entries()] == ["rent", None]
    with pytest.raises(TypeError, match=r"addresses\[0\]: expected an address"):
        WatchList.from_addresses({5: "rent"})  # type: ignore[dict-item]


@pytest.mark.parametrize("watch", [[ADDRESS], ADDRESS, None, {ADDRESS: "rent"}, 5])
def test_matcher_wants_a_watch_list(watch: Any) -> None:
    with pytest.raises(TypeError, match=f"watch: expected a WatchList, .* not {type(watch).__name__}$"):
        Matcher(watch)
