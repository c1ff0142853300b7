"""Terminal output shared by the commands: facts, tables, progress, matches and balances."""
