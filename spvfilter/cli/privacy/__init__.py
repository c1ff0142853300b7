"""`spvfilter privacy`: the privacy of a wallet's BIP-37 filter."""
