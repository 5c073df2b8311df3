"""Work spread over processes and threads: same results, errors, lost helpers, and whose CPU time it is."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from tacit.core.errors import DataError
from tacit.core.parallel import cpu_seconds, each

# In a process of its own, since tests run beside other threads.
ALONE = """
import os, threading, time
import numpy as np
from tacit.core.errors import DataError
from tacit.core.parallel import cpu_seconds, each

assert threading.active_count() == 1
pids = each(lambda number: os.getpid(), 6, 3)
assert len(set(pids)) == 3 and pids[0] == os.getpid() and pids == sorted(pids, key=pids.index)
assert each(lambda number: np.full(2, number), 5, 2)[4].tolist() == [4, 4]

def burn(number):
    until = time.thread_time() + 0.15
    while time.thread_time() < until:
        pass

before = cpu_seconds()
each(burn, 2, 2)
assert 0.28 < cpu_seconds() - before < 0.6, cpu_seconds() - before

try:
    each(lambda number: [][number], 4, 2)
except IndexError:
    pass
else:
    raise AssertionError

parent = os.getpid()
def killed(number):
    if os.getpid() != parent:
        os._exit(9)
    return number
assert each(killed, 4, 2) == [0, 1, 2, 3]
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_processes() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


@pytest.mark.parametrize("processes", [1, 2, 7])
def test_order_whatever_their_number(processes: int) -> None:
    assert each(lambda number: number * 10, 5, processes) == [0, 10, 20, 30, 40]
    assert each(lambda number: number, 0, processes) == []


def test_beside_other_threads_it_takes_threads() -> None:
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()

    def burn(number: int) -> int:
        until = time.thread_time() + 0.1
        while time.thread_time() < until:
            pass
        return threading.get_ident()

    try:
        before = cpu_seconds()
        found = each(burn, 2, 2)
        assert 0.19 < cpu_seconds() - before < 0.5
        assert len(set(found)) == 2
        with pytest.raises(DataError, match="third"):
            each(_third, 4, 2)
    finally:
        over.set()
        other.join()


def _third(number: int) -> None:
    if number == 3:
        raise DataError("the third")
