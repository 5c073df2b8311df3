"""Keys that protections share: authenticated channels, and a key that all clients hold."""
