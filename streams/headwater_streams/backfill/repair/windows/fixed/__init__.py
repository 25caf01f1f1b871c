"""Windows of fixed times, which a row's time alone names."""
