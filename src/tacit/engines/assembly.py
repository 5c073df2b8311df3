"""From a manifest to its parts: what a party can build is what its site has installed."""

from __future__ import annotations

from tacit.core.manifest import Manifest, Parts
from tacit.data.preparation import Preparation
from tacit.methods import METHODS
from tacit.sums import PROTECTIONS


def assemble(manifest: Manifest) -> Parts:
    """Build method, protection and preparation by name and settings; code never comes by wire."""
    method, protection, preparation = (manifest.parts[kind] for kind in Parts._fields)
    return Parts(
        METHODS.build(method["name"], method["config"]),
        PROTECTIONS.build(protection["name"], protection["config"]),
        Preparation.from_config(preparation["config"]),
    )
