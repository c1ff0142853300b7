"""What is wanted: the watch list, its file, and the matches it gives."""
