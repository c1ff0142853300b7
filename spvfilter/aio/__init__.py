"""Everything that awaits or opens files of blocks."""
