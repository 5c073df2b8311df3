"""Without Flower, the two apps that are made of it cannot be imported for their doctests."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("flwr") else ["tacit/deploy/clientapp.py", "tacit/deploy/serverapp.py"]
