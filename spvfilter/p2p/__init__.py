"""Connections to peers over TCP, directly or through a proxy."""
