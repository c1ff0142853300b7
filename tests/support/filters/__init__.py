"""Small filters, and files and Redis operations of filters."""
