"""What tests share: builders of blocks and chains, oracles, peers and processes, vectors. No assertions but where a name says so."""
