"""Files that are whole or not there, and known when damaged: locks, digests, HDF5 as a stranger's, scratch."""
