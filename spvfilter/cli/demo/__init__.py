"""`spvfilter demo`: all of it on a small chain made on the spot."""
