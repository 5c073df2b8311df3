"""Starting a run on a running Flower federation, and following it until its result is there."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

import tacit.core.errors as errors
from tacit.core import events
from tacit.core.errors import FederationError, TacitError, UnavailableError
from tacit.core.events import Event, Subscriber
from tacit.core.manifest import new_run
from tacit.deploy.connection import probe, read_connection
from tacit.deploy.federation import check_deployable
from tacit.engines.sitefolder import SiteFolder
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.experiment import build_federation
from tacit.runs.folder import EventFile, RunFolder
from tacit.runs.job import Finished, facts
from tacit.runs.settings import OWN_ROWS, Settings
from tacit.runs.sinks import check_sinks

FLWR = (sys.executable, "-c", "import sys; sys.argv[0] = 'flwr'; from flwr.cli.app import app; app()")
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
FAREWELL = 5.0  # seconds in which a run that was stopped may write its last words
LOOK = 0.3  # seconds between looks at the run's events
STARTED = re.compile(r"Successfully started run (\d+)")


def launch(
    settings: Settings,
    *subscribers: Subscriber,
    environment: Mapping[str, str] = os.environ,
    resume: Checkpoint | None = None,
) -> Finished:
    """Run a job on the Flower federation that the settings name.

    The coordinator's half runs at the SuperLink, on this machine, and writes the same run folder as the
    embedded engine does. What happens is followed there.

    Subscribers get every event. ``environment`` holds variables for Flower's commands; its ``FLWR_HOME``
    says where its configuration is. ``resume`` is a run of these settings that was stopped: it goes on in
    its own folder.

    Whatever stops the run is raised as the embedded engine raises it.
    """
    check_flower()
    settings.check()
    check_sinks(settings.run.sinks)
    coordinator = SiteFolder(settings.flower.coordinator)
    provisioned = coordinator.path.absolute().parent / "flower"
    if "FLWR_HOME" not in environment and (provisioned / "config.toml").is_file():
        environment = {**environment, "FLWR_HOME": str(provisioned)}
    check_deployable(settings, coordinator.roster)
    coordinator.secret  # noqa: B018  # locked, it could greet nobody
    if settings.data.name != OWN_ROWS:
        build_federation(settings)  # what no client could learn from is refused before anything is sent
    probe(read_connection(settings.flower.superlink, environment))
    run = resume.run if resume else new_run()
    out = (resume.folder.path.parent if resume else Path(settings.run.out)).absolute()
    config = {
        "settings": encode_settings(settings),
        "run": run,
        "out": str(out),
        "coordinator": str(coordinator.path.absolute()),
        "resume": "yes" if resume else "",
        "launch": secrets.token_hex(8),
    }
    folder = RunFolder(out / run)
    told = EventFile.length(folder) if resume else 0
    try:
        with _started(settings.flower.superlink, config, {**environment, **QUIET}) as process:
            _follow(process, folder, subscribers, told, config["launch"])
    except KeyboardInterrupt as error:
        _note(folder, error, config["launch"])
        error.add_note(folder.way_on())
        raise
    return _finished(process, folder, config["launch"])


def check_flower() -> None:
    """Refuse if Flower is not installed."""
    if find_spec("flwr") is None:
        raise UnavailableError("the Flower engine needs Flower: pip install 'tacit-fl[flower]'")


def encode_settings(settings: Settings) -> str:
    """Return settings as all parties see them: the coordinator's own paths stay here."""
    tables = settings.as_tables()
    del tables["run"]["out"], tables["flower"]["coordinator"]
    return msgspec.json.encode(tables).decode()


@dataclass
class _Run:
    """A run under way: the process that streams its log, the log, and what that said last."""

    process: subprocess.Popen[str]
    log: Path
    last: str = ""

    def text(self) -> str:
        """Return all that Flower said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@contextmanager
def _started(
    superlink: str | None, config: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[_Run]:
    """Start a run; if the block does not end well, stop it."""
    name = [superlink] if superlink else []
    with tempfile.TemporaryDirectory(prefix="tacit-run-") as folder, Path(folder, "log").open("w") as log:
        app = Path(folder, "app")
        app.mkdir()
        manifest = resources.files("tacit.deploy").joinpath("app.toml").read_bytes()
        (app / "pyproject.toml").write_bytes(manifest)
        (app / "README.md").write_text("Runs the installed Tacit.\n", encoding="utf-8")
        values = Path(folder, "config.toml")
        # Of a JSON text and a TOML text the escapes are the same.
        lines = (f"{key} = {json.dumps(value)}" for key, value in config.items())
        values.write_text("\n".join(lines) + "\n", encoding="utf-8")
        words = [*FLWR, "run", str(app), *name, "--run-config", str(values), "--stream"]
        process = subprocess.Popen(
            words, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True, text=True
        )
        run = _Run(process, Path(log.name))
        try:
            yield run
        except BaseException:
            with suppress(OSError, subprocess.SubprocessError):
                if number := STARTED.search(run.text()):
                    stop = [*FLWR, "stop", number[1], *name]
                    subprocess.run(stop, env=environment, capture_output=True, timeout=60, check=False)
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            run.last = " / ".join(line.strip() for line in run.text().splitlines()[-6:] if line.strip())


def result_of(folder: RunFolder, launch: str) -> dict[str, Any] | None:
    """Return the result of this launch; one that an earlier attempt wrote late is not it."""
    if not (folder.path / "result.json").is_file():
        return None
    result = folder.result()
    return result if result.get("launch") == launch else None


def _follow(
    run: _Run, folder: RunFolder, subscribers: tuple[Subscriber, ...], place: int, launch: str
) -> None:
    """Hand on events, from a place in their file on, until the run is over."""
    path = folder.path / "events.jsonl"
    while True:
        over = run.process.poll() is not None or result_of(folder, launch) is not None
        if path.is_file():
            with path.open("rb") as file:
                file.seek(place)
                fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            place += len(whole)
            for line in whole.splitlines():
                number, event = read_event(line)
                for subscriber in subscribers:
                    subscriber(number, event)
        if over:
            return
        time.sleep(LOOK)


KINDS = tuple(kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event))
_decoder = msgspec.json.Decoder(dict[str, Any])


def read_event(line: bytes) -> tuple[int, Event]:
    """Read one line of ``events.jsonl``.

    >>> read_event(b'{"n":3,"t":0.1,"event":"Noted","about":"run","text":"hello"}')
    (3, Noted(about='run', text='hello', level='info'))
    """
    fields = _decoder.decode(line)
    kind = next(kind for kind in KINDS if kind.__name__ == fields["event"])
    return fields["n"], msgspec.convert(fields, kind)


def _note(folder: RunFolder, error: BaseException, launch: str) -> None:
    """Say in the run folder, if there is one, why the run stopped."""
    if not folder.path.is_dir():
        return
    # The coordinator's half may still write what it knows, but not that it was stopped on purpose.
    until = time.monotonic() + FAREWELL
    while (known := result_of(folder, launch)) is None and time.monotonic() < until:
        time.sleep(LOOK)
    known = known or {"run": folder.path.name, "launch": launch}
    with suppress(UnavailableError):
        folder.write_json("result.json", {**known, "error": facts(error)})


def _finished(run: _Run, folder: RunFolder, launch: str) -> Finished:
    result = result_of(folder, launch)
    if result is None:
        raise FederationError(f"the run ended without a result. Flower says: {run.last or 'nothing'}")
    if error := result.get("error"):
        kind = getattr(errors, error["type"], None)
        if isinstance(kind, type) and issubclass(kind, TacitError):
            raise kind(error["text"])
        raise TacitError(f"the run stopped: {error['type']}: {error['text']}")
    return Finished(result, folder, None)
