"""Energy as the machine's own meters read it, where there are any: Linux' powercap, for whole processors.

It is kept apart from what follows from nominal watts and CPU time: a meter counts all that runs on the
machine. Reading it may need rights that a run does not have; then there is none.
"""

from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
MICROJOULES_PER_WH = 3.6e9


class Meter:
    """Reads the meters of all processors when it is made, and again when it is asked."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        # A package's name has one number; its cores and memory are parts of it, and have two.
        self._meters = [path for path in sorted(folder.glob("*-rapl:*")) if path.name.count(":") == 1]
        self._first = [self._read(path, "energy_uj") for path in self._meters]

    @staticmethod
    def _read(path: Path, name: str) -> int | None:
        try:
            return int((path / name).read_text())
        except (OSError, ValueError):
            return None

    def watt_hours(self) -> float | None:
        """Return the watt-hours since the beginning; None without a meter that can be read."""
        spent = 0
        for path, first in zip(self._meters, self._first, strict=True):
            now, limit = self._read(path, "energy_uj"), self._read(path, "max_energy_range_uj")
            if first is None or now is None or (now < first and limit is None):
                return None
            spent += now - first + (0 if now >= first else limit or 0)  # a meter starts again at its limit
        return spent / MICROJOULES_PER_WH if self._meters else None
