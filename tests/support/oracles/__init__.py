"""The expected results, computed without the package, and judges that other projects wrote."""
