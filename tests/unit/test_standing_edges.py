"""Standing federations at their edges: what is named twice, what fails half-way, what several totals show."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from tacit.core.errors import (
    ConfigError,
    FederationError,
    OpeningError,
    ReplayError,
    SchemaError,
    StepError,
    UnavailableError,
)
from tacit.core.events import Events
from tacit.core.standing_client import LEDGER
from tacit.data.preparation import Preparation
from tacit.data.table import Column
from tacit.federation import Federation
from tacit.standing import Standing, changes
from tacit.standing.differencing import Contribution, count_differing, find_exposed, nearest
from tacit.standing.folder import party_without_rows

CLASSES = ["class_0", "class_1", "class_2"]
NAMES = [f"client-{i:02}" for i in range(1, 11)]


@pytest.fixture(scope="module")
def federation():
    return Federation.embedded("wine", clients=10, seed=2, classes=CLASSES)


@pytest.fixture
def start(federation, tmp_path):
    opened = []

    def make(name="state", parties=federation, **settings):
        chosen = {"protect": "plain", "min_clients": 3, **settings}
        opened.append(Standing.start(tmp_path / name, parties, **chosen))
        return opened[-1]

    yield make
    for standing in opened:
        standing.close()


def fresh(start, members, **settings):
    """Weights of a federation to which these clients contributed, and nobody else ever."""
    standing = start("fresh", **settings)
    standing.add(members)
    return standing.weights().weights


class TestNamedTwice:
    @pytest.mark.parametrize("protect", ["plain", "ckks"])
    def test_a_contribution_is_withdrawn_once(self, start, protect):
        standing = start(protect=protect)
        standing.add(NAMES[:5])
        receipts = standing.withdraw([NAMES[1], f"{NAMES[1]}:all"])
        assert [(receipt.id, receipt.withdrawn) for receipt in receipts] == [(f"{NAMES[1]}:all", True)]
        assert standing.status()["changes"] == 6
        rest = [name for name in NAMES[:5] if name != NAMES[1]]
        assert np.abs(standing.weights().weights - fresh(start, rest, protect=protect)).max() < 1e-6

    def test_a_name_is_for_one_client(self, start):
        standing = start()
        with pytest.raises(ConfigError, match="contributions of 2 clients"):
            standing.add(NAMES[:2], name="x")
        assert standing.status()["contributions"] == 0

    def test_what_is_there_cannot_come_and_go_at_once(self, start):
        standing = start()
        standing.add(NAMES[:4])
        with pytest.raises(ConfigError, match="to be added and to be withdrawn"):
            standing.change(add=NAMES[:1], withdraw=NAMES[:1])

    @pytest.mark.parametrize("name", [NAMES[1], f"{NAMES[1]}:all", "a\tb", " ", "a\nb"])
    def test_a_name_that_stands_for_something_else(self, start, name):
        with pytest.raises(ConfigError, match=r"name the contribution|stands for|give letters"):
            start().add(NAMES[:1], name=name)


class TestHalfWay:
    def test_a_batch_says_who_is_not_in_it(self, start):
        standing = start(protect="masked", founders=8)
        standing.add(NAMES[:8])
        folder = standing.folder
        with folder.store.step(folder.run(standing.manifest), party_without_rows(NAMES[0])) as party:
            party.state.pop(LEDGER)
        with pytest.raises(StepError, match=f"{NAMES[0]}: .*never contributed"):
            standing.withdraw(NAMES[:5])
        assert standing.status()["contributions"] == 4  # of eight, four have left
        assert f"{NAMES[0]}:all" in standing.folder.book.present()[NAMES[0]]

    def test_who_can_join_does_when_another_cannot(self, start, federation):
        tables = {name: federation.holdings.rows(i) for i, name in enumerate(NAMES)}
        odd = tables[NAMES[9]]
        columns = (Column("elsewhere"), *odd.columns[1:])
        parties = Federation.of({**tables, NAMES[9]: dataclasses.replace(odd, columns=columns)})
        standing = start(parties=parties, founders=6)
        with pytest.raises(SchemaError, match=NAMES[9]):
            standing.add([NAMES[0], NAMES[8], NAMES[9]])
        assert standing.status()["contributions"] == 2

    def test_all_are_those_that_have_not_withdrawn(self, start):
        standing = start()
        standing.add(NAMES[:3])
        standing.withdraw(NAMES[:1])
        assert standing.willing() == NAMES[1:]
        assert len(standing.add(standing.willing())) == 9


class TestRowsLater:
    def test_a_client_with_more_rows_by_now_takes_back_what_it_brought(self, start, federation, tmp_path):
        tables = {name: federation.holdings.rows(i) for i, name in enumerate(NAMES)}
        few = {name: table.take(slice(0, 8)) for name, table in tables.items()}
        standing = start(parties=Federation.of(few, declared={"classes": CLASSES}))
        standing.add(NAMES[:6])
        standing.close()
        with Standing.open(tmp_path / "state", Federation.of(tables)) as standing:
            standing.add([NAMES[0]], rows=(8, 10))
            standing.withdraw([f"{NAMES[0]}:all"])
            assert standing.folder.book.present()[NAMES[0]] == [f"{NAMES[0]}:8-10"]

    @pytest.mark.parametrize("protect", ["plain", "ckks"])
    def test_other_columns_than_at_enrolment_are_refused(self, start, federation, tmp_path, protect):
        standing = start(protect=protect)
        standing.add(NAMES[:4])
        standing.close()
        tables = {}
        for index, name in enumerate(NAMES):
            table = federation.holdings.rows(index)
            tables[name] = dataclasses.replace(table, columns=(Column("renamed"), *table.columns[1:]))
        parties = Federation.of(tables, seed=federation.seed)
        with Standing.open(tmp_path / "state", parties) as standing:
            with pytest.raises(SchemaError, match=r"'(alcohol|renamed)' is not the same"):
                standing.add(NAMES[4:5])
            assert standing.status()["contributions"] == 4


class TestApart:
    """What totals show by addition and subtraction."""

    @staticmethod
    def total(letters, **rows):
        whole = [Contribution(f"{c}:all", c, None, None) for c in letters]
        return frozenset(whole + [Contribution(f"{c}:{a}-{b}", c, a, b) for c, (a, b) in rows.items()])

    def test_two(self):
        assert count_differing(self.total("abcd"), self.total("bcde")) == 2
        assert nearest([self.total("abc"), self.total("abcdef")], self.total("abcg")) == 1
        assert nearest([self.total("abc")], self.total("abc")) is None

    def test_the_same_rows_under_another_name_are_no_change(self):
        again = frozenset([*self.total("ab"), Contribution("anew", "c", None, None)])
        assert nearest([self.total("abc")], again) == 0
        parts = self.total("ab", c=(0, 5))  # these may be all rows that there are
        assert nearest([self.total("abc")], parts) == 0

    def test_three(self):
        opened = [self.total("abc"), self.total("abcdef")]
        assert find_exposed(opened, self.total("defg"), 3) == ["g"]
        assert find_exposed(opened, self.total("cdefg"), 3) == ["c", "g"]
        assert find_exposed(opened, self.total("defghi"), 3) == []

    def test_parts_of_a_client(self):
        opened = [self.total("abc", d=(0, 4)), self.total("abcefg", d=(0, 4))]
        assert find_exposed(opened, self.total("efg", d=(4, 8)), 3) == ["d"]

    def test_three_parts_of_a_client(self):
        opened = [self.total("abc", i=(0, 4)), self.total("def", i=(4, 7))]
        assert find_exposed(opened, self.total("abcdef", i=(7, 10)), 3) == ["i"]

    def test_another_part_of_a_client_that_was_shown(self):
        opened = [self.total("abc"), self.total("abc", d=(0, 4)), self.total("abcefg")]
        assert find_exposed(opened, self.total("abcefg", d=(4, 8)), 3) == ["d"]

    def test_all_rows_less_some_of_them(self):
        opened = [self.total("abc", d=(0, 5)), self.total("abcdefg")]
        assert find_exposed(opened, self.total("efg"), 3) == ["d"]

    def test_rows_that_came_again_changed(self):
        mended = Contribution("mended", "d", None, None)
        opened = [self.total("abcd"), frozenset([*self.total("abcefg"), mended])]
        assert find_exposed(opened, self.total("efg"), 3) == ["d"]

    def test_three_clients_of_four(self):
        opened = [self.total("abcdefgh"), self.total("efghijkl")]
        few = self.total("abcdijklmno")  # the first two less this are twice efgh, less mno
        assert find_exposed(opened, few, 4) == []
        assert find_exposed([*opened, self.total("efgh")], few, 4) == ["m", "n", "o"]

    @pytest.mark.parametrize(
        ("least", "parts"),
        [
            *((2, False), (3, False), (4, False)),
            *(pytest.param(least, True, marks=pytest.mark.slow) for least in (2, 3)),
        ],
    )
    def test_as_a_search_by_fractions_finds(self, least, parts):
        rng = np.random.default_rng(least + 10 * parts)
        for _ in range(40):
            opened = []
            for _ in range(5):
                chosen = [
                    Contribution(f"{c}:{a}", c, *rows)
                    for c in "abcdefg"[: 5 if parts else 7]
                    for a, rows in enumerate([(0, 3), (3, 6), (6, 9)] if parts else [(None, None)])
                    if rng.random() < 0.5
                ]
                now = frozenset(chosen)
                if now and now not in opened:
                    seen = _exposed(opened, now, least)
                    assert bool(find_exposed(opened, now, least)) == seen
                    if not seen:
                        opened.append(now)

    def test_what_was_shown_before_is_no_reason(self):
        opened = [self.total("abc"), self.total("abcd")]
        assert find_exposed(opened, self.total("abcdefg"), 3) == []

    def test_many_clients_and_openings(self):
        letters = [f"client-{i}" for i in range(2000)]
        opened = [self.total(letters[: 100 * k]) for k in range(1, 20)]
        assert find_exposed(opened, self.total(letters), 3) == []
        assert find_exposed(opened, self.total(letters[:1901]), 3) == [letters[1900]]


def _exposed(opened, now, least):
    """Whether exact elimination finds more of a few clients with the new total than without."""

    def rank(rows):
        rows, found = [list(map(Fraction, row)) for row in rows], 0
        for column in range(len(rows[0]) if rows else 0):
            pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
            if pivot is None:
                continue
            rows[found], rows[pivot] = rows[pivot], rows[found]
            for i in range(found + 1, len(rows)):
                factor = rows[i][column] / rows[found][column]
                rows[i] = [one - factor * other for one, other in zip(rows[i], rows[found], strict=True)]
            found += 1
        return found

    lines = sorted(frozenset().union(*opened, now))
    clients = sorted({line.client for line in lines})

    def alone(totals, few):
        matrix = [[int(line in total) for line in lines] for total in totals]
        outside = [place for place, line in enumerate(lines) if line.client not in few]
        return rank(matrix) - rank([[row[place] for place in outside] for row in matrix])

    sets = [few for size in range(1, least) for few in combinations(clients, size)]
    return any(alone([*opened, now], few) > alone(opened, few) for few in sets)


class TestSequences:
    """Each of these ended in one client's sums, by totals that opened one by one."""

    def test_the_same_rows_under_other_names(self, start):
        standing = start()
        standing.add(NAMES[:4])
        standing.weights()
        standing.withdraw(NAMES[:3])
        for index, name in enumerate(NAMES[:3]):
            standing.add([name], name=f"again-{index}")
        standing.add(NAMES[4:5])
        with pytest.raises(OpeningError, match="differ by 1 client "):
            standing.weights()

    def test_where_all_may_be_seen_anyway_nothing_is_refused(self, start):
        standing = start(min_clients=1)
        standing.add(NAMES[:4])
        first = standing.weights().weights
        standing.withdraw(NAMES[:1])
        standing.add(NAMES[:1], name="again")
        assert np.allclose(standing.weights().weights, first)

    def test_every_opening_is_written_down(self, start):
        standing = start()
        for rows in ((5, 10), None, (0, 5)):
            standing.add(NAMES[:3], rows=rows)
            standing.weights()
            standing.withdraw(NAMES[:3])
        assert standing.status()["openings"] == 4  # the founders' moments are the first

    def test_batches_that_come_and_go(self, start):
        standing = start(protect="masked")
        standing.add(NAMES[:3])
        standing.add(NAMES[3:6])
        with pytest.raises(OpeningError, match=f"would show {NAMES[6]}"):
            standing.change(withdraw=NAMES[:3], add=NAMES[6:7])

    def test_a_group_that_was_merged(self, start, federation, tmp_path):
        standing = start()
        standing.branch(tmp_path / "north")
        with Standing.open(tmp_path / "north", federation) as north:
            north.add(NAMES[3:6])
        standing.add(NAMES[:1])
        standing.merge(tmp_path / "north")
        standing.weights()
        with Standing.open(tmp_path / "north", federation) as north:
            with pytest.raises(FederationError, match="was merged into"):
                north.weights()
            north.end()
            assert north.status()["closed"].startswith("merged into")

    def test_what_a_merged_group_opened_by_itself(self, start, federation, tmp_path):
        standing = start()
        standing.branch(tmp_path / "north")
        standing.add(NAMES[:3])
        standing.weights()
        with Standing.open(tmp_path / "north", federation) as north:
            north.add(NAMES[3:6])
            north.weights()
        standing.merge(tmp_path / "north")
        standing.withdraw(NAMES[:3])
        standing.add(NAMES[6:7])
        with pytest.raises(OpeningError, match="differ by 1 client "):
            standing.weights()

    def test_a_branch_knows_what_was_opened_before(self, start, federation, tmp_path):
        standing = start()
        standing.add(NAMES[:3])
        standing.weights()
        standing.branch(tmp_path / "north")
        with Standing.open(tmp_path / "north", federation) as north:
            north.add(NAMES[:4])
            with pytest.raises(OpeningError, match="differ by 1 client "):
                north.weights()

    def test_an_interrupted_batch_stays_opened(self, start, monkeypatch):
        standing = start(protect="masked", founders=3)
        standing.add(NAMES[:3])
        with monkeypatch.context() as patch:
            patch.setattr(changes, "open_entry", _power_cut)
            with pytest.raises(KeyboardInterrupt):
                standing.add(NAMES[3:6])
        standing.add(NAMES[3:9])
        with pytest.raises(OpeningError, match="differ by 1 client "):
            standing.change(withdraw=NAMES[6:9], add=NAMES[9:10])


def _power_cut(*_):
    raise KeyboardInterrupt


class TestMerging:
    def test_a_total_that_was_never_opened_is_none_that_was(self, start, federation, tmp_path):
        standing = start()
        standing.add(NAMES[:4])
        standing.weights()
        standing.withdraw(NAMES[:3])
        standing.add(NAMES[4:7])
        standing.weights()
        standing.branch(tmp_path / "north")
        with Standing.open(tmp_path / "north", federation) as north:
            for index, name in enumerate(NAMES[:3]):
                north.add([name], name=f"again-{index}")
        standing.merge(tmp_path / "north")
        with pytest.raises(OpeningError, match=f"would show {NAMES[3]}"):
            standing.weights()

    def test_who_joined_another_group_is_known_after_the_merge(self, start, federation, tmp_path):
        standing = start(protect="bfv", founders=4)
        standing.add(NAMES[:2])
        standing.branch(tmp_path / "north")
        with Standing.open(tmp_path / "north", federation) as north:
            north.add(NAMES[4:6])
        standing.merge(tmp_path / "north")
        standing.withdraw(NAMES[4:5])
        assert standing.status()["contributions"] == 3

    @pytest.mark.parametrize(("here", "there"), [(NAMES[:0], NAMES[:4]), (NAMES[:4], NAMES[:0])])
    def test_one_of_two_groups_may_be_empty(self, start, federation, tmp_path, here, there):
        standing = start()
        standing.branch(tmp_path / "north")
        if there:
            with Standing.open(tmp_path / "north", federation) as north:
                north.add(there)
        if here:
            standing.add(here)
        assert standing.merge(tmp_path / "north") == len(there)
        assert np.abs(standing.weights().weights - fresh(start, NAMES[:4])).max() < 1e-8

    def test_a_group_whose_start_was_interrupted_is_not_merged(self, start, federation, tmp_path):
        standing = start()
        standing.branch(tmp_path / "north")
        with Standing.open(tmp_path / "north", federation) as north, north.folder.book.writing():
            north.folder.book.note("federation", {})
        with pytest.raises(ConfigError, match="north was interrupted: start it again"):
            standing.merge(tmp_path / "north")

    def test_a_copy_of_the_state_is_not_merged(self, start, federation, tmp_path):
        first = start()
        first.close()
        shutil.copytree(first.folder.path, tmp_path / "copy")
        with (
            Standing.open(first.folder.path, federation) as again,
            pytest.raises(ConfigError, match="copy is a copy of this state: it is in it already"),
        ):
            again.merge(tmp_path / "copy")

    def test_events_of_a_change_are_told(self, start):
        seen = []
        standing = start(events=Events(lambda number, event: seen.append(event)))
        seen.clear()
        standing.add(NAMES[:1])
        assert seen

    def test_a_client_can_move_to_another_group(self, start, federation, tmp_path):
        standing = start()
        standing.add(NAMES[:4])
        standing.branch(tmp_path / "north")
        with Standing.open(tmp_path / "north", federation) as north:
            north.add([NAMES[0], *NAMES[4:7]])
        with pytest.raises(ReplayError, match="is in both"):
            standing.merge(tmp_path / "north")
        standing.withdraw(NAMES[:1])
        standing.merge(tmp_path / "north")
        assert standing.status()["contributions"] == 7
        assert np.abs(standing.weights().weights - fresh(start, NAMES[:7])).max() < 1e-8
        standing.withdraw(NAMES[:1])

    @pytest.mark.parametrize("deed", ["merge", "branch"])
    def test_with_itself(self, start, tmp_path, deed):
        with pytest.raises(ConfigError, match="is this federation itself"):
            getattr(start(), deed)(tmp_path / "state")


class TestDisk:
    def test_a_full_disk_is_said_to_be_one_and_loses_nothing(self, start):
        standing = start()
        standing.add(NAMES[:3])
        base = standing.folder.book._base
        pages = base.execute("PRAGMA page_count").fetchone()[0]
        base.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UnavailableError, match="full"):
            for name in NAMES[3:]:
                standing.add([name], name="x" * 3000 + name)
        before = standing.status()["contributions"]
        base.execute("PRAGMA max_page_count = 100000")
        standing.add(NAMES[8:9], rows=(0, 3))
        assert standing.status()["contributions"] == before + 1

    def test_a_damaged_party_store(self, start, tmp_path):
        standing = start(protect="ckks")
        standing.add(NAMES[:3])
        with (tmp_path / "state" / "parties.db").open("r+b") as file:
            file.seek(100)
            file.write(b"\xff" * 8000)
        with pytest.raises(UnavailableError, match=r"parties\.db cannot be used"):
            standing.add(NAMES[3:4])

    def test_a_party_store_that_was_damaged_before(self, start, federation, tmp_path):
        standing = start(protect="ckks")
        standing.add(NAMES[:3])
        standing.close()
        with (tmp_path / "state" / "parties.db").open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 2000)
        with pytest.raises(UnavailableError, match=r"parties\.db cannot be opened: database disk image"):
            Standing.open(tmp_path / "state", federation)

    def test_somebody_elses_file_stays_as_it_is(self, federation, tmp_path):
        path = tmp_path / "coordinator.db"
        sqlite3.connect(path).execute("CREATE TABLE t (x)").connection.close()
        before = path.read_bytes()
        with pytest.raises(ConfigError, match="is not the state"):
            Standing.open(tmp_path, federation)
        assert path.read_bytes() == before


def test_too_few_founders_for_extremes_are_refused(start):
    with pytest.raises(ConfigError, match="minmax"):
        start(protect="masked", preparation=Preparation(scale="minmax"))
