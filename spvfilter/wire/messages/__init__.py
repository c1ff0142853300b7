"""The P2P messages: a class for each, their limits, and the table of commands."""
