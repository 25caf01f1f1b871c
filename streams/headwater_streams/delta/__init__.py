"""Delta tables: transactions, swaps of files, marks, maintenance, and the ways in which rows are written."""
