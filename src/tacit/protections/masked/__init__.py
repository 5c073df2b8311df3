"""Sums whose contributions are hidden by masks that cancel."""
