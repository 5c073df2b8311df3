"""Flags of components: ``--lam 0.01`` belongs to whichever chosen component has an option of that name."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tacit.core.component import Option
from tacit.core.errors import ConfigError, nearest
from tacit.data.sources import is_data
from tacit.runs.keys import NAMES, flag_of, options_in


def extra_flags(
    words: Sequence[str], switches: Sequence[str] = ()
) -> tuple[list[tuple[str, str]], list[str]]:
    """Pair up flags that are not the command's own with their values; the other words are left over."""
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
                flag = f"--{flag_of(key)}"
                raise ConfigError(f"{flag} needs a value, or there is no such option: write {flag} VALUE")
            text = rest.pop(0)
        pairs.append((key, text))
    return pairs, left


def spread_data(words: Sequence[str]) -> list[str]:
    """Write ``--data`` before each of the files that follow it."""
    spread: list[str] = []
    for word in words:
        more = len(spread) > 1 and spread[-2] == "--data" and not word.startswith("-")
        spread += ["--data", word] if more and not word.endswith(".toml") else [word]
    return spread


def switches(chosen: Mapping[str, str] | None = None) -> list[str]:
    """Return the options that are true or false: of the chosen components, or of any."""
    some = [(section, name) for section in NAMES for name in NAMES[section]]
    listed = [options_in(*each) for each in (some if chosen is None else chosen.items())]
    return [option.name for options in listed for option in options if isinstance(option.default, bool)]


def file_among(words: Sequence[str]) -> str | None:
    """Find the word that is no flag and no flag's value, before it is known which components are chosen."""
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
    """Sort extra flags into the tables of the chosen components; ``flags`` are the command's own."""
    known = {
        section: {option.name: option for option in options_in(section, name)}
        for section, name in chosen.items()
    }
    tables: dict[str, dict[str, Any]] = {}
    for key, text in pairs:
        section, option = _home(key, known, flags)
        tables.setdefault(section, {})[option.name] = read_value(option, text)
    return tables


def _home(key: str, known: Mapping[str, Mapping[str, Option]], flags: Sequence[str]) -> tuple[str, Option]:
    section, dot, name = key.partition(".")
    if dot and name in known.get(section, {}):
        return section, known[section][name]
    found = [section for section, options in known.items() if key in options]
    if len(found) > 1:
        ways = " or ".join(f"--{section}.{key}" for section in found)
        raise ConfigError(f"--{key} could mean several options: write {ways}")
    if not found:
        word = f"--{flag_of(key)}"
        others = [
            f"--{section} {name}"
            for section, names in NAMES.items()
            for name in names
            if key in [option.name for option in options_in(section, name)]
        ]
        if others:
            raise ConfigError(f"{word} is an option of {' and '.join(others)}, which is not what was chosen")
        valid = [
            f"--{flag_of(name)}" for name in (*(n for options in known.values() for n in options), *flags)
        ]
        raise ConfigError(f"no such option {word}: {nearest(word, valid)}")
    return found[0], known[found[0]][key]


def read_value(option: Option, text: str) -> Any:
    """Read the text of a flag; an option that takes several values has them separated by commas."""
    if option.type.startswith("tuple"):
        words = [word.strip() for word in text.split(",")]
        return words if option.type.startswith("tuple[str, ") else [literal(word) for word in words]
    return text if option.type == "str" else literal(text)


def literal(text: str) -> Any:
    """Read a value as TOML would: true, 3, 0.5, or text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
