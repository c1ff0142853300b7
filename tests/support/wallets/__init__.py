"""Books, databases, descriptors and the files that wallets export."""
