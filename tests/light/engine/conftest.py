"""Every database that is opened by `support.stores` is closed."""

from __future__ import annotations

from support.stores import stores_are_closed as stores_are_closed
