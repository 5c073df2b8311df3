"""Flags of parts: ``--lam 0.01`` belongs to whichever chosen part has an option of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.core.component import Component
from tacit.core.errors import ConfigError, nearest
from tacit.data.files import is_data
from tacit.data.partition import PARTITIONERS, options_of
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS


def extra_flags(
    words: Sequence[str], switches: Sequence[str] = ()
) -> tuple[list[tuple[str, str]], list[str]]:
    """Pair up flags that are not the command's own with their values; the other words are left over.

    A switch may stand alone, or with ``no-`` before its name.

    >>> extra_flags(["--lam", "0.01", "federation.toml", "--alpha=0.3"])
    ([('lam', '0.01'), ('alpha', '0.3')], ['federation.toml'])
    >>> extra_flags(["--clip", "federation.toml"], ["clip"]), extra_flags(["--no-clip"], ["clip"])
    (([('clip', 'true')], ['federation.toml']), ([('clip', 'false')], []))
    """
    rest, pairs, left = list(words), [], []
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            if word.startswith("-"):
                raise ConfigError(f"no such option {word}: options of one letter are -q only; see --help")
            left.append(word)
            continue
        key, equals, text = word[2:].partition("=")
        key = key.replace("-", "_")
        if not equals and key.removeprefix("no_").rpartition(".")[2] in switches:
            negated = key.startswith("no_")
            if negated or not rest or rest[0] not in ("true", "false"):
                pairs.append((key.removeprefix("no_"), "false" if negated else "true"))
                continue
        if not equals:
            if not rest:
                flag = f"--{key.replace('_', '-')}"
                raise ConfigError(f"{flag} needs a value, or there is no such option: write {flag} VALUE")
            text = rest.pop(0)
        pairs.append((key, text))
    return pairs, left


def switches(chosen: Mapping[str, str] | None = None) -> list[str]:
    """Names of options that are true or false: of the chosen ``method`` and ``protect``, or of any part.

    >>> switches({"method": "fedheonn", "protect": "ring"}), switches({"protect": "noised"})
    (['clip'], [])
    """
    parts: list[type[Component]] = []
    for section, registry in (("method", METHODS), ("protect", PROTECTIONS)):
        names = registry if chosen is None else [chosen[section]] if section in chosen else []
        parts += [registry.get(name) for name in names]
    return [option.name for part in parts for option in part.options() if isinstance(option.default, bool)]


def file_among(words: Sequence[str], own: Sequence[str] = ()) -> str | None:
    """The word that is no flag and no flag's value, before it is known which parts are chosen.

    ``own`` are switches of the command itself.

    >>> file_among(["--clip", "2.0", "noised.toml"]), file_among(["--clip", "ring.toml"])
    ('noised.toml', 'ring.toml')
    """
    left = [word for word in extra_flags(words, [*switches(), *own])[1] if isinstance(literal(word), str)]
    found = [word for word in left if word.endswith(".toml")] or left
    if len(found) > 1:
        raise unexpected(found[1])
    return found[0] if found else None


def unexpected(word: str) -> ConfigError:
    """Say that a word is neither the file nor an option."""
    data = f", data with --data {word}" if is_data(word) else ""
    return ConfigError(f"'{word}' is not expected here: give one TOML file, and options with --{data}")


def part_options(
    pairs: Sequence[tuple[str, str]], chosen: Mapping[str, str], flags: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Sort extra flags into the tables of the parts that have them.

    Parameters
    ----------
    pairs : sequence of (name, text)
        As :func:`extra_flags` gives them.
    chosen : mapping
        Names of the chosen ``method``, ``protect`` and ``partition``.
    flags : sequence of str
        The command's own flags, for the suggestion after a typo.

    Examples
    --------
    >>> chosen = {"method": "fedheonn", "protect": "plain", "partition": "dirichlet"}
    >>> part_options([("lam", "0.01"), ("alpha", "0.3")], chosen, [])
    {'method': {'lam': 0.01}, 'partition': {'alpha': 0.3}}
    >>> part_options([("lams", "0.01,1")], chosen, [])
    {'method': {'lams': [0.01, 1]}}
    """
    homes = _homes(chosen)
    tables: dict[str, dict[str, Any]] = {}
    for key, text in pairs:
        section, name = _home(key, homes, flags)
        many = name in _lists(section, chosen)
        value = [literal(word.strip()) for word in text.split(",")] if many else literal(text)
        tables.setdefault(section, {})[name] = value
    return tables


def _lists(section: str, chosen: Mapping[str, str]) -> list[str]:
    """Options of a chosen part that take several values, separated by commas."""
    if section == "partition":
        return []
    part = (METHODS if section == "method" else PROTECTIONS).get(chosen[section])
    return [option.name for option in part.options() if option.type.startswith("tuple")]


def _homes(chosen: Mapping[str, str]) -> dict[str, list[str]]:
    """For every option name the tables that have it."""
    homes: dict[str, list[str]] = {}
    partition = chosen["partition"]
    if partition not in PARTITIONERS:
        raise ConfigError(f"unknown partition '{partition}': {nearest(partition, PARTITIONERS)}")
    for section, names in (
        ("method", [option.name for option in METHODS.get(chosen["method"]).options()]),
        ("protect", [option.name for option in PROTECTIONS.get(chosen["protect"]).options()]),
        ("partition", list(options_of(partition))),
    ):
        for name in names:
            homes.setdefault(name, []).append(section)
    return homes


def _home(key: str, homes: Mapping[str, list[str]], flags: Sequence[str]) -> tuple[str, str]:
    section, dot, name = key.partition(".")
    if dot and section in homes.get(name, ()):
        return section, name
    found = homes.get(key, [])
    if len(found) > 1:
        ways = " or ".join(f"--{section}.{key}" for section in found)
        raise ConfigError(f"--{key} could mean several options: write {ways}")
    if not found:
        word = f"--{key.replace('_', '-')}"
        if others := _others(key):
            raise ConfigError(f"{word} is an option of {' and '.join(others)}, which is not what was chosen")
        valid = [f"--{name.replace('_', '-')}" for name in (*homes, *flags)]
        raise ConfigError(f"no such option {word}: {nearest(word, valid)}")
    return found[0], key


def _others(key: str) -> list[str]:
    """All parts that have an option of that name, as flags."""
    parts = [(f"--partition {name}", options_of(name)) for name in PARTITIONERS]
    for flag, registry in (("--method", METHODS), ("--protect", PROTECTIONS)):
        parts += [
            (f"{flag} {name}", dict.fromkeys(option.name for option in registry.get(name).options()))
            for name in registry
        ]
    return [words for words, names in parts if key in names]


def literal(text: str) -> Any:
    """Read a value as TOML would: true, 3, 0.5, or text.

    >>> literal("3"), literal("1e-3"), literal("true"), literal("sealed")
    (3, 0.001, True, 'sealed')
    """
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
