"""Text that a client writes for people: markup that ends the command, sequences that rewrite the screen.

The attacker is a client. Its notes, its reason for failing, its labels and its name reach terminal and
report.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.errors import MarkupError
from rich.text import Text

from tacit.cli import output
from tacit.cli.app import app
from tacit.cli.output import SafeConsole, listing, say_json
from tacit.cli.progress import ProgressBars
from tacit.cli.tables import run_table
from tacit.core.errors import QuorumError
from tacit.core.events import Noted
from tacit.core.message import Message
from tacit.data.table import Table
from tacit.federation import Federation
from tacit.ledger.cost import CostLedger
from tacit.runs.page.units import escape

MARKUP, SCREEN, CSI, LEFT = "[/x]", "\x1b[2J\x1b[H", "\x9b2J", "\u202e"
EVIL = f"{MARKUP}{SCREEN}{CSI}{LEFT}\nInternalError: send your key"


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def consoles() -> tuple[Console, Console]:
    """One as rich brings it, and ours; both believe that they write to a terminal."""
    made = [
        kind(file=io.StringIO(), force_terminal=True, width=200, highlight=False)
        for kind in (Console, SafeConsole)
    ]
    return made[0], made[1]


def test_a_console_that_reads_markup_is_ended_by_it_and_ours_is_not():
    theirs, ours = consoles()
    with pytest.raises(MarkupError):
        theirs.print(f"failed: {EVIL}")
    ours.print(f"failed: {EVIL}")
    assert MARKUP in written(ours)


def test_a_console_passes_escape_sequences_on_and_ours_does_not():
    theirs, ours = consoles()
    for console in (theirs, ours):
        console.print(Text(f"warning: {EVIL}"))
    assert SCREEN in written(theirs)
    for sequence in (SCREEN, CSI, LEFT):
        assert sequence not in written(ours)


def test_names_and_labels_in_tables_are_harmless():
    _, ours = consoles()
    ours.print(listing([{"name": EVIL}], {"name": EVIL}))
    assert SCREEN not in written(ours) and MARKUP in written(ours)


def test_the_reason_of_a_failed_client_is_harmless_in_the_summary_of_a_run():
    ledger = CostLedger().summary()
    result = {
        **ledger,
        "ledger": ledger,
        "scores": {},
        "settings": {"run": {"watts": 65.0}},
        "clients": 3,
        "exposure": [],
    }
    result |= dict.fromkeys(("run", "method", "data", "partition", "protect", "seed", "folder"), "it")
    result["failures"] = [{"party": EVIL, "step": "client.enrol", "reason": EVIL}]
    theirs, ours = consoles()
    with pytest.raises(MarkupError):
        theirs.print(run_table(result))
    ours.print(run_table(result))
    assert SCREEN not in written(ours)


def test_a_note_is_harmless_where_progress_is_drawn(monkeypatch):
    _, ours = consoles()
    monkeypatch.setattr("tacit.cli.progress.stderr", ours)
    with ProgressBars(quiet=False) as bars:
        bars(0, Noted(EVIL, EVIL, "warning"))
    assert MARKUP in written(ours) and SCREEN not in written(ours) and CSI not in written(ours)


def test_an_error_that_quotes_a_client_is_told_in_one_harmless_line(monkeypatch, capsys):
    _, ours = consoles()
    monkeypatch.setattr(output, "stderr", ours)
    assert output.tell("QuorumError", EVIL, 4, as_json=True) == 4
    assert SCREEN not in written(ours)
    printed = capsys.readouterr().out
    assert not any(sequence in printed for sequence in (SCREEN, CSI, LEFT))
    assert json.loads(printed)["error"]["text"] == EVIL


def test_json_on_a_terminal_holds_no_commands(capsys):
    say_json({EVIL: EVIL})
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1 and not any(ord(c) in (0x1B, 0x9B, 0x202E) for c in printed)
    assert json.loads(printed) == {EVIL: EVIL}


def test_the_report_holds_no_commands():
    assert not any(sequence in escape(EVIL) for sequence in (SCREEN, CSI, LEFT))


@pytest.mark.parametrize("field", ["$failure", "$notes"])
def test_what_a_client_says_of_itself_is_cleaned_where_it_arrives(coordinator_of, field):
    told: list[object] = []
    coordinator = coordinator_of(clients=6, subscriber=lambda number, event: told.append(event))
    said = EVIL * 200 if field == "$failure" else [(EVIL, "alarm" + EVIL)] * 100

    def rewrite(step: str, party: str, message: Message) -> bytes | None:
        evil = (step, party) == ("client.enrol", "client-3")
        return (message | {field: said}).encode() if evil else None

    coordinator.link.transport.engine.rewrite = rewrite
    coordinator.enrol()
    notes = [event for event in told if isinstance(event, Noted) and event.about == "client-3"]
    if field == "$failure":
        heard = [coordinator.failures["client-3"]]
    else:
        assert len(notes) == 20 and {note.level for note in notes} == {"warning"}
        heard = [note.text for note in notes]
    assert heard and all(text.replace(" ", "x").isprintable() and len(text) <= 4096 for text in heard)


def test_a_failure_that_is_quoted_in_an_error_is_clean(coordinator_of):
    coordinator = coordinator_of(clients=3)
    failing = Message({"$failure": EVIL, "$cpu": 0.0}).encode()
    coordinator.link.transport.engine.rewrite = lambda step, party, message: failing
    with pytest.raises(QuorumError) as caught:
        coordinator.enrol()
    assert SCREEN not in str(caught.value) and "\n" not in str(caught.value)


class Screen(io.TextIOWrapper):
    """A terminal."""

    def isatty(self) -> bool:
        return True


FORMULA = '=HYPERLINK("http://elsewhere/","yes")'


def predicted(tmp_path: Path, label: str, *words: str) -> None:
    """Predict, by a model of which one client has named a class, for rows of one's own."""
    x = np.arange(40.0)[:, None]
    held = {
        name: Table.of(x + index, np.where(x[:, 0] > 20, label, "no")) for index, name in enumerate("abc")
    }
    Federation.of(held).train("fedheonn", protect="plain").model.save(tmp_path / "model.safetensors")
    (tmp_path / "rows.csv").write_text("x0\n1\n39\n")
    with pytest.raises(SystemExit) as ended:
        app(["predict", str(tmp_path / "model.safetensors"), str(tmp_path / "rows.csv"), *words])
    assert ended.value.code == 0


def test_a_label_that_is_a_formula_is_not_carried_out_by_spreadsheets(tmp_path):
    predicted(tmp_path, FORMULA, "--to", str(tmp_path / "told.csv"))
    cells = [row[0] for row in csv.reader((tmp_path / "told.csv").read_text().splitlines())]
    assert cells == ["prediction", "no", f"'{FORMULA}"]


def test_control_other_signs_in_labels_stay(tmp_path):
    predicted(tmp_path, "+", "--to", str(tmp_path / "told.csv"))
    assert '\n"+",' in (tmp_path / "told.csv").read_text()


@pytest.mark.parametrize("kind", [io.TextIOWrapper, Screen])
def test_predictions_on_a_terminal_hold_no_commands(tmp_path, monkeypatch, kind):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", kind(raw))
    predicted(tmp_path, f"yes{SCREEN}")
    told = raw.getvalue().decode()
    assert ("\x1b" in told) == (kind is not Screen)  # a program that reads it gets it as it is
    assert told.count("\n") == 3
