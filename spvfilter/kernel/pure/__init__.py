"""The readable reference of the hot loops; the C extension is its twin."""
