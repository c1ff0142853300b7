"""One wallet's SQLite file."""
