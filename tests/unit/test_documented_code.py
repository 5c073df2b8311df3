"""What code blocks of README, docs and examples say: Python runs, commands and settings are read as they are.

A command that is shown is parsed by the command itself, as far as it goes before anything is loaded: a flag,
an option of a method or a word that is no longer known fails here.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.exceptions import Exit, MissingParameter, NoArgsIsHelpError
from typer.main import get_command

from tacit.cli.app import app
from tacit.cli.flags import read_auto, read_settings, read_survey
from tacit.core.component import from_plain
from tacit.core.errors import ConfigError, UnavailableError
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import Roster
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.runs.settings import Settings
from tests.e2e.test_wheel import write_hospitals
from tests.quick import representatives

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")])
FRAGMENTS = {"architecture.md"}  # explained, not run: `train` without its class, a method of the reader's own
PLUGIN = {"examples/plugin/README.md"}  # run by tests/e2e/test_plugin.py, which installs the package
EXAMPLE = {"README.md"}  # the end of examples/quickstart.py, which tests/e2e/test_examples.py runs
# What stands for a value of the reader's, and one that will do.
STANDS_FOR = {
    "--method …": "--method fedavg",
    "--method NAME": "--method fedavg",
    "--protect NAME": "--protect plain",
    "MODE": "sealed",
}
STANDS_FOR |= {"[FILE.toml]": "federation.toml", "MB": "50", "…": "", "OPTION=VALUE,": "lam=1"}
TRAINING = {"run", "plan", "tune"}
COMMAND: Any = get_command(app)  # one for all, since it keeps the flags that it has made


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


WITH_CODE = {name_of(page): page for page in PAGES if blocks(page, "python")}
RUN = [
    name for name, page in WITH_CODE.items() if page.name not in FRAGMENTS and name not in PLUGIN | EXAMPLE
]
QUICK = [name for name in RUN if name not in ("docs/python.md", "docs/averaging.md", "docs/protocols.md")]


@pytest.mark.filterwarnings("ignore:The set_\\w+ function:PendingDeprecationWarning")  # as shap is imported
@pytest.mark.parametrize("name", representatives(RUN, *QUICK))
def test_the_code_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "docs/averaging.md":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    write_hospitals(tmp_path)  # which the quick start reads
    names: dict[str, object] = {}
    for block in blocks(WITH_CODE[name], "python"):
        try:
            exec(compile(block, name, "exec"), names)
        except UnavailableError as error:
            if "TACIT_DATA" not in os.environ and "TACIT_DATA" in str(error):
                pytest.skip(str(error))
            raise


@pytest.mark.parametrize("page", [page for page in PAGES if page.name in FRAGMENTS], ids=name_of)
def test_fragments_are_python(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, page.name, "exec")


def commands(page: Path) -> Iterator[str]:
    """Yield what stands behind ``tacit`` in console blocks, and in words of a sentence or a table."""
    for block in blocks(page, "console"):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.match(r"\$ (?:\.venv/bin/)?tacit\b(.*?)(?: &)?$", line):
                yield found[1]
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for found in re.finditer(r"(?<!`)`tacit( [^`]+)`", text):
        yield found[1].replace("\\|", "|").replace("\n", " ")


def read(words: list[str]) -> None:
    """Read a command as it reads itself, but do nothing."""
    command: Any = COMMAND
    context, chain = command.make_context("tacit", [*words]), list[str]()
    while words and hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        chain.append(name or "")
        context = command.make_context(name, [*words], parent=context)
    file = context.params.get("file")
    if chain[0] in TRAINING:
        tables = read_auto(context, file) if chain[0] == "run" else None
        if tables is None:
            read_settings(context, file)
    elif chain[0] == "survey":
        tables, wanted = read_survey(context, file, context.params["methods"])
        assert {*split(wanted.protect)} - {"default", "all"} <= {*PROTECTIONS}
        assert {*split(wanted.methods)} - {"all"} <= {*METHODS}
        Settings.from_tables({name: table for name, table in tables.items() if table})


def split(names: str | Sequence[str]) -> list[str]:
    return names.split(",") if isinstance(names, str) else [*names]


@pytest.mark.parametrize(
    "page",
    # The changelog tells of what was, too.
    [page for page in PAGES if page.name != "CHANGELOG.md" and name_of(page) not in PLUGIN],
    ids=name_of,
)
def test_the_commands_that_are_shown_are_accepted(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # where --install-completion writes
    for line in commands(page):
        for word, value in STANDS_FOR.items():
            line = line.replace(word, value)
        words = shlex.split(line, comments=True)
        for word in words:
            if word.endswith(".toml"):
                Path(word).parent.mkdir(exist_ok=True)
                Path(word).write_text('[data]\nname = "digits"\n')
        try:
            read(words)
        except (MissingParameter, NoArgsIsHelpError, Exit, SystemExit):
            continue  # a sentence may name a command without its arguments; --help ends there
        except Exception as error:
            raise AssertionError(f"{page.name} shows `tacit{line}`: {error!r}") from error


def test_every_command_paper_and_bench_is_on_the_page_of_the_command() -> None:
    """And every command in the README."""
    from tacit.checkout import list_files

    page, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/cli.md", "README.md"))
    for name in COMMAND.commands:
        assert f"tacit {name}" in page, name
        assert f"tacit {name}" in readme, name
    for name in (*list_files("reproductions"), *list_files("benchmarks")):
        assert f"`{name}`" in page, name


@pytest.mark.parametrize(
    "words",
    [
        "rnu",
        "run --hiden 3",
        "run --method fedavg --lam 1",
        "site exprot x",
        "run --protect mask",
        "show --al",
    ],
)
def test_a_command_that_is_not_accepted_is_noticed(words: str) -> None:
    with pytest.raises(
        Exception, match=r"(?i)no such|unknown|unexpected|no option|not an option|has no|not what was chosen"
    ):
        read(words.split())


def check_toml(text: str) -> None:
    """Read settings as whoever takes them does: a run, a survey, a site, a roster; Flower's only as TOML."""
    tables = tomllib.loads(text)
    if "accept" in tables:
        accept = tables["accept"]
        from_plain(Policy, accept | {"operators": ()}, "[accept]")
    elif "clients" in tables:
        from_plain(Roster, tables, "roster.toml")
    elif "superlink" not in tables:
        survey = tables.pop("survey", {})
        assert survey.keys() <= {"methods", "protect", "seeds", "options"}
        for name, options in survey.get("options", {}).items():
            Settings.from_tables({"method": {"name": name, **options}})
        Settings.from_tables(tables)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=name_of)
def test_settings_that_are_shown_are_accepted(page: Path) -> None:
    for block in blocks(page, "toml"):
        check_toml(block)


@pytest.mark.parametrize(
    "text", ["[run]\nsed = 1\n", '[protect]\nname = "noised"\nepsilom = 1\n', "[accept]\nrow = 1\n"]
)
def test_settings_that_are_not_accepted_are_noticed(text: str) -> None:
    with pytest.raises(ConfigError):
        check_toml(text)
