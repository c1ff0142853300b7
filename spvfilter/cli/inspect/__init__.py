"""`spvfilter inspect`: the kind of some bytes and their contents."""
