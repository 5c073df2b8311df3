"""A toy method and a toy protection for Tacit, from another package."""
