"""What stands on nothing: errors, durations, names, declarations, the ledger's entry."""
