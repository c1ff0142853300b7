"""A regtest full node for tests, demos and applications."""
