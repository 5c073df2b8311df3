"""Flags of parts: ``--lam 0.01`` belongs to whichever chosen part has an option of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.core.component import Component, Option
from tacit.core.errors import ConfigError, nearest
from tacit.data.files import is_data
from tacit.data.partition import PARTITIONERS
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.runs.keys import NAMES


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


def _options(section: str, name: str) -> Sequence[Option]:
    """Options of a method, a protection or a partition."""
    if section == "partition":
        if name not in PARTITIONERS:
            raise ConfigError(f"unknown partition '{name}': {nearest(name, PARTITIONERS)}")
        return PARTITIONERS[name].options
    kind: type[Component] = (METHODS if section == "method" else PROTECTIONS).get(name)
    return kind.options()


def _everything() -> list[tuple[str, str]]:
    return [(section, name) for section, names in NAMES.items() for name in names]


def switches(chosen: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of options that are true or false: of the chosen components, or of any.

    >>> switches({"method": "fedheonn", "protect": "ring"}), switches({"protect": "noised"})
    (['clip'], [])
    """
    pairs = _everything() if chosen is None else chosen.items()
    return [option.name for pair in pairs for option in _options(*pair) if isinstance(option.default, bool)]


def file_among(words: Sequence[str]) -> str | None:
    """Return the word that is no flag and no flag's value, before it is known which components are chosen.

    >>> file_among(["--clip", "2.0", "noised.toml"]), file_among(["--clip", "ring.toml"])
    ('noised.toml', 'ring.toml')
    """
    left = [word for word in extra_flags(words, switches())[1] if isinstance(literal(word), str)]
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
    """Sort extra flags into the tables of the components that have them.

    ``flags`` are the command's own, for the suggestion after a typo.

    >>> chosen = {"method": "fedheonn", "protect": "plain", "partition": "dirichlet"}
    >>> part_options([("lam", "0.01"), ("alpha", "0.3")], chosen, [])
    {'method': {'lam': 0.01}, 'partition': {'alpha': 0.3}}
    >>> part_options([("lams", "0.01,1")], chosen, [])
    {'method': {'lams': [0.01, 1]}}
    """
    homes: dict[str, list[tuple[str, Option]]] = {}
    for section, name in chosen.items():
        for option in _options(section, name):
            homes.setdefault(option.name, []).append((section, option))
    tables: dict[str, dict[str, Any]] = {}
    for key, text in pairs:
        section, option = _home(key, homes, flags)
        many = option.type.startswith("tuple")
        value = [literal(word.strip()) for word in text.split(",")] if many else literal(text)
        tables.setdefault(section, {})[option.name] = value
    return tables


def _home(
    key: str, homes: Mapping[str, list[tuple[str, Option]]], flags: Sequence[str]
) -> tuple[str, Option]:
    """The table and the option that a flag means."""
    section, dot, name = key.partition(".")
    if dot and section in (inside := dict(homes.get(name, []))):
        return section, inside[section]
    found = homes.get(key, [])
    if len(found) > 1:
        ways = " or ".join(f"--{section}.{key}" for section, _ in found)
        raise ConfigError(f"--{key} could mean several options: write {ways}")
    if not found:
        word = f"--{key.replace('_', '-')}"
        others = [pair for pair in _everything() if key in [option.name for option in _options(*pair)]]
        if names := " and ".join(f"--{section} {name}" for section, name in others):
            raise ConfigError(f"{word} is an option of {names}, which is not what was chosen")
        valid = [f"--{name.replace('_', '-')}" for name in (*homes, *flags)]
        raise ConfigError(f"no such option {word}: {nearest(word, valid)}")
    return found[0]


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
