"""Helpers of the tests: builders of blocks and chains, oracles, peers and processes, vectors. No assertions, unless a
name says so.
"""
