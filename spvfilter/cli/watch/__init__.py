"""`spvfilter watch`: follow a wallet live through full nodes."""
