"""Work on one core or spread over several; CPU time of helpers counts for the thread that they help."""

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from typing import Any, TypeVar

Found = TypeVar("Found")
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # of a process


class _Helped(threading.local):
    seconds = 0.0  # CPU time of those who helped a thread


_helped = _Helped()


def cpu_seconds() -> float:
    """Return the CPU time of this thread and of all that helped it."""
    return time.thread_time() + _helped.seconds


def each(function: Callable[[int], Found], count: int, processes: int) -> list[Found]:
    """Return the results for 0 … count - 1, in order, computed by so many processes.

    They are forked, so that what they work on need not travel. Where that is not safe, because there are more
    threads or this is itself a helper, and elsewhere than on Linux, threads take their place.
    """
    few = max(1, min(processes, count))
    bounds = [count * place // few for place in range(few + 1)]
    stretches = [range(start, stop) for start, stop in pairwise(bounds)]
    work = partial(_stretch, function)
    own, others = stretches[0], stretches[1:]
    if not others:
        return work(own)[0]
    forks = sys.platform == "linux" and threading.active_count() == 1
    if forks and not multiprocessing.current_process().daemon:
        found = _forked(work, own, others)
    else:
        with ThreadPoolExecutor(len(others)) as pool:
            theirs = pool.map(work, others)
            found = [(work(own)[0], 0.0), *theirs]
    _helped.seconds += sum(spent for _, spent in found)
    return [result for results, _ in found for result in results]


def _stretch(function: Callable[[int], Found], numbers: range) -> tuple[list[Found], float]:
    started = time.thread_time()
    return [function(number) for number in numbers], time.thread_time() - started


def _forked(work: Callable[[range], Any], own: range, others: Sequence[range]) -> list[Any]:
    context = multiprocessing.get_context("fork")
    children = []
    for numbers in others:
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_tell, args=(sender, work, numbers), daemon=True)
        child.start()
        sender.close()
        children.append((child, receiver, numbers))
    found = [(work(own)[0], 0.0)]  # this thread's own time is counted already
    for child, receiver, numbers in children:
        try:
            result = receiver.recv()
        except EOFError:  # it was killed, or what it found cannot travel: do its work here
            result = (work(numbers)[0], 0.0)
        child.join()
        if isinstance(result, Exception):
            raise result
        found.append(result)
    return found


def _tell(sender: Any, work: Callable[[range], Any], numbers: range) -> None:
    try:
        found = work(numbers)
    except Exception as error:  # noqa: BLE001  # raised again where it is awaited
        found = error
    sender.send(found)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra on one thread: CPU times then mean something, and results repeat."""
    with _controller().limit(limits=1):
        yield


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
