"""Metrics and health of a coordinator or site over HTTP, read from its folder when somebody asks."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from socket import SHUT_RDWR
from socketserver import ThreadingMixIn
from threading import Thread
from time import monotonic
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from cryptography import x509
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import tacit
from tacit.core.errors import ConfigError, UnavailableError
from tacit.deploy.certificates import HOST
from tacit.deploy.doctor import health
from tacit.engines.audit import AuditLog
from tacit.engines.sitefolder import SiteFolder

MOST_CONNECTIONS = 32  # at a time
LONGEST_CONNECTION = 10.0  # seconds
WAYS = {"in": ("bytes_in", "bytes_up"), "out": ("bytes_out", "bytes_down")}  # at a site, at the coordinator


class FolderMetrics(Collector):
    """What the folder of a coordinator or a site has to tell; records are read once."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log, self._last = folder, AuditLog(folder), 0
        self._site = SiteFolder(self._log.folder)
        self._counts = {"tacit_records": Counter[str](), "tacit_bytes": Counter[str]()}
        self._at = 0.0

    def collect(self) -> Iterable[Metric]:
        self._read()
        for (name, counts), label in zip(self._counts.items(), ("event", "direction"), strict=True):
            family = CounterMetricFamily(name, f"{name.split('_')[1]} of the audit log", labels=[label])
            for value, count in counts.items():
                family.add_metric([value], count)
            yield family
        info = GaugeMetricFamily("tacit_info", "who this is", labels=["name", "version"])
        info.add_metric([self._site.name, tacit.__version__], 1)
        yield info
        expiry = GaugeMetricFamily("tacit_certificate_expiry_seconds", "Unix time", labels=["file"])
        for path in (self._folder / name for name in ("ca.crt", "server.pem")):
            if path.is_file():
                found = x509.load_pem_x509_certificate(path.read_bytes())
                expiry.add_metric([path.name], found.not_valid_after_utc.timestamp())
        yield expiry
        healthy = float(all(finding.fine for finding in health(self._folder)))
        yield GaugeMetricFamily("tacit_healthy", "1 if /health is fine", value=healthy)
        yield GaugeMetricFamily("tacit_last_record_seconds", "Unix time of the last record", value=self._at)
        yield GaugeMetricFamily("tacit_epsilon_spent", "over all runs", value=self._site.ledger.total())
        if (limit := self._site.policy.epsilon_total) is not None:
            yield GaugeMetricFamily("tacit_epsilon_limit", "over all runs", value=limit)

    def _read(self) -> None:
        for record in self._log.records(self._last) if self._log.path.is_file() else ():
            self._last, self._at = record["number"], datetime.fromisoformat(record["at"]).timestamp()
            self._counts["tacit_records"][record["event"]] += 1
            for way, names in WAYS.items():
                self._counts["tacit_bytes"][way] += sum(record.get(name, 0) for name in names)


class _Server(ThreadingMixIn, WSGIServer):
    """Closes connections that last too long, and the oldest if there are too many: none locks others out."""

    daemon_threads, request_queue_size = True, 128

    def __init__(self, *given: Any) -> None:
        self._since: dict[Any, float] = {}  # connections, the oldest first
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._since) >= MOST_CONNECTIONS:
            for oldest in list(self._since)[:1]:
                self._end(oldest)
        self._since[request] = monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:  # called twice a second
        super().service_actions()
        for connection, since in list(self._since.items()):
            if monotonic() - since > LONGEST_CONNECTION:
                self._end(connection)

    def shutdown_request(self, request: Any) -> None:
        self._since.pop(request, None)
        super().shutdown_request(request)

    def _end(self, connection: Any) -> None:
        self._since.pop(connection, None)
        with suppress(OSError):
            connection.shutdown(SHUT_RDWR)  # whoever reads from it reads its end

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a connection that is gone is nobody's fault
            super().handle_error(request, client_address)


@contextmanager
def serve_metrics(folder: Path, address: str) -> Iterator[int]:
    """Answer ``/metrics`` and ``/health`` at a port, or host:port, within the block; yield the port."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--metrics is {address}: give a port, or host:port, such as 9464")
    registry = CollectorRegistry()
    registry.register(FolderMetrics(folder))
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], respond: Any) -> Any:
        if environ["PATH_INFO"] != "/health":
            return metrics(environ, respond)
        found = list(health(folder))
        fine = all(finding.fine for finding in found)
        respond("200 OK" if fine else "503 Service Unavailable", [("Content-Type", "application/json")])
        return [json.dumps({"fine": fine, "findings": [each._asdict() for each in found]}).encode()]

    try:
        quiet = type("Quiet", (WSGIRequestHandler,), {"log_message": lambda *_: None})
        server = make_server(host.strip("[]") or HOST, int(port), answer, _Server, quiet)
    except OSError as error:
        raise UnavailableError(f"metrics cannot be served at {address}: {error.strerror}") from None
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
