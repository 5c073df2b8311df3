"""From a manifest to its components: what a party can build is what its site has installed."""

from __future__ import annotations

from tacit.core.manifest import Components, Manifest
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
