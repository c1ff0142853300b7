"""The reference kernel: the hot loops in readable Python. The C extension is its twin."""
