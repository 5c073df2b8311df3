"""Downloads that survive a lost connection: streamed, resumed, verified, then put in place at once."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tacit.core.errors import ConfigError, DataError, UnavailableError

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


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pinned_digest(path: Path) -> str | None:
    """Return the digest that was written beside a file once it had passed all checks."""
    pin = path.with_name(f"{path.name}.sha256")
    return pin.read_text().split()[0] if pin.is_file() else None


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
