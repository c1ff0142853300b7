"""The light client's engine in a simulated world: virtual time, lying peers, failing disks, and every life replayed by
its seed.
"""
