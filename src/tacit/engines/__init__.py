"""Where parties live: in this process, in its workers, in files, or at SuperNodes of Flower."""
