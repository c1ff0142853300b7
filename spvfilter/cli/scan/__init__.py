"""`spvfilter scan`: find a wallet's payments in blocks."""
