"""Downloads against a real server on this machine: resumed, verified, in place whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproductions._originals import fetch
from tacit.core.errors import ConfigError, DataError, UnavailableError

BODY = np.random.default_rng(0).bytes(300_000)
DIGEST = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """A server whose habits a test can choose; it writes down what it was asked."""

    daemon_threads = True
    ranges = True  # honours Range
    cuts: list[int]  # break off after so many bytes, once for each entry
    says_length = True
    status = 200
    wrong_range = False
    asked: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if start and start >= len(BODY):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(BODY)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        rest = BODY[start:]
        self.send_response(206 if start else 200)
        if start:
            first = 7 if self.server.wrong_range else start
            self.send_header("Content-Range", f"bytes {first}-{len(BODY) - 1}/{len(BODY)}")
        if self.server.says_length:
            self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.server.cuts.pop(0)] if self.server.cuts else rest)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(("127.0.0.1", 0), Handler)
    running.cuts, running.asked = [], []
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/data.bin"


def test_a_whole_file_arrives_with_its_digest_and_progress(server: Server, tmp_path: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    to = tmp_path / "deep" / "data.bin"
    assert (
        fetch(address(server), to, sha256=DIGEST.upper(), progress=lambda *call: calls.append(call)) == DIGEST
    )
    assert to.read_bytes() == BODY
    assert calls[-1] == (len(BODY), len(BODY))
    assert [path.name for path in to.parent.iterdir()] == ["data.bin"]


def test_what_is_there_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "data.bin"
    to.write_bytes(BODY)
    assert fetch(address(server), to, sha256=DIGEST) == DIGEST
    assert server.asked == []
    to.write_bytes(b"other")
    with pytest.raises(DataError, match="delete it and fetch it again"):
        fetch(address(server), to, sha256=DIGEST)
    assert to.read_bytes() == b"other"


def test_a_cut_connection_is_taken_up_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.cuts = [100_000, 50_000]
    assert fetch(address(server), tmp_path / "data.bin") == DIGEST
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_a_connection_that_keeps_breaking_leaves_a_part_for_the_next_call(
    server: Server, tmp_path: Path
) -> None:
    server.cuts = [1000, 1000]
    to = tmp_path / "data.bin"
    with pytest.raises(UnavailableError, match=r"broke off 2 times .*fetch again to go on"):
        fetch(address(server), to, attempts=2)
    assert (tmp_path / "data.bin.part").stat().st_size == 2000
    assert not to.exists()
    assert fetch(address(server), to, sha256=DIGEST) == DIGEST
    assert server.asked[-1] == "bytes=2000-"


def test_a_server_that_ignores_ranges_is_read_from_the_start(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "data.bin.part").write_bytes(b"x" * 5000)
    assert fetch(address(server), tmp_path / "data.bin") == DIGEST


def test_a_server_that_sends_another_range_is_not_believed(server: Server, tmp_path: Path) -> None:
    server.wrong_range = True
    (tmp_path / "data.bin.part").write_bytes(BODY[:5000])
    assert fetch(address(server), tmp_path / "data.bin") == DIGEST


@pytest.mark.parametrize("part", [BODY, BODY + b"more"], ids=["complete", "too long"])
def test_nothing_left_to_send(server: Server, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "data.bin.part").write_bytes(part)
    assert fetch(address(server), tmp_path / "data.bin") == DIGEST


def test_a_server_that_does_not_say_the_length(server: Server, tmp_path: Path) -> None:
    server.says_length = False
    totals: list[int | None] = []
    assert (
        fetch(address(server), tmp_path / "data.bin", progress=lambda _, all_: totals.append(all_)) == DIGEST
    )
    assert set(totals) == {None}


def test_a_wrong_digest_is_refused_and_nothing_is_kept(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"SHA-256 {DIGEST}, expected 0+"):
        fetch(address(server), tmp_path / "data.bin", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_names_the_way_out(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(UnavailableError, match=r"404 Not Found.*put it at .*data\.bin$"):
        fetch(address(server), tmp_path / "data.bin")


def test_no_server_names_the_address_and_the_way_out(server: Server, tmp_path: Path) -> None:
    url = address(server)
    server.server_close()
    with pytest.raises(UnavailableError, match=r"cannot reach http://127.0.0.1.*put it at .*data\.bin$"):
        fetch(url, tmp_path / "data.bin", timeout=0.2)


def test_a_full_disk_keeps_the_part(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, file: Any) -> None:
            self.file, self.room = file, 1000

        def write(self, data: bytes) -> None:
            self.file.write(data[: self.room])
            raise OSError(errno.ENOSPC, "No space left on device")

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: Any) -> None:
            self.file.close()

    real: Callable[..., Any] = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode: Full(real(path, mode)))
    with pytest.raises(UnavailableError, match=r"No space left.*make room"):
        fetch(address(server), tmp_path / "data.bin")
    monkeypatch.undo()
    assert (tmp_path / "data.bin.part").read_bytes() == BODY[:1000]
    assert fetch(address(server), tmp_path / "data.bin") == DIGEST
    assert server.asked[-1] == "bytes=1000-"


def test_only_the_web_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="http or https"):
        fetch((tmp_path / "secret").as_uri(), tmp_path / "data.bin")
