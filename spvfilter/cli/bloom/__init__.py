"""`spvfilter bloom`: generic Bloom filters of lines."""
