"""The parts of methods that average networks: each has its own few settings and what is done with them."""
