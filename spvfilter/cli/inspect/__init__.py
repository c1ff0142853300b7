"""`spvfilter inspect`: what some bytes are and what they hold."""
