"""Settings of a run as flags: made from their descriptions, and read together with a file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperOption

from tacit.cli.output import complete_data
from tacit.core.errors import ConfigError

if TYPE_CHECKING:
    from tacit.runs.keys import Key
    from tacit.runs.settings import Settings
    from tacit.runs.tables import SurveySettings

EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}  # options of components are flags as well
GIVEN = "tacit.given"  # where a context keeps the flags that were given
File = Annotated[Path | None, typer.Argument(help="TOML file of settings; flags override it.")]


class SettingsCommand(TyperCommand):
    """A command whose flags are the settings of a run, beside its own; they are made when it is called."""

    base: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # settings that are other than a run's by default

    def has(self, key: "Key") -> bool:
        """Return whether the command has the flag of a setting."""
        return True

    @cached_property
    def settings(self) -> "dict[str, tuple[Key, TyperOption]]":
        """Keys and flags of the settings, by the name under which a context holds their value."""
        from tacit.runs.keys import list_keys

        keys = filter(self.has, list_keys(self.base))
        return {f"{key.table}_{key.option.name}": (key, _flag(key)) for key in keys}

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments, settings, and the command's own flags."""
        own = super().get_params(ctx)
        made = [option for _, option in self.settings.values()]
        return sorted([*made, *own], key=lambda each: each.param_type_name == "option")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the flags; settings are kept aside, as tables."""
        from tacit.cli.options import read_value, spread_data

        rest: list[str] = super().parse_args(ctx, spread_data(args))
        tables: dict[str, dict[str, Any]] = {}
        for name, (key, _) in self.settings.items():
            if (value := ctx.params.pop(name)) not in (None, ()):
                value = value[0] if isinstance(value, tuple) and len(value) == 1 else value
                # What may be several things, or several values, was taken as text.
                mixed = isinstance(value, str) and key.option.type.startswith(("float", "tuple"))
                value = read_value(key.option, value) if mixed else value
                tables.setdefault(key.table, {})[key.option.name] = value
        ctx.meta[GIVEN] = tables
        return rest


class ReadingCommand(SettingsCommand):
    """A command about one source of rows, with the flags that say how it is read."""

    def has(self, key: "Key") -> bool:
        from tacit.data.reading import Reading

        return key.table == "data" and hasattr(Reading, key.option.name)


def _flag(key: "Key") -> TyperOption:
    from tacit.runs.keys import choices, describe, toml_value

    option, words = key.option, choices(key.option)
    kind = {"int": int, "float": float, "bool": bool}.get(option.type.removesuffix(" | None"), str)
    return TyperOption(
        param_decls=[
            f"{key.table}_{option.name}",
            f"--{key.flag}/--no-{key.flag}" if kind is bool else f"--{key.flag}",
        ],
        type=kind,
        is_flag=kind is bool,
        multiple=key.flag == "data",
        help=describe(option).replace("``", ""),
        show_default=False if option.default is None else toml_value(option.default).strip('"'),
        autocompletion=lambda ctx, args, typed: complete_data() if key.flag == "data" else words,
        rich_help_panel=f"\\[{key.table}]",
    )


def read_settings(context: typer.Context, file: Path | None) -> "Settings":
    """Read the settings of a run from a file and flags; flags override it."""
    from tacit.runs.settings import Settings

    below, words, found = _read_file(context, file)
    return Settings.from_tables(read_tables(context, below, words, found))


def read_auto(context: typer.Context, file: Path | None) -> dict[str, Any] | None:
    """Return the tables of a run whose method is to be chosen; None if one is named."""
    from tacit.runs.auto import AUTO
    from tacit.runs.settings import table_of

    below, words, found = _read_file(context, file)
    given = context.meta[GIVEN]
    if table_of(given, "method").get("name", table_of(below, "method").get("name")) != AUTO:
        return None

    def unnamed(tables: Mapping[str, Any]) -> dict[str, Any]:
        options = {key: value for key, value in table_of(tables, "method").items() if key != "name"}
        return {**tables, "method": options}

    context.meta[GIVEN] = unnamed(given)
    return read_tables(context, unnamed(below), words, found)


def read_survey(
    context: typer.Context, file: Path | None, methods: str
) -> "tuple[dict[str, Any], SurveySettings]":
    """Read what the cells of a survey have in common, and the table [survey], from a file and flags.

    Options among the flags are those of the first method and the first protection that are named.
    """
    from tacit.core.component import from_plain
    from tacit.runs.keys import NAMES
    from tacit.runs.settings import table_of
    from tacit.runs.tables import SurveySettings

    below, words, found = _read_file(context, file)
    wanted, given = from_plain(SurveySettings, table_of(below, "survey"), "[survey]"), context.meta[GIVEN]
    below.pop("survey", None)
    method, protect = (given.get(section, {}).pop("name", None) for section in ("method", "protect"))
    if method and methods != "all":
        raise ConfigError(f"--method {method} and --methods {methods} are the same: give one of them")
    named = {"methods": method or (methods if methods != "all" else None), "protect": protect}
    wanted = replace(wanted, **{name: text for name, text in named.items() if text is not None})
    unnamed = [section for section in ("method", "protect") if "name" not in table_of(below, section)]
    for section in unnamed:  # while the flags are read
        chosen = wanted.methods if section == "method" else wanted.protect
        first = (chosen.split(",") if isinstance(chosen, str) else [*chosen, ""])[0].strip()
        if first in NAMES[section]:
            below[section] = {"name": first, **table_of(below, section)}
    tables = read_tables(context, below, words, found)
    for section in unnamed:
        tables.get(section, {}).pop("name", None)
    return tables, wanted


def _read_file(context: typer.Context, file: Path | None) -> tuple[dict[str, Any], list[str], str | None]:
    from tacit.cli.options import file_among
    from tacit.runs.settings import read_toml

    # A flag that only a component knows is left over, and may have been taken for the file.
    words = [*([str(file)] if file else []), *context.args]
    found = file_among(words)
    return (read_toml(Path(found)) if found else {}), words, found


def read_tables(
    context: typer.Context, below: Mapping[str, Any], words: Sequence[str], file: str | None = None
) -> dict[str, Any]:
    """Put flags over tables: those of the command, and those of chosen components among the other words."""
    from tacit.cli.options import extra_flags, part_options, switches, unexpected
    from tacit.runs.auto import AUTO
    from tacit.runs.settings import chosen_components, merged, table_of

    tables = merged(below, context.meta[GIVEN])
    if table_of(tables, "method").get("name") == AUTO:
        raise ConfigError("--method auto is for `tacit run`, which trains the best of some: name a method")
    chosen = chosen_components(tables)
    pairs, left = extra_flags(words, switches(chosen))  # --clip is a switch of some, a number of others
    if odd := [word for word in left if word != file] or left[1:]:
        raise unexpected(odd[0])
    command = context.command
    own = [flag[2:] for each in command.get_params(context) for flag in each.opts if flag.startswith("--")]
    return merged(tables, part_options(pairs, chosen, own))
