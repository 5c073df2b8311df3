"""Without Flower, the modules that are made of it cannot be imported for their doctests."""

from importlib.util import find_spec

MADE_OF_FLOWER = [f"tacit/deploy/{name}.py" for name in ("control", "node", "superlink")]
collect_ignore = [] if find_spec("flwr") else MADE_OF_FLOWER
