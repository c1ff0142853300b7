"""Checks of a LightClient's arguments, so that an error immediately names any argument that is wrong."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable

from spvfilter.errors import ParameterError
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.engine.requests import SearchStart
from spvfilter.light.engine.start import TIMESTAMP_WINDOW_S
from spvfilter.light.events import Mode
from spvfilter.light.spentsource import SpentSource
from spvfilter.light.tweaksource import TweakSource
from spvfilter.network import Network
from spvfilter.p2p.address import Address, needed_proxy
from spvfilter.p2p.limits import Limits
from spvfilter.wire.transport import V2Policy, check_installed, is_installed

MAX_PEERS = 125  # Core net.h DEFAULT_MAX_PEER_CONNECTIONS
_EARLIEST_DATE_S = 14 * 3_600
"""How many seconds earlier a date begins in the easternmost time zone than in UTC."""
_MAX_HEIGHT = 0xFFFFFFFF  # our choice: at one block every ten minutes, the chain gets there in 81,000 years


_MOST_PENDING = {"max_pending_matches": 1_000_000, "max_pending_bytes": 1_000_000_000}


def check_most(name: str, value: int) -> int:
    """Check an option that limits foreign unconfirmed transactions, and return its value. Raises ParameterError."""
    if not _is_whole(value) or not 1 <= value <= _MOST_PENDING[name]:
        raise ParameterError(f"{name} must be a whole number from 1 to {_MOST_PENDING[name]:,}, not {value!r}")
    return value


def check_groups(number: int) -> int:
    """Check the number of network groups that must announce a transaction, and return it. Raises ParameterError."""
    if not _is_whole(number) or not 1 <= number <= 2:
        raise ParameterError(f"mempool_groups must be 1 or 2, not {number!r}")
    return number


def check_options(mode: Mode | str, max_peers: int, fp_rate: float, **switches: bool) -> None:
    """Raise ParameterError if the value of an option is wrong."""
    if mode not in list(Mode):
        raise ParameterError(f"mode must be one of {', '.join(Mode)}, not {mode!r}")
    if not _is_whole(max_peers) or not 1 <= max_peers <= MAX_PEERS:
        raise ParameterError(f"max_peers must be a whole number from 1 to {MAX_PEERS}, not {max_peers!r}")
    if isinstance(fp_rate, bool) or not isinstance(fp_rate, int | float) or not 0.0 < fp_rate < 1.0:  # NaN is neither
        raise ParameterError(f"fp_rate must be above 0 and below 1, not {fp_rate!r}")
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ParameterError(f"{name} must be True or False, not {value!r}")


def check_v2(policy: V2Policy | str) -> V2Policy:
    """Return when to encrypt connections: never if the `bip324` extra is not installed.

    Raises ParameterError if the policy is unknown, or if it is "require" and the extra is not installed.
    """
    if policy not in list(V2Policy):
        raise ParameterError(f"v2 must be one of {', '.join(V2Policy)}, not {policy!r}")
    if policy == V2Policy.REQUIRE:
        check_installed("v2='require'")
    return V2Policy(policy) if policy != V2Policy.OFF and is_installed() else V2Policy.OFF


def named_peers(
    peers: Iterable[str], network: Network, *, discover: bool, proxy: str | None, knows: bool
) -> list[Address]:
    """Return the addresses of the named peers. `knows` is True if there is a database, which may contain more.

    Raises ParameterError if there is no way to find a peer, and TypeError if `peers` is a string or contains
    anything else than strings.
    """
    if isinstance(peers, str):
        raise TypeError("peers: expected an iterable of addresses, not a string")
    peers = list(peers)
    for number, peer in enumerate(peers):
        if not isinstance(peer, str):
            raise TypeError(f"peers[{number}]: expected a str such as 'HOST:PORT', not {type(peer).__name__}")
    addresses = [Address.parse(peer, network.default_port) for peer in peers]
    for address in addresses:
        if proxy is None and (why := needed_proxy(address.host)) is not None:
            raise ParameterError(why)
    if not addresses and not discover:
        raise ParameterError(
            "there are no peers to connect to: name at least one peer, or let the client discover them"
        )
    if not addresses and proxy is not None and not knows:
        raise ParameterError(
            "DNS seeds are not used with a proxy, because the queries would bypass it: name at least one peer"
        )
    if not addresses and not network.dns_seeds:
        raise ParameterError(f"{network} has no DNS seeds: name at least one peer")
    return addresses


def timeouts_of(limits: Limits) -> PeerTimeouts:
    """Return the limits in the form that the engine needs."""
    return PeerTimeouts(
        reply_s=limits.reply_s,
        stall_s=limits.stall_s,
        retry_s=limits.retry_s,
        max_retry_s=limits.max_retry_s,
        stale_tip_s=limits.stale_tip_s,
        silence_s=limits.silence_s,
        flight=limits.flight,
        flights=limits.flights,
        filters=limits.filters,
        filter_flights=limits.filter_flights,
    )


def birthday_of(value: int | datetime.date) -> int:
    """Return a birthday as Unix time. Raises ParameterError if the value is not a birthday.

    The value is a Unix time, a date, or a datetime. A datetime without a time zone is in local time. A date begins 14
    hours before midnight UTC, when it starts in the first time zone. A birthday before 1970 stands for all blocks.
    """
    if _is_whole(value) and isinstance(value, int) and value >= 0:
        return value
    if isinstance(value, datetime.datetime):
        try:
            return max(0, math.floor(value.timestamp()))
        except (OverflowError, OSError, ValueError):  # a local time that has no Unix time
            raise ParameterError(f"the birthday {value} is out of range: it must not be before 1970") from None
    if isinstance(value, datetime.date):
        midnight = datetime.datetime.combine(value, datetime.time(), datetime.UTC)
        return max(0, int(midnight.timestamp()) - _EARLIEST_DATE_S)
    raise ParameterError(f"birthday must be a date, a datetime, or a Unix time as a whole number, not {value!r}")


def check_start(from_height: int | None, birthday: int | datetime.date | None, now: float) -> SearchStart:
    """Return the start of a search. Raises ParameterError if it is impossible. `now` is a Unix time."""
    if from_height is not None and birthday is not None:
        raise ParameterError(f"pass from_height or birthday, not both: {from_height!r} and {birthday!r}")
    if from_height is not None and (not _is_whole(from_height) or not 0 <= from_height <= _MAX_HEIGHT):
        raise ParameterError(f"from_height must be a whole number from 0 to {_MAX_HEIGHT}, not {from_height!r}")
    if birthday is None:
        return SearchStart(from_height)
    seconds = birthday_of(birthday)
    if seconds > now + TIMESTAMP_WINDOW_S:
        raise ParameterError(
            f"the birthday {birthday} is in the future: its Unix time is {seconds}, but the current time is {now:.0f}"
        )
    return SearchStart(from_height, seconds)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def name_of_source(source: SpentSource) -> str:
    """Return the name of a source for messages: its address if it is a node, otherwise its class.

    Raises TypeError if the object is not a source.
    """
    if not callable(getattr(source, "undo_record", None)):
        raise TypeError(
            f"spent_source: expected a FullNode, or an object with undo_record, not {type(source).__name__}"
        )
    return _shown(source)


def name_of_server(source: TweakSource) -> str:
    """Return the name of a source of tweaks, as `name_of_source` does. Raises TypeError if the object is not one."""
    if not callable(getattr(source, "tweaks", None)):
        raise TypeError(
            f"tweak_source: expected a BlindBitOracle, or an object with tweaks, not {type(source).__name__}"
        )
    return _shown(source)


def _shown(source: object) -> str:
    endpoint = getattr(source, "endpoint", None)
    return type(source).__name__ if endpoint is None else str(endpoint)
