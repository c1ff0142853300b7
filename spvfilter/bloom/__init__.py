"""The generic filter: Bloom and counting filters, their sizing and their file. No Bitcoin in it."""
