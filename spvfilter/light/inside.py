"""The run of a light client, for rooms that work inside it, such as an Electrum server."""

from __future__ import annotations

from spvfilter.light.client import LightClient
from spvfilter.light.running import Running


def running_of(client: LightClient) -> Running:
    """Return the current run of a client. Raises NotRunningError, or the reason if the client ended by itself."""
    return client._checked()
