"""A process that works on a standing federation until somebody kills it.

For each line on its standard input (seconds to live, folder) it forks a child that does all in ``PLAN`` and
says on standard output what was acknowledged; imports are paid once. When the time is over, SIGKILL.
"""

import os
import signal
import sys
import time

from tacit.core.errors import ReplayError
from tacit.federation import Federation
from tacit.standing import Standing

CLIENTS = 11
# Batches where a batch is the unit; each line is what comes, and what goes. No sum or difference of their
# totals shows fewer than three clients.
PLAN = [
    (["client-01", "client-02", "client-03", "client-04"], []),
    (["client-05", "client-06", "client-07", "client-08"], []),
    (["client-09"], ["client-01", "client-02"]),
    (["client-10", "client-11"], ["client-05"]),
]


def federation():
    return Federation.embedded("iris", clients=CLIENTS, seed=4, classes=["setosa", "versicolor", "virginica"])


def work(folder, parties):
    """Do what is left of the plan; whoever is killed begins again from its first line."""
    with Standing.open(folder, parties) as standing:
        one_by_one = standing.components.protection.incremental
        for come, go in PLAN:
            steps = [([name], []) for name in come] + [([], [name]) for name in go]
            for add, withdraw in steps if one_by_one else [(come, go)]:
                try:
                    receipts = standing.change(add=add, withdraw=withdraw)
                except ReplayError:  # done before the last process was killed
                    continue
                for receipt in receipts:
                    say(f"{'+' if receipt.client in add else '-'}{receipt.id}")
    say("done")


def say(text):
    os.write(1, f"{text}\n".encode())


def main():
    parties = federation()
    say("ready")
    for line in sys.stdin:
        seconds, folder = line.strip().split(" ", 1)
        child = os.fork()
        if not child:
            work(folder, parties)
            os._exit(0)
        ends = time.perf_counter() + float(seconds)
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.perf_counter() > ends:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
            time.sleep(0.0005)
        say("gone")


if __name__ == "__main__":
    main()
