"""Building blocks of FedHEONN and its ensemble: exchanges, units, design matrices, selection, patches."""
