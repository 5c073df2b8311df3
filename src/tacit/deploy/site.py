"""What a site's owner takes out of its folder: the model that it has learnt."""

from tacit.core.errors import ConfigError, DataError, nearest
from tacit.core.fields import strip_prefix
from tacit.core.manifest import Manifest
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.shared import Shared
from tacit.core.standing_client import MODEL
from tacit.engines.assembly import assemble
from tacit.engines.sitefolder import SiteFolder
from tacit.methods.base import Model


def learnt(folder: SiteFolder, run: str = "latest") -> tuple[str, Model]:
    """Return the model that a site has adopted in a run, and the run's id."""
    found: dict[str, tuple[Manifest, Party]] = {}
    for digest in folder.store.runs():
        known = folder.store.recalled(digest, Party(folder.name, dict, folder.secret))
        if known is None or "manifest" not in known.state:
            continue
        manifest = Manifest.from_message(Message.decode(known.state["manifest"]))
        if any(name.startswith(_prefix(manifest)) for name in known.state):
            found.setdefault(manifest.run, (manifest, known))  # the latest attempt at a run comes first
    if not found:
        raise DataError(f"{folder.name} has adopted no model yet: let it take part in a run first")
    chosen = next(iter(found)) if run == "latest" else run
    if chosen not in found:
        raise ConfigError(f"{folder.name} remembers no run '{run}': {nearest(run, found)}")
    manifest, known = found[chosen]
    components = assemble(manifest)
    schema = components.preparation.read_schema(Message.decode(known.state["schema"]))
    values = strip_prefix(_prefix(manifest), known.state)
    model: Model = components.method.model_at(known, Shared(schema, values))
    return chosen, model


def _prefix(manifest: Manifest) -> str:
    return MODEL if manifest.stands else "shared/"
