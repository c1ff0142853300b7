"""The wire of Bitcoin's P2P protocol without sockets: bytes in, values out."""
