"""From a manifest to its components: what a party can build is what its site has installed."""

from dataclasses import replace

from tacit.core.manifest import Components, Manifest
from tacit.data.agreement import SOUGHT
from tacit.data.preparation import Preparation
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS


def assemble(manifest: Manifest) -> Components:
    """Build method, protection and preparation by name and settings; code never comes by wire."""
    method, protection, preparation = (manifest.components[kind] for kind in Components._fields)
    return Components(
        METHODS.build(method["name"], method["config"]),
        PROTECTIONS.build(protection["name"], protection["config"]),
        Preparation.from_config(preparation["config"]),
    )


def vocabulary_run(manifest: Manifest, components: Components) -> tuple[Manifest, Components]:
    """Return manifest and components of the run that agrees on words before another one, by masked sums."""
    masked = components._replace(protection=PROTECTIONS.build("masked"))
    described = Manifest.of(manifest.run, masked).components
    declared = {**manifest.declared, SOUGHT: True}
    return replace(manifest, run=f"{manifest.run}-words", components=described, declared=declared), masked
