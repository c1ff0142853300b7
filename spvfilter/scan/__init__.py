"""Raw blocks to matches: sources, their order, and the scan itself."""
