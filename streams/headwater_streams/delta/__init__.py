"""Delta tables: transactions, swaps of files, marks, upkeep, and the ways in which rows get into them."""
