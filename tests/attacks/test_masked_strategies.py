"""Every strategy of a coordinator of masked sums, in small federations: none opens the vector of one client.

A strategy is what each client is told: with whom it masks, and later who arrived. The search runs over all
that clients accept; the control runs it over clients with a rule less, and finds the attack.
"""

from dataclasses import replace

import numpy as np
import pytest

from tacit.protections.masked import Masked
from tacit.protections.masked.rules import Rules
from tests.helpers.strategies import Federation, circle, complete_graph


def whole(clients, colluders, **settings):
    """All mask with all, by the rules for that many colluders."""
    rules = Masked(corrupt_share=colluders / clients).rules(clients)
    return Federation(rules, complete_graph(clients), colluders, **settings)


def sparse(clients, neighbours, colluders, partners=None):
    """A circle; unless said otherwise, one of the holders may be missing before the upload."""
    threshold = (neighbours + 1 + colluders) // 2 + 1
    rules = Rules.of(clients, neighbours, threshold, 1 / neighbours)
    rules = rules if partners is None else replace(rules, partners=partners)
    return Federation(rules, circle(clients, neighbours), colluders)


def strategies_against_one(federation):
    """All strategies against client 0.

    The others mask with all around them: to mask with fewer only narrows what they accept to be told of.
    """
    options = [federation.accepted(client) for client in federation.honest]
    for client in federation.honest[1:]:
        options[client] = [told for told in options[client] if told[0] == federation.holders[client]]
    return federation.strategies(options)


def opening_strategies(federation):
    """How many strategies open the vector of client 0, and how many there are."""
    found, tried = 0, 0
    for partners, alive in strategies_against_one(federation):
        found += int(federation.opens_first(partners, alive).sum())
        tried += partners.shape[1]
    return found, tried


def is_opened(federation):
    """Whether some strategy opens the vector of client 0."""
    return any(federation.opens_first(*told).any() for told in strategies_against_one(federation))


def all_strategies(federation):
    return federation.strategies([federation.accepted(client) for client in federation.honest])


QUICK = [(3, 0), (3, 1), (4, 0), (4, 1), (5, 1)]


@pytest.mark.parametrize(("clients", "colluders"), [*QUICK, pytest.param(5, 0, marks=pytest.mark.slow)])
def test_no_strategy_opens_less_than_is_promised(clients, colluders):
    federation = whole(clients, colluders)
    assert federation.rules.colluders >= colluders
    told = all_strategies(federation)
    found = min(int(federation.smallest_group(partners, alive).min()) for partners, alive in told)
    assert found == federation.rules.threshold - colluders >= 2  # as few as an honest coordinator may open


@pytest.mark.parametrize(
    ("clients", "colluders"), [(5, 0), *[pytest.param(6, c, marks=pytest.mark.slow) for c in (0, 1)]]
)
def test_no_strategy_opens_one_client(clients, colluders):
    found, tried = opening_strategies(whole(clients, colluders))
    assert found == 0
    assert tried > 10_000


@pytest.mark.parametrize(("clients", "colluders"), QUICK)
def test_all_honest_clients_of_one_list_are_in_the_only_total(clients, colluders):
    federation = whole(clients, colluders)
    for partners, alive in all_strategies(federation):
        seeds, keys = federation.known_secrets(partners, alive)
        assert not (seeds & keys).any()
        # Whose seed is known stands on one list; of nobody on it is the key known.
        lists = np.array([[alive[w] for w in federation.honest]])[0]
        on = np.zeros(partners.shape[1], int)
        for w in federation.honest:
            enough = (alive == lists[w]).sum(axis=0) + colluders >= federation.rules.threshold
            on = np.where(enough, lists[w], on)
        for client in federation.honest:
            assert not (seeds[client] & (on >> client & 1 == 0)).any()
            assert not (keys[client] & (on >> client & 1 == 1)).any()


@pytest.mark.parametrize(
    ("clients", "neighbours", "colluders"),
    [(6, 4, 0), (6, 4, 1), pytest.param(7, 4, 1, marks=pytest.mark.slow)],
)
def test_no_strategy_opens_one_client_of_a_sparse_graph(clients, neighbours, colluders):
    federation = sparse(clients, neighbours, colluders)
    assert federation.rules.colluders >= colluders
    found, tried = opening_strategies(federation)
    assert found == 0
    assert tried > 1000


@pytest.mark.slow
def test_parts_of_a_sparse_graph_are_as_large_as_is_promised():
    federation = sparse(6, 4, 0, partners=5)
    told = all_strategies(federation)
    found = min(int(federation.smallest_group(partners, alive).min()) for partners, alive in told)
    assert found >= federation.rules.fewest_honest == 3


class TestControl:
    """With a rule less, the search finds the attack."""

    @pytest.mark.parametrize("federation", [whole(5, 0), sparse(6, 4, 0)], ids=["complete", "sparse"])
    def test_shares_that_are_not_locked(self, federation):
        assert is_opened(replace(federation, locked=False))

    @pytest.mark.parametrize(("clients", "colluders"), [(5, 0), (5, 1)])
    def test_a_client_that_masks_with_too_few(self, clients, colluders):
        federation = whole(clients, colluders)
        federation = replace(federation, rules=replace(federation.rules, partners=2))
        assert is_opened(federation)

    def test_a_client_that_masks_with_too_few_on_a_sparse_graph(self):
        assert is_opened(sparse(6, 4, 0, partners=3))

    def test_more_colluders_than_the_threshold_is_for(self):
        federation = replace(whole(5, 0), colluders=1)
        assert federation.rules.colluders == 0
        assert is_opened(federation)
