"""The lowest layer: errors, durations, names, declarations, the ledger's entry."""
