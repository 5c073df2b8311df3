"""The ways in which FedHEONN's closed form travels and is solved: paper, sealed, robust."""
