"""Entry points of both kernels with valid arguments, and producers of the data that they take."""
