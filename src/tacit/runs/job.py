"""A job: from settings to run folder. What ``tacit run`` does, and what Python may call as well."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

import tacit
from tacit.core.errors import TacitError, UnavailableError
from tacit.core.events import Evaluated, Events, Noted, Subscriber
from tacit.core.exposure import INTRODUCTION
from tacit.core.manifest import new_run
from tacit.data.schema import vocabulary
from tacit.data.skew import skew
from tacit.federation import Federation
from tacit.ledger.cost import Meter, peak_megabytes
from tacit.ledger.exposure import ExposureLedger
from tacit.ledger.sentences import exposes_one, sentences
from tacit.methods.base import Model
from tacit.methods.compatibility import warnings_before
from tacit.models.scores import CLASS_SCORES, TARGET_SCORES, warn_of_balance
from tacit.runs.analysis import analyse
from tacit.runs.checkpoint import Checkpoint, CheckpointWriter, read_checkpoint
from tacit.runs.experiment import build_federation
from tacit.runs.folder import EventFile, RunFolder
from tacit.runs.keys import command
from tacit.runs.page.context import flat_settings
from tacit.runs.report import render
from tacit.runs.settings import OWN_FILE, Settings, usual_partition
from tacit.runs.sinks import Sinks, check_sinks
from tacit.runs.transcript import TranscriptFolder
from tacit.training import Record, Training

OTHER_DIVISION = "give a file for each site, or --partition by-column --column NAME"
LOCAL_MODELS = 100  # clients trained alone for the comparison, evenly chosen if there are more


@dataclass(frozen=True)
class Finished:
    """A finished run: its result as plain values, its folder and its model."""

    result: dict[str, Any]
    folder: RunFolder
    model: Model | None


def execute(
    settings: Settings,
    *subscribers: Subscriber,
    federation: Federation | None = None,
    run: str | None = None,
    resume: Checkpoint | None = None,
    chosen: str = "",
) -> Finished:
    """Run a job and write its folder.

    Subscribers get every event. ``federation`` says where to run, if not on one embedded here. ``resume`` is
    a run of these settings that was stopped. ``chosen`` says why the method was chosen, for the report.
    """
    settings.check()
    check_sinks(settings.run.sinks)
    run = resume.run if resume else run or new_run()
    federation = federation or build_federation(settings)
    folder = resume.folder if resume else RunFolder.create(settings.run.out, run)
    result, record, meter = _header(settings, run, folder), Record(), Meter()
    with folder.claimed():
        if resume:
            resume = read_checkpoint(str(folder.path))  # as the process that had the folder before left it
            resume.begin()
        with _kept_if_stopped(folder, result, record):
            told = dict(flat_settings(settings.as_tables()))
            with (
                closing(EventFile(folder, append=resume is not None)) as file,
                Sinks(settings.run.sinks, folder.path, told) as sinks,
            ):
                events = Events(file, record, sinks, *subscribers)
                rounds = resume.rounds if resume else []
                writer = CheckpointWriter(settings, folder, federation.test, events, rounds)
                if chosen:
                    events.emit(Noted("method", chosen))
                for warning in _warnings(settings, federation):
                    events.emit(warning)
                kept = TranscriptFolder(folder.path / "transcript") if settings.run.transcript else None
                training = federation.train(
                    **settings.training(),
                    events=events,
                    run=run,
                    transcript=kept,
                    keep=writer,
                    resume=resume.kept if resume else None,
                    announce=writer.announce,
                    record=record,
                )
                metered = meter.watt_hours()  # before anything is trained for comparison
                for text in _leaks(settings, record.exposure):
                    events.emit(Noted("exposure", text, "warning"))
                result |= _measured(settings, federation, training, events, metered)
            result |= {"exposure": record.exposure.summary(), "notes": record.notes, "rounds": writer.rounds}
            if training.trained is not None:
                folder.place("model.safetensors", training.trained.save)
            folder.write("report.html", render(result).encode())
            folder.write_json("result.json", result)
            writer.finish()
    return Finished(result, folder, training.trained)


@contextmanager
def _kept_if_stopped(folder: RunFolder, result: dict[str, Any], record: Record) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        result |= {"error": facts(error), "exposure": record.exposure.summary(), "notes": record.notes}
        with suppress(UnavailableError):  # the first error is the one to tell
            folder.write_json("result.json", result)
        if isinstance(error, KeyboardInterrupt):
            error.add_note(folder.way_on())
        raise


def _warnings(settings: Settings, federation: Federation) -> Iterator[Noted]:
    method, protection = settings.build_method(), settings.build_protection()
    for text in federation.holdings.table.notes if federation.experiment else ():
        yield Noted("data", text)
    if settings.partition == OWN_FILE == usual_partition({"data": {"name": settings.data.name}}):
        yield Noted("data", f"rows go to {federation.clients} clients at random: {OTHER_DIVISION}")
    if settings.run.transcript:
        plain = "the clients' contributions in the clear"
        held = plain if protection.shows_contributions else "all that travelled"
        yield Noted("transcript", f"transcript/ will hold {held}: guard it as you guard the data", "warning")
    known = warnings_before(method, protection, settings.build_preparation(), federation.clients)
    for about, texts in known.items():
        yield from (Noted(about, text, "warning") for text in texts)


def _leaks(settings: Settings, exposure: ExposureLedger) -> list[str]:
    """Return what a protection did not hide of single clients' contributions; plain has said so already."""
    rows = [row for row in exposure.summary() if exposes_one(row)]
    rows = [row for row in rows if not row["what"].startswith(INTRODUCTION)]
    return [] if settings.build_protection().shows_contributions else sentences(rows)


def facts(error: BaseException) -> dict[str, Any]:
    """Return what a result says of the error that stopped its run."""
    if isinstance(error, KeyboardInterrupt):
        return {"type": "Interrupted", "text": "stopped by the user", "exit_code": 130}
    code = error.exit_code if isinstance(error, TacitError) else 1
    return {"type": type(error).__name__, "text": str(error), "exit_code": code}


def _header(settings: Settings, run: str, folder: RunFolder) -> dict[str, Any]:
    tables = settings.as_tables()
    if settings.brings_own_rows:
        del tables["partition"]  # nobody divides rows that lie at their sites
    return {
        "run": run,
        "folder": str(folder.path),
        "version": tacit.__version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "method": settings.method["name"],
        "data": settings.data.title,
        "partition": None if settings.brings_own_rows else settings.partition["name"],
        "protect": settings.protect["name"],
        "reveals": dict(settings.build_method().reveals),
        "seed": settings.run.seed,
        "settings": tables,
        "command": command(settings),
    }


def _measured(
    settings: Settings, federation: Federation, training: Training, events: Events, metered: float | None
) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    if federation.test is not None:
        scores["federated"] = training.model.scores(federation.test)
        if settings.run.baselines:
            scores |= _baselines(settings, federation, training, events)
        for model, found in scores.items():
            brief = {key: value for key, value in found.items() if not isinstance(value, list | dict)}
            events.emit(Evaluated(model, "test", brief))
    if training.holdout is not None:
        scores["clients' own hold-outs"] = training.holdout
    main = scores.get("federated") or training.holdout or {}
    if text := warn_of_balance(main):
        events.emit(Noted("scores", text, "warning"))
    ledger = training.ledger.summary(watts=settings.run.watts)
    grid = settings.run.grid
    ledger |= {"measured_wh": metered, "memory_mb": peak_megabytes() + federation.workers_mb}
    ledger["co2_g"] = None if grid is None else ledger["wh"] / 1000 * grid
    costs = ("bytes_up", "bytes_down", "messages", "cpu_s", "training_s", "wh", "privacy", "failures")
    return {
        "clients": federation.clients,
        "rows": federation.holdings.table.rows if federation.experiment else None,
        "features": training.schema.features,
        "classes": list(training.schema.classes),
        "told": {"columns": [c.name for c in training.schema.columns], **vocabulary(training.schema)},
        **{name: main.get(name) for name in (*CLASS_SCORES, *TARGET_SCORES)},
        **{name: ledger[name] for name in costs},
        "model": training.outcome.digest,
        "engine": federation.engine_facts,
        "scores": scores,
        **analyse(settings, training, federation.test, main),
        "ledger": ledger,
        "sites": _sites(settings, federation),
        "skew": _skew(federation, training),
        "promises": {"name": settings.protect["name"], **settings.build_protection().promises.as_dict()},
    }


def _baselines(
    settings: Settings, federation: Federation, training: Training, events: Events
) -> dict[str, Any]:
    method, preparation, test = settings.build_method(), settings.build_preparation(), federation.test
    assert test is not None

    def scores_of(part: Federation, min_count: int) -> dict[str, Any]:
        events = Events()  # the run has told what its rows look like
        trained = part.train(
            method, preparation=preparation, protect="plain", min_count=min_count, events=events
        )
        return trained.model.scores(test)

    # On pooled rows the same small cells are put together; a client alone shows nobody any.
    found = {"centralised": scores_of(federation.pooled(training.schema), training.manifest.min_count)}
    chosen = np.unique(np.linspace(0, federation.clients - 1, LOCAL_MODELS).astype(int))
    alone = []
    for index in chosen:
        with suppress(TacitError):  # who cannot make a model by itself is left out
            alone.append(scores_of(federation.alone(int(index), training.schema), 1))
    if len(chosen) < federation.clients:
        text = f"local models: {len(chosen)} of {federation.clients} clients, evenly chosen"
        events.emit(Noted("baselines", text))
    if alone:
        names = [key for key, value in alone[0].items() if isinstance(value, float)]
        found["local"] = {
            name: float(np.mean([scores[name] for scores in alone if scores[name] is not None]))
            for name in names
        }
    return found


def _sites(settings: Settings, federation: Federation) -> dict[str, int] | None:
    sizes = np.diff(federation.holdings.offsets).tolist()
    named = federation.experiment and settings.partition["name"] == "by-file"
    return dict(zip(federation.holdings.names, sizes, strict=True)) if named else None


def _skew(federation: Federation, training: Training) -> dict[str, Any] | None:
    if training.schema.task != "classification" or not federation.experiment:
        return None
    holdings = federation.holdings
    owner = np.repeat(np.arange(federation.clients), np.diff(holdings.offsets))
    codes = training.schema.labels(holdings.table)
    found = skew(codes, owner, federation.clients, len(training.schema.classes))
    return {name: values.tolist() for name, values in found._asdict().items()}
