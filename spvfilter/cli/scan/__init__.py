"""`spvfilter cfilter`: compact block filters in files."""
