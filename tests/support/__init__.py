"""Helpers of the tests, by subject. No assertions, unless a name says so."""
