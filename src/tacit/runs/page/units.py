"""Numbers as people read them, and text as HTML may hold it."""

import html
import math
from collections.abc import Sequence

from tacit.core.text import visible

SPACE = "\u00a0"  # a unit never stands alone on the next line
MINUS = "\u2212"
MISSING = "–"


def escape(text: object) -> str:
    """Make any value harmless as HTML text or attribute.

    Control characters, lone surrogates and marks that turn the writing direction are replaced.

    >>> escape('<script>"x"')
    '&lt;script&gt;&quot;x&quot;'
    """
    return html.escape(visible(str(text), keep="\n\t"))


def number(value: float | None) -> float | None:
    """Return a finite number as it is, and anything else as None.

    >>> number(3.0), number(float("nan")), number(None)
    (3.0, None, None)
    """
    return value if value is not None and math.isfinite(value) else None


def count(value: float | None) -> str:
    """Write a whole number with its thousands apart.

    >>> count(20000)
    '20,000'
    """
    return MISSING if value is None else f"{value:,.0f}"


def decimal(value: float | None, digits: int = 3) -> str:
    """Write a score with fixed digits.

    >>> decimal(0.90432), decimal(-0.5), decimal(None)
    ('0.904', '−0.500', '–')
    """
    if value is None:
        return MISSING
    return f"{value or 0.0:,.{digits}f}".replace("-", MINUS)  # minus zero is zero


def significant(value: float | None) -> str:
    """Write a number of any size with three figures.

    >>> significant(1234.5), significant(0.00346), significant(1.2e-5)
    ('1,234', '0.00346', '1.20 × 10⁻⁵')
    """
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -4 <= exponent < 6:
        return f"{value:,.{max(0, 2 - exponent)}f}".replace("-", MINUS)
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value / 10.0**exponent:.2f} × 10{raised}".replace("-", MINUS)


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share of one in percent.

    >>> percent(0.90432)
    '90.4\\xa0%'
    """
    return MISSING if value is None else f"{100 * value:.{digits}f}{SPACE}%".replace("-", MINUS)


def _scaled(value: float | None, steps: Sequence[tuple[float, str]]) -> str:
    """Write a value in the largest unit of which it holds at least one, with three figures."""
    if value is None:
        return MISSING
    if value == 0:
        return f"0{SPACE}{steps[0][1]}"
    size, unit = next(
        ((size, unit) for size, unit in reversed(steps) if abs(value) >= 0.9995 * size), steps[0]
    )
    scaled = value / size
    digits = max(0, 2 - math.floor(math.log10(max(abs(scaled), 1e-9)))) if abs(scaled) < 100 else 0
    return f"{scaled:,.{min(digits, 3)}f}{SPACE}{unit}"


def short(text: str) -> str:
    """Drop zeros at the end of a decimal, as on the ticks of an axis.

    >>> short("4.50\\xa0ms"), short("250\\xa0kB"), short("1.00\\xa0MB")
    ('4.5\\xa0ms', '250\\xa0kB', '1\\xa0MB')
    """
    amount, space, unit = text.partition(SPACE)
    return (amount.rstrip("0").rstrip(".") if "." in amount else amount) + space + unit


def size_text(value: float | None) -> str:
    """Write bytes in decimal units.

    >>> size_text(512), size_text(13_245_000)
    ('512\\xa0B', '13.2\\xa0MB')
    """
    if value is not None and abs(value) < 1000:
        return f"{value:.0f}{SPACE}B"
    return _scaled(value, [(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")])


def time_text(value: float | None) -> str:
    """Write seconds from microseconds to hours.

    >>> time_text(0.0043), time_text(46.2), time_text(7200)
    ('4.30\\xa0ms', '46.2\\xa0s', '2.00\\xa0h')
    """
    return _scaled(value, [(1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h")])


def energy_text(value: float | None) -> str:
    """Write watt-hours.

    >>> energy_text(0.00031), energy_text(2.5)
    ('0.310\\xa0mWh', '2.50\\xa0Wh')
    """
    return _scaled(value, [(1e-3, "mWh"), (1.0, "Wh"), (1e3, "kWh")])
