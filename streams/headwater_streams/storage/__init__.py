"""The files of a home and of Delta tables: paths, atomic writes, reads that recognise damage."""
