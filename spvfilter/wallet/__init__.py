"""The books of a wallet: what blocks and the mempool mean for it. No network."""
