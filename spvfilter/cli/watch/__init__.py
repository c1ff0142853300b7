"""`spvfilter watch`: a wallet followed live through full nodes."""
