"""`spvfilter privacy`: what a wallet's BIP-37 filter tells a peer."""
