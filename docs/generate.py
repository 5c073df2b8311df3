"""Write the tables of README, SECURITY and docs that follow from the code: ``python docs/generate.py``.

A region begins with ``<!-- generated: NAME WORDS -->`` and ends with ``<!-- end -->``; what is between them
is made by the function of that name here. A test fails if a page is not up to date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.cli.promises import changed, described
from tacit.core.component import Option, list_options
from tacit.data.partition import PARTITIONERS
from tacit.engines.policy import Policy
from tacit.methods import METHODS
from tacit.methods.base import Method
from tacit.protections import PROTECTIONS
from tacit.runs.keys import describe, flag_of, group_options, list_keys, options_in
from tacit.runs.page.context import promise_lines

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/*.md"))]
REGION = re.compile(r"(<!-- generated: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; a bar within a cell would end it."""
    cells = [[text.replace("|", "\\|") for text in row] for row in rows]
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (heads, *cells)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


def code(value: Any) -> str:
    """A default as people write it; a dash for none."""
    if value is None or value == "" or (isinstance(value, tuple | Mapping) and not value):
        return "–"
    if isinstance(value, tuple):
        return ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def meaning(option: Option, who: Sequence[str] = ()) -> str:
    """What an option means, after those that have it."""
    doc = describe(option).replace("``", "`")
    return f"{', '.join(f'`{name}`' for name in who)}: {doc}" if who else doc


# -- protections -------------------------------------------------------------------------------------------


def _promised() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name, options as flags, and promises of every protection, in the order of the registry."""
    order = [*PROTECTIONS.classes.values()]
    for part in sorted(described(), key=lambda part: order.index(part["name"])):
        yield part["name"], "", part
        for other in part["variants"]:
            yield part["name"], "".join(f" --{flag_of(k)} {v}" for k, v in other["settings"].items()), other


def _usual(method: type[Method]) -> tuple[str, str]:
    """Name and flags of the protection that a method takes if none is named."""
    own = method.default_settings.items()
    return method.default_protection, "".join(f" --{flag_of(k)} {v}" for k, v in own)


def _undone_by(promises: Mapping[str, Any]) -> str:
    """The first clause of a promise: the rest is on the page of the protection."""
    return re.split(r"; |\. ", promises["collusion"])[0]


def protections(*words: str) -> str:
    """Who sees what under each protection; ``brief`` without variants, ``linked`` with links to its page."""
    rows = []
    for name, flags, promises in _promised():
        if flags and "brief" in words:
            continue
        label = f"[{name}]({name}.md)" if "linked" in words else f"`{name}{flags}`"
        usual = [each for each in METHODS.classes.values() if _usual(METHODS.get(each)) == (name, flags)]
        if usual and "brief" not in words:
            label += f" (default of {', '.join(f'`{each}`' for each in usual)})"
        sees = promises["sees"]
        cells = [f"the {promises['opens'].removesuffix('s')}" + "s" * (promises["opens"] == "clients")]
        cells += [sees["coordinator"], *(() if "brief" in words else [sees["client"]])]
        rows.append([label, *cells, _undone_by(promises)])
    heads = ["`--protect`", "Totals open at", "The coordinator sees"]
    return table([*heads, *(() if "brief" in words else ["A client sees"]), "Undone by"], rows)


def promises(name: str, *settings: str) -> str:
    """Promises of a protection; with settings, those that change."""
    (part,) = (each for each in described() if each["name"] == name)
    if not settings:
        return table(["Promise", ""], promise_lines(part))
    given = dict(word.split("=") for word in settings)
    (other,) = (each for each in part["variants"] if each["settings"] == given)
    return table(["Promise", ""], changed(other, part))


def cost(name: str) -> str:
    """Return the lines of a protection in the table of costs, which stands on the page of all of them."""
    text = (ROOT / "docs" / "protections.md").read_text("utf-8")
    lines = text[text.index("## What it costs") :].splitlines()
    heads, bars, *rows = (line for line in lines if line.startswith("|"))
    return "\n".join([heads, bars, *(row for row in rows if re.match(rf"\| `{name}[` ]", row))])


ADVERSARIES = ROOT / "docs" / "adversaries.toml"


def adversaries(name: str) -> str:
    """Return what holds against an adversary under each protection, and the test that shows it."""
    cells = tomllib.loads(ADVERSARIES.read_text("utf-8"))[name]["cells"]
    rows = []
    for protection in PROTECTIONS.classes.values():
        holds, says, test = cells[protection]
        rows.append([f"`{protection}`", f"{holds}: {says}", f"`{test.removeprefix('tests/')}`"])
    return table(["`--protect`", "What holds", "Shown by"], rows)


# -- methods, partitions, settings -------------------------------------------------------------------------


def methods(*names: str) -> str:
    """Methods with their papers; all, or some by name."""
    kinds = [(name, METHODS.get(name)) for name in names or METHODS.classes.values()]
    rows = [[f"`{name}`", kind.summary(), f"`{''.join(_usual(kind))}`", kind.paper] for name, kind in kinds]
    return table(["`--method`", "Is", "Usual protection", "After"], rows)


def matrix() -> str:
    """Which method learns under which protection, with usual settings; a dash where it is refused."""
    kinds = [*PROTECTIONS.classes.values()]
    rows = []
    for name in METHODS.classes.values():
        method = METHODS.build(name)
        cells = []
        for kind in kinds:
            protection = PROTECTIONS.build(kind)
            refused = protection.incompatibility(method) or method.incompatibility(protection)
            usual = _usual(METHODS.get(name))[0] == kind
            cells.append("–" if refused else "**yes**" if usual else "yes")
        rows.append([f"`{name}`", *cells])
    return table(["", *(f"`{kind}`" for kind in kinds)], rows)


def options(*names: str) -> str:
    """Options of one method, or of several that share them."""
    grouped: dict[str, list[tuple[Option, list[str]]]] = {}
    for name in names:
        for option in options_in("method", name):
            alike = grouped.setdefault(option.name, [])
            known = [who for each, who in alike if each == option]
            if known:
                known[0].append(name)
            else:
                alike.append((option, [name]))
    rows = [
        [f"`{option.name}`", code(option.default), meaning(option, () if len(who) == len(names) else who)]
        for alike in grouped.values()
        for option, who in alike
    ]
    return table(["Option", "Default", "Meaning"], rows)


def partitions() -> str:
    """Ways of dividing rows."""
    rows = [
        [f"`{name}`", way.summary, "; ".join(f"`{o.name}`: {meaning(o)}" for o in way.options) or "–"]
        for name, way in PARTITIONERS.items()
    ]
    return table(["`--partition`", "Rows of a client", "Option"], rows)


def settings() -> str:
    """Every key of a file of settings, with its flag."""
    rows, before = [], ""
    keys = list_keys()
    for place, key in enumerate(keys):
        shown = [([], key.option)]
        last = place + 1 == len(keys) or keys[place + 1].table != key.table
        shown += group_options(key.table) if last and key.table in ("partition", "protect") else []
        for who, option in shown:
            flag = key.flag if option is key.option else flag_of(option.name)
            flags = f"`--{flag}`" + f", `--no-{flag}`" * isinstance(option.default, bool)
            flags = "in the file" if isinstance(option.default, Mapping) else flags
            head = f"`[{key.table}]`" if key.table != before else ""
            before = key.table
            rows.append([head, f"`{option.name}`", flags, code(option.default), meaning(option, who)])
    return table(["Table", "Key", "Flag", "Default", "Meaning"], rows)


def accept() -> str:
    """Every key of a site's policy."""
    rows = [[f"`{each.name}`", code(each.default), meaning(each)] for each in list_options(Policy)]
    return table(["Key", "Default", "Accepts"], rows)


MAKERS: dict[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        protections,
        promises,
        cost,
        adversaries,
        methods,
        matrix,
        options,
        partitions,
        settings,
        accept,
    )
}


def generate(text: str) -> str:
    """Fill all regions of a page."""

    def fill(found: re.Match[str]) -> str:
        name, *words = found[2].split()
        return f"{found[1]}\n{MAKERS[name](*words)}\n\n{found[4]}"

    return REGION.sub(fill, text)


def main() -> None:
    """Write the pages; with ``--check``, only say which are not up to date."""
    stale = {page: new for page in PAGES if (new := generate(old := page.read_text("utf-8"))) != old}
    for page, text in stale.items():
        if "--check" not in sys.argv:
            page.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{page.relative_to(ROOT)}\n")
    sys.exit(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    main()
