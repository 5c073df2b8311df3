"""Sums by secret sharing: among all clients, or among an elected committee."""
