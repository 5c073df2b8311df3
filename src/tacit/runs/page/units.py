"""Numbers as people read them, text as HTML may hold it, and parts of a result."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.core.text import visible

SPACE = "\u00a0"  # a unit never stands alone on the next line
MINUS = "\u2212"
MISSING = "–"


def escape(text: object) -> str:
    """Make any value harmless as HTML text or attribute: no markup, and nothing that turns the writing."""
    return html.escape(visible(str(text), keep="\n\t"))


def part(result: Mapping[str, Any], *names: str) -> Any:
    """Return what a result holds under names one within the other; an empty mapping where nothing is."""
    for name in names:
        result = result.get(name) or {}
    return result


def number(value: float | None) -> float | None:
    """Return a finite number as it is, and anything else as None."""
    return value if value is not None and math.isfinite(value) else None


def count(value: float | None) -> str:
    """Write a whole number with its thousands apart."""
    return MISSING if value is None else f"{value:,.0f}"


def decimal(value: float | None, digits: int = 3) -> str:
    """Write a score with fixed digits."""
    # Minus zero is zero.
    return MISSING if value is None else f"{value or 0.0:,.{digits}f}".replace("-", MINUS)


def significant(value: float | None) -> str:
    """Write a number of any size with three figures."""
    if not value:
        return MISSING if value is None else "0"
    exponent = math.floor(math.log10(abs(value)))
    if -4 <= exponent < 6:
        return f"{value:,.{max(0, 2 - exponent)}f}".replace("-", MINUS)
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value / 10.0**exponent:.2f} × 10{raised}".replace("-", MINUS)


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share of one in percent."""
    return MISSING if value is None else f"{100 * value:.{digits}f}{SPACE}%".replace("-", MINUS)


def _scaled(value: float | None, steps: Sequence[tuple[float, str]]) -> str:
    if not value:
        return MISSING if value is None else f"0{SPACE}{steps[0][1]}"
    fitting = [(size, unit) for size, unit in steps if abs(value) >= 0.9995 * size]
    size, unit = fitting[-1] if fitting else steps[0]
    scaled = value / size
    digits = max(0, 2 - math.floor(math.log10(max(abs(scaled), 1e-9)))) if abs(scaled) < 100 else 0
    return f"{scaled:,.{min(digits, 3)}f}{SPACE}{unit}"


def short(text: str) -> str:
    """Drop zeros at the end of a decimal before its unit, as on the ticks of an axis."""
    amount, space, unit = text.partition(SPACE)
    return (amount.rstrip("0").rstrip(".") if "." in amount else amount) + space + unit


def size_text(value: float | None) -> str:
    """Write bytes in decimal units."""
    if value is not None and abs(value) < 1000:
        return f"{value:.0f}{SPACE}B"
    return _scaled(value, [(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")])


def time_text(value: float | None) -> str:
    """Write seconds, from microseconds to hours."""
    return _scaled(value, [(1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h")])


def energy_text(value: float | None) -> str:
    """Write watt-hours."""
    return _scaled(value, [(1e-3, "mWh"), (1.0, "Wh"), (1e3, "kWh")])
