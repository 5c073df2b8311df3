"""A process that works on a standing federation, or on runs, until somebody kills it.

For each line on its standard input (seconds to live, what to do, folder) it forks a child that does that and
says on standard output what was acknowledged; imports are paid once. When the time is over, SIGKILL.
"""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

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


def change(folder, parties):
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


def run(folder, parties):
    """``tacit run``, or ``tacit resume`` if there is something to go on from."""
    from tacit.cli import main

    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    words = ["resume", "latest"] if list(Path("runs").glob("*/checkpoint.bin")) else ["run", "job.toml"]
    sys.argv = ["tacit", *words, "--quiet"]
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    os.dup2(out, 1)
    say(f"{words[0]} {code}")
    say("done")


def say(text):
    os.write(1, f"{text}\n".encode())


def child_of(work, folder, parties):
    """Fork a child that works and ends."""
    if child := os.fork():
        return child
    try:
        work(folder, parties)
        os._exit(0)
    except BaseException:  # noqa: BLE001  # else the child would go on as if it were the parent
        traceback.print_exc()
        os._exit(1)


def main():
    parties = federation()
    say("ready")
    for line in sys.stdin:
        seconds, what, folder = line.strip().split(" ", 2)
        child = child_of({"change": change, "run": run}[what], folder, parties)
        ends = time.perf_counter() + float(seconds)
        while (found := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.perf_counter() > ends:
                os.kill(child, signal.SIGKILL)
                found = os.waitpid(child, 0)
                break
            time.sleep(0.0005)
        if found[1]:
            say("killed" if os.WIFSIGNALED(found[1]) else "failed")
        say("gone")


if __name__ == "__main__":
    main()
