"""Container files: what they copy, install and call is there; no service has more rights than it needs."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

from tacit.cli.app import app

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "containers"
COMPOSE = ("coordinator.yaml", "site.yaml")
DOCKERFILE = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")


def parse(words):
    """Parse words as the command line would, without running them; unknown ones raise."""
    command, context = typer.main.get_command(app), None
    words = list(words)
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands, f"there is no command '{name}'"
        command = command.commands[name]
    context = command.make_context(command.name, words, obj=False)
    assert context.command is command


def instructions(word):
    return [
        line.removeprefix(word).strip() for line in DOCKERFILE.splitlines() if line.startswith(f"{word} ")
    ]


def calls_in(text):
    """Words after the service of each `docker compose run` and `exec`."""
    for line in text.splitlines():
        if found := re.search(r"docker compose .*? (run|exec) (.*)", line.replace("HOST", "10.0.0.5")):
            words = shlex.split(found[2])
            service = next(i for i, word in enumerate(words) if word in ("coordinator", "site"))
            rest = words[service + 1 :]
            assert found[1] == "run" or rest[0] == "tacit", "exec does not know the entry point"
            yield rest if found[1] == "run" else rest[1:]


@pytest.mark.parametrize("name", COMPOSE)
def test_what_compose_calls_is_there_and_confined(name):
    text = (FOLDER / name).read_text()
    for service in yaml.safe_load(text)["services"].values():
        parse(service["command"])
        assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
        assert not {"privileged", "network_mode", "pid"} & service.keys()
        metrics = [port for port in service["ports"] if port.endswith(":9464")]
        assert [port.split(":")[0] for port in metrics] == ["127.0.0.1"]
    assert list(calls_in(text))
    for words in calls_in(text):
        parse(words)


def test_what_the_page_for_operators_calls_is_there():
    page = (ROOT / "docs/operating.md").read_text()
    found = list(calls_in(page))
    assert len(found) >= 3
    for words in found:
        parse(words)


def test_what_the_image_copies_and_installs_is_there():
    for copied in instructions("COPY"):
        *sources, _ = [word for word in copied.split() if not word.startswith("--")]
        assert all(source.startswith("/opt") or (ROOT / source).exists() for source in sources), copied
    extras = re.search(r'"\.\[([a-z,]+)\]"', DOCKERFILE)[1].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*extras} <= known.keys()
    assert {"flower", "metrics"} <= {*extras}
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["tacit"]
    assert instructions("USER") == ["tacit"]
    environment = dict(word.split("=", 1) for word in instructions("ENV")[0].split())
    assert environment["MPLCONFIGDIR"].startswith("/tmp/"), "the home folder cannot be written to"
    check = json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2])
    compile(check[2], "health check", "exec")


def test_a_command_that_is_not_there_would_be_noticed():
    with pytest.raises(AssertionError, match="there is no command 'begin'"):
        parse(["coordinator", "begin", "/state/fed"])
    with pytest.raises(Exception, match="No such option"):
        parse(["coordinator", "start", "/state/fed", "--listen", "0.0.0.0"])
