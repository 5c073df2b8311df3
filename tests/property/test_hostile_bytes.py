"""Bytes that a stranger wrote: readers refuse them in words of ours, and take nothing false for genuine.

``make test`` replays the corpus and mutates its genuine bytes a little; ``make test-full`` makes a million
mutations with a coverage-guided fuzzer, where it can be installed.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.hostile import CORPUS, TARGETS, genuine, try_one
from tests.helpers.mutation import Mutator
from tests.quick import examples

MUTATIONS = 1_000_000  # of all targets together
SHARES = sum(target.share for target in TARGETS.values())
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus(name):
    """Genuine bytes are read; whatever the fuzzer has found is read or refused."""
    assert try_one(name, genuine(name))
    for path in sorted((CORPUS / name).iterdir()):
        try_one(name, path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_genuine_bytes_that_were_damaged(name):
    mutator = Mutator(1)
    refused = 0
    for _ in range(examples(400)):
        refused += not try_one(name, mutator.damaged(genuine(name)))
    unattributed = ("reply", "paillier", "bfv", "checkpoint")  # a refusal is told in another way
    assert refused or name in unattributed


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name):
    @settings(max_examples=examples(100), deadline=None)
    @given(st.binary(max_size=200), st.integers(0, 64))
    def check(raw, start):
        try_one(name, raw)
        try_one(name, genuine(name)[:start] + raw)

    check()


def runs_of(name):
    return int(MUTATIONS * TARGETS[name].share / SHARES) + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_million_mutations(name, tmp_path):
    if importlib.util.find_spec("atheris") is None:
        mutator = Mutator(2)
        for _ in range(runs_of(name)):
            try_one(name, mutator.damaged(genuine(name)))
        return
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", name, str(runs_of(name)), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {runs_of(name)} runs" in done.stderr


def test_all_of_them_are_a_million():
    assert sum(map(runs_of, TARGETS)) >= MUTATIONS
