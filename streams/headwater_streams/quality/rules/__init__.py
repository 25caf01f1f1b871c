"""The rules of ready-made checks, by what it takes to judge them; `quality.expect` has the names that people use."""
