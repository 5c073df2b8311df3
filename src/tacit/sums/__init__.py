"""Protected sums: how a total is formed without showing its parts. One file each."""
