"""Where parties live: embedded in this process or its workers; later on Flower."""
