"""Parts of gradient-boosted trees: buckets, losses, histograms, splits, and how a tree grows."""
