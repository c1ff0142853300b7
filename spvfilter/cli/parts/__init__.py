"""The options and the output of the commands that process blocks in parts: `scan --out` and `export`."""
