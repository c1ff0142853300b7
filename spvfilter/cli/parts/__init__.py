"""The options and the output of commands that work on blocks in parts: `scan --out` and `export`."""
