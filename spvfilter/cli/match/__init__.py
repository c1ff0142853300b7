"""`spvfilter match`: find a wallet's payments in transactions."""
