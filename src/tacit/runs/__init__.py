"""A job from settings to run folder and report."""
