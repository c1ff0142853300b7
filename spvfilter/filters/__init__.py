"""Structures that MIGHT match: arithmetic on bytes, no Bitcoin I/O."""
