"""The files of a home and of Delta tables: paths, whole writes, reads that know damage."""
