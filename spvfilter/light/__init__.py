"""A wallet's eyes on the network: the light client over BIP-37 and compact filters."""
