"""Every database that is opened by `support.wallets.stores` is closed."""

from __future__ import annotations

from support.wallets.stores import stores_are_closed as stores_are_closed
