"""Worlds for the light client: with a node over loopback, or simulated in virtual time."""
