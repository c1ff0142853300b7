"""`spvfilter inspect`: identify bytes and print their parts."""
