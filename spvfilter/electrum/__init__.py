"""An Electrum server over the light client: other wallets need no full node and no public server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.electrum.limits import ElectrumLimits as ElectrumLimits
    from spvfilter.electrum.server import ElectrumServer as ElectrumServer
    from spvfilter.electrum.status import ElectrumStatus as ElectrumStatus
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__, limits="ElectrumLimits", server="ElectrumServer", status="ElectrumStatus"
    )
