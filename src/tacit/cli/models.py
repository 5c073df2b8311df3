"""Commands about models: export one, and predict with it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.flags import GIVEN
from tacit.cli.output import Json, Out, RunName, check_absent, complete_run, say, say_json
from tacit.cli.past import find_run
from tacit.core.errors import ConfigError
from tacit.core.text import visible

if TYPE_CHECKING:
    from tacit.methods.base import Model
    from tacit.runs.folder import RunFolder

FORMULA = r"^([=+@-].*[(|!])"  # with a function, a program or another sheet in it

Kind = Annotated[
    str | None,
    typer.Option("--format", help="safetensors, onnx or xgboost; else as the file's name ends."),
]


def export(
    context: typer.Context,
    name: RunName = "latest",
    to: Annotated[Path | None, typer.Option("--to", help="File to write, or a format by its name.")] = None,
    kind: Kind = None,
    head: Annotated[
        Path | None,
        typer.Option(help="File with rows, to which the last layer of a network is fitted: a head for them."),
    ] = None,
    out: Out = "runs",
    as_json: Json = False,
) -> None:
    """Export a run's model in a standard format."""
    from tacit.models.files import load_model
    from tacit.models.predictor import EXPORTS

    if str(to) == "sklearn":
        told = "scikit-learn has no format of files but pickles, which run code when they are read"
        raise ConfigError(f"{told}: call tacit.load_model(...).to_sklearn() on a safetensors file")
    if kind is None and str(to) in EXPORTS:
        to, kind = None, str(to)
    folder = find_run(name, out)
    path = to or Path(folder.path.name + EXPORTS.get(kind or "safetensors", ""))
    model = load_model(_file_of(folder))
    if head is not None:
        model = _fit_head(model, head, context.meta[GIVEN].get("data", {}))
    facts = write_model(model, path, kind)
    say(as_json, {"run": folder.path.name, **facts}, f"{path}: {facts['bytes']:,} bytes")


def _fit_head(model: Any, rows: Path, reading: dict[str, Any]) -> Any:
    from tacit.data.files import load

    if not hasattr(model, "fit_head"):
        raise ConfigError("--head: this model is no network, and has no last layer to fit: leave it out")
    schema = model.schema
    known = {"target": list(schema.target_names), "features": [column.name for column in schema.columns]}
    return model.fit_head(load(rows, **{**known, "task": schema.task, **reading}))


RunOrModel = Annotated[
    str,
    typer.Argument(
        metavar="RUN|MODEL",
        help="Id or folder of a run, 'latest', or a model's file.",
        autocompletion=complete_run,
    ),
]
TableFile = Annotated[
    Path | None, typer.Option("--to", help="File to write, .csv or .parquet; without it CSV on stdout.")
]


def predict(
    context: typer.Context,
    name: RunOrModel,
    data: Annotated[Path, typer.Argument(help="File with rows: the model's columns, in any order.")],
    to: TableFile = None,
    out: Out = "runs",
    as_json: Json = False,
) -> None:
    """Predict for the rows of a file: labels by name, with the probability of each, or quantities.

    Columns that the model does not know, such as identifiers, are copied. Say of dates and the like what was
    said when the model was trained.
    """
    from tacit.data.files import read_rows

    model = _read_model(name, to, out)
    found = model.predictions(read_rows(data, **context.meta[GIVEN].get("data", {})))
    deliver(found, to, "predictions", as_json)


def sample(
    name: RunOrModel,
    rows: Annotated[int, typer.Option(help="How many rows to generate.")] = 1000,
    label: Annotated[
        str | None, typer.Option(help="Of this class only; else of all, as often as seen.")
    ] = None,
    to: TableFile = None,
    seed: Annotated[int, typer.Option(help="Another one gives other rows.")] = 0,
    out: Out = "runs",
    as_json: Json = False,
) -> None:
    """Generate rows with a model that can, such as one of graffl: its columns and the target."""
    model = _read_model(name, to, out)
    if not hasattr(model, "sample"):
        raise ConfigError(f"the model of {name} predicts, and generates no rows: train one with graffl")
    deliver(model.sample(rows, label, seed), to, "sample", as_json)


def _read_model(name: str, to: Path | None, out: str) -> Any:
    from tacit.models.files import load_model

    check_absent(to)
    if to is not None and to.suffix.lower() not in (".csv", ".parquet"):
        raise ConfigError(f"{to.name}: rows are written as .csv or .parquet: end it so")
    return load_model(Path(name) if Path(name).is_file() else _file_of(find_run(name, out)))


def deliver(found: Any, to: Path | None, what: str, as_json: bool) -> None:
    """Write rows to a file or, without one, to stdout: as JSON, or as CSV."""
    from tacit.runs.folder import RunFolder

    if to is not None:
        RunFolder(to.parent).write(to.name, _table_bytes(found, to.suffix.lower(), what))
        facts = {"path": str(to), "rows": found.num_rows, "columns": found.column_names}
        say(as_json, facts, f"{to}: {found.num_rows:,} rows")
    elif as_json:
        say_json({"rows": found.num_rows, "columns": found.column_names, what: found.to_pylist()})
    else:
        raw = _table_bytes(found, ".csv", what)
        sys.stdout.buffer.write(visible(raw.decode(), "\n").encode() if sys.stdout.isatty() else raw)


def write_model(model: "Model", path: Path, kind: str | None = None) -> dict[str, Any]:
    """Write a model as its file's name ends, or as ``kind`` says; return what was written."""
    from tacit.models.predictor import kind_of
    from tacit.runs.folder import RunFolder

    kind = kind_of(path, kind)
    check_absent(path)
    content = model.to_bytes(kind)
    RunFolder(path.parent).write(path.name, content)
    return {"format": kind, "path": str(path), "bytes": len(content)}


def _file_of(folder: "RunFolder") -> Path:
    path = folder.path / "model.safetensors"
    if not path.is_file():
        raise ConfigError(f"{folder.path} holds no model: the run did not finish, or sites keep it")
    return path


def _table_bytes(table: Any, ending: str, what: str) -> bytes:
    """Return a table as a file of that ending.

    Labels may be other clients', and so may all words of a sample: in CSV an apostrophe stands before what
    spreadsheets would carry out.
    """
    import pyarrow as pa
    from pyarrow import compute, csv, parquet

    sink = pa.BufferOutputStream()
    for place, name in enumerate(table.column_names if ending == ".csv" else ()):
        if (what == "sample" or name == "prediction") and pa.types.is_string(table[place].type):
            harmless = compute.replace_substring_regex(table[place], FORMULA, r"'\1")
            table = table.set_column(place, name, harmless)
    (parquet.write_table if ending == ".parquet" else csv.write_csv)(table, sink)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw
