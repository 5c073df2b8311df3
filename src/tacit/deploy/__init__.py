"""A federation of real machines, on Flower: the apps, how a run is started, and a federation on loopback."""
