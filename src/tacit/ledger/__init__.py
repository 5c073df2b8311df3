"""Reads events only: bytes, messages, CPU, energy."""
