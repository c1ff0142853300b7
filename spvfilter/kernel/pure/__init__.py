"""The reference kernel: the hot loops in readable Python. The C extension, its twin, must return the same results."""
