"""The life of a standing federation through the command alone."""

import json

import pytest

PARTITION = ("--partition", "dirichlet", "--alpha", 5)
ALL = ("--data", "iris", "--clients", 8, "--lam", 0.01, *PARTITION)
START = (*ALL, "--founders", 6)


@pytest.fixture
def fedheonn(tacit):
    def call(*words):
        said = tacit("fedheonn", *words, "--json")
        return said.code, said.json

    return call


def test_a_whole_life_under_encryption(fedheonn, tmp_path):
    code, status = fedheonn("start", "state", *ALL)
    assert (code, status["protect"], status["founders"], status["contributions"]) == (0, "bfv", 8, 0)
    code, error = fedheonn("weights", "state")
    assert (code, error["error"]["type"]) == (5, "OpeningError")
    code, said = fedheonn("add", "state", "client-1", "client-2", "client-8")
    assert code == 0
    assert [receipt["new"] for receipt in said["receipts"]] == [True] * 3
    _, said = fedheonn("add", "state", "--all")
    assert [receipt["new"] for receipt in said["receipts"]].count(False) == 3
    code, error = fedheonn("weights", "state", "--to", "model.json")
    assert code == 2 and "has no trees" in error["error"]["text"]
    assert fedheonn("status", "state")[1]["openings"] == 1, (
        "the scale's: it is refused before the model's opens"
    )
    code, first = fedheonn("weights", "state", "--to", "model.safetensors")
    assert code == 0
    assert first["scores"]["accuracy"] > 0.7
    assert (tmp_path / "model.safetensors").is_file()
    assert len(first["weights"]) == 5
    for name in ("client-3", "client-4"):
        assert fedheonn("withdraw", "state", name)[0] == 0
    code, error = fedheonn("weights", "state")
    assert code == 5
    assert "differ by 2 clients" in error["error"]["text"]
    assert fedheonn("withdraw", "state", "client-5:all")[0] == 0
    code, second = fedheonn("weights", "state")
    assert (code, second["clients"], second["openings"]) == (0, 5, 2)
    code, status = fedheonn("status", "state")
    assert (status["contributions"], status["withdrawn"], status["changed_since_opening"]) == (5, 3, 0)


def test_batches_groups_and_the_end(fedheonn):
    assert fedheonn("start", "state", *START, "--protect", "masked", "--bits", 24)[0] == 0
    assert fedheonn("branch", "state", "group")[0] == 0
    assert fedheonn("add", "state", "client-1", "client-2", "client-3", "--rows", "0:6")[0] == 0
    assert fedheonn("add", "group", "client-4", "client-5", "client-6")[0] == 0
    code, said = fedheonn("merge", "state", "group")
    assert (code, said["merged"], said["contributions"]) == (0, 3, 6)
    code, said = fedheonn(
        "withdraw", "state", "client-1", "client-2", "--add", "client-7", "--add", "client-8"
    )
    assert code == 0
    assert {receipt["id"] for receipt in said["receipts"]} == {
        "client-1:0-6",
        "client-2:0-6",
        "client-7:all",
        "client-8:all",
    }
    code, said = fedheonn("end", "state")
    assert (code, said["closed"]) == (0, "ended")
    assert fedheonn("add", "state", "client-1")[0] == 4
    assert fedheonn("weights", "state")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("add", "state"), 2, "name the clients"),
        (("add", "state", "client-9"), 2, "there is no client 'client-9'"),
        (("add", "state", "client-1", "--rows", "ten"), 2, "such as 0:100"),
        (("add", "state", "client-1", "--rows", "0:9999"), 3, "has no rows 0:9999"),
        (("add", "nowhere", "client-1"), 2, "there is no standing federation at nowhere"),
        (("withdraw", "state", "client-1"), 2, "never contributed"),
        (("weights", "state"), 5, "0 clients contribute"),
        (("start", "state"), 2, "holds a standing federation already"),
        (("start", "other", "--protect", "shares"), 2, "open them at the coordinator"),
        (("start", "other", "--lamb", "1"), 2, "lam"),
        (("merge", "state", "nowhere"), 2, "there is no standing federation"),
    ],
)
def test_mistakes(fedheonn, words, code, text):
    fedheonn("start", "state", *START, "--protect", "plain")
    before = fedheonn("status", "state")
    found, said = fedheonn(*words)
    assert found == code
    assert text in said["error"]["text"]
    assert fedheonn("status", "state") == before


def test_people_can_read_it(tacit):
    tacit("fedheonn", "start", "state", *START, "--protect", "plain")
    assert "client-1:all: added" in tacit("fedheonn", "add", "state", "client-1").out
    assert "client-1:all: there already" in tacit("fedheonn", "add", "state", "client-1").out
    assert "weights 5 × 3 from 1 clients" in tacit("fedheonn", "weights", "state").out
    assert "contributions: 1" in tacit("fedheonn", "status", "state").out
    assert json.loads(tacit("fedheonn", "status", "state", "--json").out)["contributions"] == 1
