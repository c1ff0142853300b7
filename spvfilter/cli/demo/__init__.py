"""`spvfilter demo`: filters, matches and a reorganization on a small chain."""
