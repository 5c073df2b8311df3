"""The report: harmless whatever the data hold, complete when the result is, quiet when it is not."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.events import Events, Replied, WaveEnded, WaveStarted
from tacit.ledger.cost import CostLedger
from tacit.protections.plain import Plain
from tacit.runs.page import units
from tacit.runs.page.context import promise_lines
from tacit.runs.page.evidence import draw_rounds
from tacit.runs.page.figures import columns_of
from tacit.runs.page.scores import difference, write
from tacit.runs.page.units import energy_text, escape, part, size_text, time_text
from tacit.runs.report import pieces, render

VOID = {"meta", "image", "use", "path", "rect", "br"}
LABELS = ["no", "perhaps", "yes"]


class Page(HTMLParser):
    """What is in a page: tags, ids, text; fails on tags that do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def ledger_of(clients: int, waves: int = 2) -> dict[str, Any]:
    random = np.random.default_rng(0)
    ledger = CostLedger()
    events = Events(ledger)
    for wave in range(waves):
        events.emit(WaveStarted(wave, "gram" if wave % 2 else "moments", clients))
        for client in range(clients):
            failure = "no answer within 5 s" if (wave, client) == (1, 3) else None
            seconds = float(random.lognormal(-6, 0.5))
            events.emit(Replied(wave, f"client-{client}", 900, 4000 + client % 7 * 90, seconds, failure))
        events.emit(WaveEnded(wave, clients, 0, 0.01, 0.2))
    return ledger.summary()


def scores_of(accuracy: float) -> dict[str, Any]:
    lines = [
        {"label": label, "precision": 0.9, "recall": 0.9, "f1": accuracy, "support": 20} for label in LABELS
    ]
    matrix = [[18, 1, 1], [0, 20, 0], [2, 3, 15]]
    whole = {
        "accuracy": accuracy,
        "precision": 0.9,
        "recall": 0.9,
        "f1": accuracy - 0.01,
        "auc": 0.97,
        "loss": 0.3,
    }
    return {**whole, "per_class": lines, "confusion": matrix}


def result_of(clients: int = 20, waves: int = 2) -> dict[str, Any]:
    random = np.random.default_rng(1)
    counts = random.multinomial(50, [0.5, 0.3, 0.2], size=clients) * random.integers(0, 2, (clients, 3))
    return {
        "run": "run-7",
        "version": "0.1.0",
        "created": "1 June 2025",
        "method": "fedheonn",
        "data": "dry_bean",
        "clients": clients,
        "partition": "dirichlet(0.3)",
        "protect": "plain",
        "seed": 0,
        "settings": {"method": {"regularisation": 0.001}, "engine": {"workers": None}},
        "accuracy": 0.904,
        "scores": {"federated": scores_of(0.904), "centralised": scores_of(0.905), "local": scores_of(0.71)},
        "classes": LABELS,
        "ledger": ledger_of(clients, waves),
        "skew": {
            "counts": counts.tolist(),
            "rows": counts.sum(axis=1).tolist(),
            "s": random.random(clients).tolist(),
            "gini": random.random(clients).tolist(),
            "entropy": random.random(clients).tolist(),
        },
        "notes": [
            {"level": "warning", "about": "plain", "text": "Plain sums protect nothing."},
            {"level": "info", "about": "data", "text": "One constant column became zero."},
        ],
        "promises": {"name": "plain", **Plain().promises.as_dict(), "sees": {"client": "every contribution"}},
        "reveals": {"key-server": "a head of each client"},
        "exposure": [seen_row(), seen_row(what="terms: vector", kind="cipher", openable=False)],
        "command": "tacit run fedheonn --data dry_bean",
    }


def seen_row(
    who: str = "coordinator",
    what: str = "terms: factor",
    about: str = "each client",
    kind: str = "plain",
    openable: bool = True,
) -> dict[str, Any]:
    row = {"who": who, "what": what, "about": about, "class": kind, "openable": openable}
    return {**row, "over": 1, "times": 20, "bytes": 4000}


REGRESSION = {"mse": 1.2e-5, "rmse": 0.0035, "mae": 0.002, "r2": 0.99}


@pytest.fixture(scope="module")
def full_page() -> str:
    return render(result_of())


def test_every_part_of_a_full_result_is_shown(full_page: str) -> None:
    page = Page(full_page)
    for words in (
        "accuracy 90.40\u00a0%",
        "How well it does",
        "Class by class",
        "How the data lie",
        "What travelled",
        "What it cost",
        "Who saw what",
        "The coordinator saw in the clear, of every single client: factor of terms.",
        "every contribution",
        "key server sees",
        "a head of each client",
        "Plain sums protect nothing.",
        "One constant column became zero.",
        "no answer within 5 s",
        "method.regularisation",
        "tacit run fedheonn --data dry_bean",
    ):
        assert words in page.text
    assert page.tags.count("svg") == page.tags.count("figure") >= 8
    assert page.tags.count("figcaption") == page.tags.count("figure")


def test_warnings_stand_before_the_scores_and_notes_after(full_page: str) -> None:
    loud, scores, quiet = (
        full_page.index(words) for words in ("Plain sums protect", "How well it does", "One constant column")
    )
    assert loud < scores < quiet


@pytest.mark.parametrize("missing", result_of(4))
def test_what_is_null_is_left_out(missing: str) -> None:
    Page(render({**result_of(4), missing: None}))


def test_an_empty_result_still_gives_a_page() -> None:
    assert "no scores" in Page(render({})).text
    assert Page(render(dict.fromkeys(result_of(4)))).tags.count("section") == 0


def test_regression_has_its_own_scores_and_no_classes() -> None:
    scores = {"federated": REGRESSION, "centralised": REGRESSION, "local": {**REGRESSION, "r2": 0.8}}
    page = Page(render({"method": "fedheonn", "data": "carbon_nanotubes", "clients": 1, "scores": scores}))
    assert "from 1 client: R² 0.9900" in page.text
    assert "1.20 × 10⁻⁵" in page.text
    assert "Class by class" not in page.text


HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$x_{1$ & text-00000- ${main}"]


@pytest.mark.draws
def test_nothing_from_the_data_becomes_markup() -> None:
    result = result_of(6)
    clean = Page(render(result))
    for text in HOSTILE:
        spoilt = {
            **result,
            **dict.fromkeys(
                ("run", "version", "created", "method", "data", "partition", "protect", "seed"), text
            ),
            "command": text,
            "classes": [text, *HOSTILE[:2]],
            "settings": {text: text, "deep": {text: [text]}},
            "notes": [
                {"level": text, "about": text, "text": text},
                {"level": "warning", "about": text, "text": text},
            ],
            "promises": {**result["promises"], "name": text, "sees": {text: text}, "collusion": text},
            "reveals": {text: text},
            "exposure": [seen_row(who=text, what=text, about=text, kind=text)],
        }
        ours = {**scores_of(0.9), "per_class": [{"label": label, "f1": 0.5} for label in HOSTILE]}
        spoilt["scores"] = {**result["scores"], "federated": ours}
        waves = [{**wave, "step": text} for wave in result["ledger"]["waves"]]
        failures = [{"party": text, "step": text, "reason": text}]
        spoilt["ledger"] = {**result["ledger"], "waves": waves, "failures": failures}
        page = Page(render(spoilt))
        assert not {"script", "img", "iframe"} & set(page.tags)
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        assert page.tags.count("svg") == clean.tags.count("svg")
        assert text in page.text


def test_the_page_asks_for_nothing_from_outside(full_page: str) -> None:
    assert not re.search(r"https?://|//[a-z]|@import|<script|<link|<iframe", full_page)
    sources = re.findall(r'(?:href|src)="([^"]*)', full_page)
    assert all(source.startswith(("data:image/png", "#")) for source in sources)
    assert "default-src 'none'" in full_page


def test_ids_are_unique_although_many_drawings_share_the_page(full_page: str) -> None:
    page = Page(full_page)
    assert len(page.ids) == len(set(page.ids))
    targets = re.findall(r'(?:url\(|href=")#([\w-]+)', full_page)
    assert set(targets) <= set(page.ids)


def test_every_drawing_is_described(full_page: str) -> None:
    described = re.findall(r'<svg role="img" aria-label="[^"]{8,}"', full_page)
    assert full_page.count("<svg") == len(described)


@pytest.mark.draws
def test_drawings_of_full_width_scroll_on_narrow_screens_and_not_in_print(full_page: str) -> None:
    narrow, printed = (full_page.split(f"@media {kind} {{")[1] for kind in ("(max-width: 52rem)", "print"))
    for rules, width in ((narrow.split("@media")[0], "38rem"), (printed, "0")):
        assert f"section > div > figure svg {{ min-width: {width}; }}" in rules
    assert "<h2>How the data lie</h2><div><figure><svg" in full_page, "what these rules are for"


@pytest.mark.draws
def test_the_same_result_gives_the_same_bytes(full_page: str) -> None:
    assert render(result_of()) == full_page


@pytest.mark.draws
def test_twenty_thousand_clients_fit_into_one_small_page() -> None:
    page = render(result_of(20_000, waves=2))
    assert len(page.encode()) < 600_000
    assert "ordered by largest class" in page


@pytest.mark.draws
def test_many_waves_and_classes_stay_small_too() -> None:
    result = result_of(3, waves=300)
    labels = [f"class {i}" for i in range(60)]
    lines = [{"label": label, "f1": 0.5 + i / 200} for i, label in enumerate(labels)]
    matrix = (np.eye(60, dtype=int) * 40 + 1).tolist()
    result["classes"] = labels
    result["scores"]["federated"] = {"accuracy": 0.5, "per_class": lines, "confusion": matrix}
    page = render(result)
    assert len(page.encode()) < 600_000
    assert "30 weakest of 60" in page
    assert "added up over the waves" in page


@pytest.mark.draws
def test_drawings_survive_letters_that_no_font_has() -> None:
    result = result_of(4)
    result["classes"] = ["中文", "עברית\u202e", "\x00\ud800"]
    assert "中文" in render(result)
    assert "\x00" not in render(result)
    render(result).encode("utf-8")


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (units.count, 20000, "20,000"),
        (units.decimal, 0.90432, "0.904"),
        (units.decimal, -0.5, "−0.500"),
        (units.decimal, None, "–"),
        (units.significant, 1234.5, "1,234"),
        (units.significant, 0.00346, "0.00346"),
        (units.significant, 1.2e-5, "1.20 × 10⁻⁵"),
        (units.percent, 0.90432, "90.4\xa0%"),
        (units.short, "4.50\xa0ms", "4.5\xa0ms"),
        (units.short, "250\xa0kB", "250\xa0kB"),
        (units.size_text, 512, "512\xa0B"),
        (units.size_text, 13_245_000, "13.2\xa0MB"),
        (units.time_text, 0.0043, "4.30\xa0ms"),
        (units.time_text, 7200, "2.00\xa0h"),
        (units.energy_text, 0.00031, "0.310\xa0mWh"),
        (units.number, float("nan"), None),
    ],
)
def test_numbers_are_written_as_people_read_them(write: Any, value: Any, text: str | None) -> None:
    assert write(value) == text


def test_scores_are_written_as_is_usual_and_compared_as_written() -> None:
    assert [write("accuracy", 0.9043), write("f1", 0.9043), write("mse", None)] == [
        "90.43\xa0%",
        "0.904",
        "–",
    ]
    assert difference("accuracy", 0.904, 0.904001) == "same as pooled data"
    assert difference("f1", 0.8, 0.85) == "−0.0500 against pooled data"
    assert difference("f1", 0.8, None) == ""


def test_rounds_are_drawn_where_there_are_several_with_scores() -> None:
    assert draw_rounds({"rounds": [{"round": 1, "accuracy": 0.5}]}) == []
    assert draw_rounds({"rounds": [{"round": 1}, {"round": 2, "accuracy": 0.5}]}) == []
    scored = [{"round": i, "f1": i / 9, "accuracy": 0.5} for i in (1, 2)]
    ((drawn, _),) = draw_rounds({"rounds": scored})
    assert "macro F1" in drawn


def test_small_parts_of_a_page() -> None:
    assert part({"scores": {"federated": None}}, "scores", "federated") == {}
    assert pieces().section("Empty", caller=lambda: "").strip() == ""
    assert promise_lines(Plain().promises.as_dict())[0] == ("totals open at", "the coordinator")


def test_merged_clients_are_ordered_by_their_largest_class() -> None:
    merged, size = columns_of(np.array([[0.0, 4.0], [2.0, 0.0], [0.0, 2.0], [4.0, 0.0]]), columns=2)
    assert (merged.tolist(), size) == ([[3, 0], [0, 3]], 2)


@given(st.text())
def test_escaped_text_has_no_markup_and_encodes(text: str) -> None:
    escaped = escape(text)
    assert not set('<>"') & set(escaped)
    escaped.encode("utf-8")


@given(st.floats(min_value=0, max_value=1e15))
def test_human_units_keep_the_size(value: float) -> None:
    sizes = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    amount, unit = size_text(value).split("\u00a0")
    assert float(amount.replace(",", "")) * sizes[unit] == pytest.approx(value, rel=0.006, abs=0.51)
    sizes = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
    amount, unit = time_text(value).split("\u00a0")
    assert float(amount.replace(",", "")) * sizes[unit] == pytest.approx(value, rel=0.006, abs=1e-9)
    sizes = {"mWh": 1e-3, "Wh": 1.0, "kWh": 1e3}
    amount, unit = energy_text(value).split("\u00a0")
    assert float(amount.replace(",", "")) * sizes[unit] == pytest.approx(value, rel=0.006, abs=1e-6)


@settings(max_examples=25)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 12))
def test_merging_clients_keeps_the_mean_of_equal_groups(clients: int, classes: int, columns: int) -> None:
    counts = np.random.default_rng(clients).integers(0, 9, (clients, classes)).astype(float)
    merged, size = columns_of(counts, columns)
    assert len(merged) == min(clients, columns)
    if clients % columns == 0 or size == 1:
        assert merged.mean(axis=0) == pytest.approx(counts.mean(axis=0))
