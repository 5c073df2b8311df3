"""Encryption, sharing and sealing. Knows nothing of learning."""
