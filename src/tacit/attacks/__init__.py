"""Attacks on what parties see: a claim of privacy is worth as much as the attack that fails against it."""
