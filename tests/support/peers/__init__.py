"""The other side of a connection: nodes, servers and clients, scripted, hostile or real."""
