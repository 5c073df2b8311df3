"""The SuperLink as Tacit runs it: ``python -m tacit.deploy.superlink FOLDER HOST PORT``.

Flower serves all at one port, and asks operators for no credential. Here sites reach the Fleet API alone,
over TLS and with registered node keys. All else is at a port of this machine, and asks for a token: both are
in ``flower/control.json``. No executor runs beside it, so that no app is ever installed.
"""

import asyncio
import hmac
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app

from tacit.deploy.certificates import HOST
from tacit.deploy.connection import Access

FLEET = "/v1/fleet/"
LARGEST = 16 << 20  # bytes of a request, which Flower reads before it asks who sends it; pieces have 5 MiB


class TokenPlugin(NoOpControlAuthnPlugin):
    """Flower's account authentication, with one account: who can read the operator's token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token.encode()

    def validate_tokens_in_metadata(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[bool, AccountInfo | None]:
        """Accept the token, and nothing else."""
        given = [value.encode() if isinstance(value, str) else value for _, value in metadata]
        if len(given) != 1 or not hmac.compare_digest(given[0], self._token):
            return False, None
        return super().validate_tokens_in_metadata(metadata)


class FleetOnly:
    """What sites reach of the SuperLink: the Fleet API."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand on a request of the Fleet API; there is nothing else here."""
        left = LARGEST

        async def receive_some() -> Any:
            nonlocal left
            event = await receive()
            left -= len(event.get("body", b""))
            return event if left >= 0 else {"type": "http.disconnect"}

        if scope["type"] == "http" and scope["path"].startswith(FLEET):
            await self._app(scope, receive_some, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "websocket.close", "code": 1000})


async def serve(folder: Path, host: str, port: int) -> None:
    """Serve sites and, at a port of its own, the operator, until a signal; all files are in a folder."""
    access = Access.read(folder / "flower")
    files = [folder / name for name in ("ca.crt", "server.pem", "server.key")]
    authority, certificate, key = (file.read_bytes() for file in files)
    unused: dict[str, Any] = dict.fromkeys(
        ("health_server_address", "event_log_plugin", "fleet_event_log_plugin", "artifact_provider")
    )
    config = SuperLinkLifespanConfig(
        **unused,
        control_address="",
        host=host,
        port=port,
        insecure=False,
        certificates=(authority, certificate, key),
        superexec_auth_secret=access.token.encode(),
        authn_plugin=TokenPlugin(access.token),
        enable_event_log=False,
        enable_supernode_auth=True,
        fleet_api_type="grpc-rere",
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=str(files[0]),
        ssl_certfile=str(files[1]),
        ssl_keyfile=str(files[2]),
        database=str(folder / "superlink.db"),
        isolation="process",
        runtime_dependency_install=False,
    )
    app = create_app(config, SuperLinkLifespan)
    usual: dict[str, Any] = {"log_config": get_uvicorn_log_config(logging.INFO)}
    tls: dict[str, Any] = {"ssl_certfile": config.ssl_certfile, "ssl_keyfile": config.ssl_keyfile}
    sites = uvicorn.Config(FleetOnly(app), host=host, port=port, lifespan="off", **tls, **usual)
    operator = uvicorn.Config(app, host=HOST, port=access.port, **usual)
    # The first ends when the second has passed the signal on.
    await asyncio.gather(uvicorn.Server(sites).serve(), uvicorn.Server(operator).serve())


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
