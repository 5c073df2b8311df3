"""Fetching published data from where its authors put it, and turning it into a parquet file in the cache.

Downloads survive a lost connection: they are streamed, resumed, verified, then put in place at once.
How it is known to be right:

* where the catalogue has a content digest, the parsed table must have exactly that content;
* otherwise rows, columns and class counts must be the published ones, and the SHA-256 of the first
  download is pinned in a ``.sha256`` file that stays in the cache and that every later download must
  match (trust on first use).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from reproductions._formats import DAMAGE, READERS
from tacit.core.errors import ConfigError, DataError, UnavailableError, nearest
from tacit.data.arrow import to_table
from tacit.data.catalog import DataSet, catalog, content_digest, file_digest, pinned_digest
from tacit.data.files import cache_folder
from tacit.data.sources import read_parquet

Progress = Callable[[int, int | None], None]
_CHUNK = 1 << 20


class _BrokenOffError(Exception):
    """The connection ended before the file did."""


def fetch(
    url: str,
    destination: Path,
    *,
    sha256: str | None = None,
    progress: Progress | None = None,
    timeout: float = 30.0,
    attempts: int = 5,
) -> str:
    """Download a file, or what is still missing of it, and return its SHA-256.

    The bytes go into ``<destination>.part``, which stays there when the connection, the server or the
    disk fails, so that the next call goes on where this one stopped. The file gets its name only once it
    is whole and its digest is right. A file that is there already is not downloaded, but compared.

    ``progress`` is called with the bytes that are there and the bytes in all (None if the server does not
    say); ``timeout`` is how many seconds without a byte end a connection, and ``attempts`` how many are made.

    Examples
    --------
    >>> fetch("ftp://example.org/data.zip", Path("data.zip"))
    Traceback (most recent call last):
    tacit.core.errors.ConfigError: cannot download ftp://example.org/data.zip: give an http or https address
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f"cannot download {url}: give an http or https address")
    part = destination.with_name(f"{destination.name}.part")
    if destination.is_file():
        digest = file_digest(destination)
        if sha256 and digest != sha256.lower():
            raise DataError(
                f"{destination} has SHA-256 {digest}, expected {sha256.lower()}: delete it and fetch it again"
            )
        return digest
    for _ in range(attempts):
        try:
            _fetch_rest(url, part, progress, timeout)
            break
        except _BrokenOffError as error:
            reason = error
    else:
        raise UnavailableError(
            f"{url} broke off {attempts} times ({reason}): fetch again to go on from there, or put the file "
            f"by hand at {destination}"
        ) from reason
    digest = file_digest(part)
    if sha256 and digest != sha256.lower():
        part.unlink()  # going on from a wrong beginning would never end well
        raise DataError(
            f"{url} came with SHA-256 {digest}, expected {sha256.lower()}: it was damaged on its way or "
            "changed at its source, and was deleted. Fetch it again; if that repeats, ask the publisher"
        )
    part.replace(destination)
    return digest


def _fetch_rest(url: str, part: Path, progress: Progress | None, timeout: float) -> None:
    """Get what is missing of the file; raise _BrokenOffError if it does not come to its end."""
    response, done, total = _open(url, part, part.stat().st_size if part.is_file() else 0, timeout)
    if response is None:
        return
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        with response, part.open("ab" if done else "wb") as file:
            while piece := _read(response):
                file.write(piece)
                done += len(piece)
                if progress:
                    progress(done, total)
    except OSError as error:
        raise UnavailableError(
            f"cannot write {part} ({error.strerror or error}): make room on the disk and fetch again, which "
            "goes on from there"
        ) from error
    if total is not None and done != total:
        raise _BrokenOffError(f"{done:,} of {total:,} bytes came")


def _open(url: str, part: Path, have: int, timeout: float) -> tuple[Any, int, int | None]:
    """Return the response from ``have`` on (None if nothing is missing), its start, and the file's length."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    headers = {"User-Agent": "tacit", "Accept-Encoding": "identity"}
    request = Request(url, headers=headers | ({"Range": f"bytes={have}-"} if have else {}))
    try:
        response = urlopen(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code != 416 or not have:
            raise UnavailableError(
                f"{url} was refused by its server ({error.code} {error.reason}): try later, or get the file "
                f"elsewhere and put it at {part.with_suffix('')}"
            ) from error
        if _length(error.headers.get("Content-Range")) == have:
            return None, have, have
        part.unlink()  # longer than the file itself, or of an unknown one: begin anew
        return _open(url, part, 0, timeout)
    except OSError as error:  # no name, no route, refused, timed out
        raise UnavailableError(
            f"cannot reach {url} ({getattr(error, 'reason', error)}): connect to the network, or get the "
            f"file on another machine and put it at {part.with_suffix('')}"
        ) from error
    if response.status == 206:
        span = response.headers.get("Content-Range", "")
        if re.match(rf"bytes {have}-", span):
            return response, have, _length(span)
        response.close()
        part.unlink()
        raise _BrokenOffError(f"the server sent '{span}' when asked for byte {have:,} on")
    length = response.headers.get("Content-Length") or ""
    return response, 0, int(length) if length.isdigit() else None


def _length(span: str | None) -> int | None:
    """Read the length of the whole file from a Content-Range such as ``bytes 5-9/10`` or ``bytes */10``."""
    found = re.search(r"/(\d+)$", span or "")
    return int(found.group(1)) if found else None


def _read(response: Any) -> bytes:
    from http.client import HTTPException

    try:
        piece: bytes = response.read(_CHUNK)
    except (OSError, HTTPException) as error:
        raise _BrokenOffError(str(error) or type(error).__name__) from error
    return piece


def fetch_original(name: str, progress: Progress | None = None) -> Path:
    """Download a data set of the catalogue and return its parquet file in the cache.

    >>> fetch_original("mnist")
    Traceback (most recent call last):
    tacit.core.errors.ConfigError: 'mnist' cannot be downloaded: put mnist.parquet into the folder that ...
    """
    if name not in catalog():
        raise ConfigError(f"no data set '{name}' in the catalogue: {nearest(name, catalog())}")
    return prepare(catalog()[name], cache_folder(), progress)


def prepare(facts: DataSet, folder: Path, progress: Progress | None = None) -> Path:
    """Download, parse, verify and store one data set in a folder; what is there already is not fetched."""
    if not facts.urls:
        some = ", ".join(name for name, known in catalog().items() if known.urls)
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
