"""Masked sums with whoever vanishes wherever: the exact sum of those that arrived, or nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import OpeningError, QuorumError
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.masking import add_masks
from tacit.protections.masked import Masked
from tacit.protections.masked.neighbours import MerkleTree, assign_holders, verify_proof
from tacit.protections.masked.wire import Encoding
from tests.quick import examples

STEPS = ("protection.offer", "protection.deal", "client.contribute", "protection.unmask")
UNMASK, NEVER = 3, 4


def rows_of(clients, size=3):
    rows = np.random.default_rng(clients).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(rows)}


@st.composite
def fates(draw, fewest, most):
    """At which step each client vanishes for good (or never), and whether it did as asked before."""
    clients = draw(st.integers(fewest, most))
    fate = st.tuples(st.sampled_from([*range(NEVER), *[NEVER] * 6]), st.booleans())
    return draw(st.lists(fate, min_size=clients, max_size=clients))


def play(scene_of, protection, fates):
    """Sum once, with each client's fate; gives the scene, and the total if there is one."""
    scene = scene_of(protection, rows_of(len(fates)), quorum=0.01)
    fate, dead = dict(zip(scene.rows, fates, strict=True)), set()

    def struck(name, party, done):
        if name in STEPS and fate[party] == (STEPS.index(name), done):
            dead.add(party)
        return party in dead

    scene.tap.lose = lambda name, party: struck(name, party, False)
    scene.tap.rewrite = lambda name, party, message: "StepError: lost" if struck(name, party, True) else None
    try:
        scene.begin()
        return scene, scene.coordinator.reveal(scene.components.method.vector)
    except (OpeningError, QuorumError):
        return scene, None


def check(scene_of, protection, fates):
    scene, total = play(scene_of, protection, fates)
    left = [row for row, (at, _) in zip(scene.rows.values(), fates, strict=True) if at >= UNMASK]
    helping = sum(at == NEVER for at, _ in fates)
    if total is None:
        # Too few for any sum, or too many that vanished between upload and unmasking.
        sparse = protection.neighbours is not None
        assert len(left) < 2 or helping < (len(left) if sparse else protection.sizing(len(fates))[1])
        return
    code = FixedPoint(np.ones(3), protection.bits, len(fates))
    assert total.contributors == len(left)
    assert total["vector"].tobytes() == code.decode(sum(map(code.encode, left))).tobytes()


@given(fates=fates(2, 7))
@settings(max_examples=examples(60), deadline=None)
def test_complete_graph(scene_of, fates):
    check(scene_of, Masked(), fates)


@given(fates=fates(6, 16), neighbours=st.integers(2, 5))
@settings(max_examples=examples(40), deadline=None)
def test_sparse_graph(scene_of, fates, neighbours):
    check(scene_of, Masked(neighbours=neighbours, bits=24), fates)


@given(
    bits=st.integers(8, 50),
    clients=st.integers(1, 9),
    size=st.integers(0, 9),
    seed=st.binary(min_size=32, max_size=32),
)
@settings(max_examples=examples(60), deadline=None)
def test_any_words_come_back_from_under_their_masks(bits, clients, size, seed):
    encoding = Encoding(FixedPoint(np.ones(size), bits, clients))
    rows = np.random.default_rng(size).uniform(-1, 1, (clients, size))
    total, run = np.zeros(encoding.words, encoding.kind), "00" * 32
    for row in rows:
        words = encoding.write_words(encoding.code.encode(row))
        add_masks(words, [(Secret(seed), 1)])
        total += encoding.read(Blob("masked", encoding.write(words, run, 1, bytes(32))), run, 1)[0]
    for _ in rows:
        add_masks(total, [(Secret(seed), -1)])
    values = encoding.read_total(total, clients)
    found = encoding.read_integers(values, clients)
    assert np.array_equal(found, sum(map(encoding.code.encode, rows)))


@given(
    leaves=st.dictionaries(st.text(min_size=1), st.binary(max_size=8), min_size=1, max_size=40),
    data=st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_only_what_is_in_the_tree_is_proved(leaves, data):
    tree, name = MerkleTree(leaves), data.draw(st.sampled_from(sorted(leaves)))
    proof = tree.prove(name)
    assert verify_proof(tree.root, len(leaves), name, leaves[name], proof)
    assert not verify_proof(tree.root, len(leaves), name, leaves[name] + b"x", proof)
    assert not verify_proof(tree.root, len(leaves), name + "x", leaves[name], proof)
    assert not verify_proof(tree.root, len(leaves) + 1, name, leaves[name], proof)
    wrong = bytearray(proof)
    wrong[data.draw(st.integers(0, len(proof) - 1))] ^= 1
    assert not verify_proof(tree.root, len(leaves), name, leaves[name], bytes(wrong))
    nodes = dict[int, bytes]()  # once all others were proved, a proof is short, and as hard to forge
    others = [other for other in leaves if other != name]
    assert all(
        verify_proof(tree.root, len(leaves), other, leaves[other], tree.prove(other), nodes)
        for other in others
    )
    assert not verify_proof(tree.root, len(leaves), name, leaves[name] + b"x", proof, nodes)
    assert not verify_proof(tree.root, len(leaves), name + "x", leaves[name], proof, nodes)
    assert verify_proof(tree.root, len(leaves), name, leaves[name], proof, nodes)


@given(
    places=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=40, unique=True), half=st.integers(1, 12)
)
@settings(max_examples=examples(60), deadline=None)
def test_neighbours_are_as_many_as_wanted_mutual_and_connected(places, half):
    named = [(f"c{i}", place) for i, place in enumerate(places)]
    graph = assign_holders(dict(named), 2 * half)
    assert graph == assign_holders(dict(named[::-1]), 2 * half)
    assert all(len({*around}) == len(around) for around in graph.values())
    assert {len(around) for around in graph.values()} == {min(2 * half + 1, len(places))}
    assert all(name in around for name, around in graph.items())
    assert all(name in graph[other] for name, around in graph.items() for other in around)
    reached, new = set(), {"c0"}
    while new:
        reached |= new
        new = {other for name in new for other in graph[name]} - reached
    assert reached == set(graph)


@pytest.mark.parametrize("active", [False, True])
@given(clients=st.integers(2, 400), neighbours=st.none() | st.integers(2, 40))
@settings(max_examples=examples(60), deadline=None)
def test_thresholds_exceed_half_of_the_holders(active, clients, neighbours):
    count, threshold = Masked(active=active, neighbours=neighbours).sizing(clients)
    assert 1 <= count <= clients - 1
    assert count + 1 < 2 * threshold <= 2 * (count + 1)
