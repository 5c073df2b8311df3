"""What the server does with the mean change of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.core.settings_group import SettingsGroup
from tacit.core.shared import Shared
from tacit.models.network import Network
from tacit.models.neural import PREFIX


@dataclass(frozen=True)
class ServerStep(SettingsGroup):
    """The plain average: the mean change is added to the weights."""

    # Prefixes of the shared values that the server keeps for itself from round to round.
    state: ClassVar[tuple[str, ...]] = ()

    def move(self, mean: Mapping[str, Any], shared: Shared, network: Network) -> dict[str, Any]:
        """Return the weights after a round, and the server's own state."""
        return {PREFIX + name: shared[PREFIX + name] + change for name, change in mean.items()}
