"""`spvfilter demo`: the tour of a small chain made in memory."""
