"""Fetching published data from where its authors put it, and turning it into a parquet file in the cache.

How it is known to be right:

* where the catalogue has a content digest, the parsed table must have exactly that content;
* otherwise rows, columns and class counts must be the published ones, and the SHA-256 of the first
  download is pinned in a ``.sha256`` file that stays in the cache and that every later download must
  match (trust on first use).
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tacit.core.errors import ConfigError, DataError, UnavailableError
from tacit.data.arrow import to_table
from tacit.data.catalog import DataSet, catalog, content_digest, entry
from tacit.data.download import Progress, fetch, file_digest, pinned_digest
from tacit.data.files import cache_folder
from tacit.data.formats import DAMAGE, READERS
from tacit.data.sources import read_parquet


def fetch_original(name: str, progress: Progress | None = None) -> Path:
    """Download a data set of the catalogue and return its parquet file in the cache.

    >>> fetch_original("mnist")
    Traceback (most recent call last):
    tacit.core.errors.ConfigError: 'mnist' cannot be downloaded: put mnist.parquet into the folder that ...
    """
    return prepare(entry(name), cache_folder(), progress)


def prepare(facts: DataSet, folder: Path, progress: Progress | None = None) -> Path:
    """Download, parse, verify and store one data set in a folder; what is there already is not fetched."""
    if not facts.downloadable:
        some = ", ".join(name for name, known in catalog().items() if known.downloadable)
        raise ConfigError(
            f"'{facts.name}' cannot be downloaded: put {facts.name}.parquet into the folder that TACIT_DATA "
            f"names, or fetch one of {some}"
        )
    destination = folder / f"{facts.name}.parquet"
    if destination.is_file():
        return destination
    downloads = folder / "originals" / facts.name
    archives = [downloads / unquote(urlsplit(url).path).rsplit("/", 1)[-1] for url in facts.urls]
    digests = []
    for index, archive in enumerate(archives):
        expected = facts.archives[index] if facts.archives else pinned_digest(archive)
        digests.append(fetch(facts.urls[index], archive, sha256=expected, progress=progress))
    part = folder / f"{facts.name}.parquet.part"
    try:
        rows, classes = _write(READERS[facts.original](archives), part)
        _verify(facts, part, rows, classes)
        _pin(destination, file_digest(part))
        part.replace(destination)
    except DAMAGE as error:
        raise DataError(
            f"what came from {facts.urls[0]} is not in the published format ({error}): delete {downloads} "
            "and fetch it again, or get the data by hand"
        ) from error
    except OSError as error:
        raise UnavailableError(
            f"cannot write {part} ({error.strerror or error}): make room on the disk; the download is kept"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    for archive, digest in zip(archives, digests, strict=True):
        _pin(archive, digest)
        archive.unlink()
    return destination


def _pin(path: Path, digest: str) -> None:
    """Write the digest beside a file, in the form that ``sha256sum --check`` reads."""
    path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")


def _write(tables: Iterable[Any], part: Path) -> tuple[int, Counter[str]]:
    """Write tables one after another into one parquet file; count rows and classes on the way."""
    import pyarrow.parquet as pq

    writer, rows, classes = None, 0, Counter[str]()
    try:
        for table in tables:
            if writer is None:
                part.parent.mkdir(parents=True, exist_ok=True)
                writer = pq.ParquetWriter(part, table.schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
            rows += table.num_rows
            for pair in table["target"].value_counts().to_pylist():
                classes[str(pair["values"])] += pair["counts"]
    finally:
        if writer is not None:
            writer.close()
    return rows, classes


def _verify(facts: DataSet, part: Path, rows: int, classes: Counter[str]) -> None:
    import pyarrow.parquet as pq

    names = pq.read_schema(part).names if rows else []
    features = len(names) - len(facts.groups) - len(facts.targets)
    for what, found, published in (
        ("rows", rows, facts.rows),
        ("features", features, facts.features),
        ("classes", dict(sorted(classes.items())), dict(sorted(facts.classes.items()))),
    ):
        if published and found != published:
            raise DataError(
                f"{facts.name} from {facts.urls[0]} has {found} {what}, the published data have {published}: "
                "it changed at its source or was cut short; delete it from the cache, or get it by hand"
            )
    if facts.content:
        content = content_digest(to_table(read_parquet(part), facts.name, target=facts.targets))
        if content != facts.content:
            raise DataError(
                f"{facts.name} from {facts.urls[0]} has the published size but other values (content digest "
                f"{content}, expected {facts.content}): it has changed at its source; get it by hand"
            )
