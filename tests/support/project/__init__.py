"""Facts about the project itself, for tests and rules: names, pages, errors, examples."""
