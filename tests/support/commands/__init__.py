"""Ways to run commands as processes, and to read what they print."""
