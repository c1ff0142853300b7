"""Builders of scripts, transactions, blocks and chains, from struct and hashlib. No assertions."""
