"""A Bloom filter in Redis that many machines share."""
