"""What a person sees: facts, tables, progress, matches and balances."""
