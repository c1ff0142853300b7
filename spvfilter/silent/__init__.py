"""Silent payments (BIP-352): addresses, and the search for outputs that pay them. Internal: use a WatchList."""
