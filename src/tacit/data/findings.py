"""Findings: all that looks wrong with a table, at once, each with how grave it is and the way out.

An ``error`` is what a run refuses. A ``warning`` is what a run would learn from though it is probably not
meant so, such as -999 for a missing value. ``info`` is what one should know. No text holds a value of a row.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.data.reading import THREE
from tacit.data.schema import Schema
from tacit.data.table import Label, Table, count_words

Severity = Literal["error", "warning", "info"]

MOST_WORDS = 2_000  # classes, or categories of a column: beyond, it is a number or an id, and memory runs out
MANY_WORDS = 20  # categories of one column: beyond, they must recur
FEW_NUMBERS = 10  # words that are numbers: beyond, and with few others, the column is meant as numbers
MOST_CELLS, LEAST_ROWS = 1_000_000, 2_000  # numbers that are looked at, and so many rows at least
SENTINELS = (-99999, -9999, -999, -99, -9, -1, 99, 777, 888, 999, 9999, 99999)  # that stand for "missing"
MISSING_WORDS = {"?", "-", "--", ".", "n/a", "na", "nan", "none", "null", "unknown", "missing", "#n/a"}
EMPTY = "leave those cells empty, or name the words with --na-values"
WILD = 1_000  # times the width of the middle half that a value lies from the median
UNEVEN = 0.9  # share of one class from which accuracy says little
IDENTIFIER = re.compile(
    r"(^|[^a-z])(ids?|mrn|ssn|uuid|guid|(sur|last|first)?name|e?mail|phone|address|patient|iban)($|[^a-z])"
)
PLAIN = re.compile(r"\s*[-+]?\d+(\.\d+)?(e[-+]?\d+)?\s*$", re.IGNORECASE)
COMMA = re.compile(
    r"\s*[-+]?((\d{1,3}([. ]\d{3})+|\d+),\d+|\d{1,3}(,\d{3})+(\.\d+)?)(e[-+]?\d+)?\s*$", re.IGNORECASE
)
SIGNED = re.compile(r"\s*[<>≤≥~]=?\s*\d+([.,]\d+)?\s*$|\s*[-+]?\d+([.,]\d+)?\s*(%|[a-zA-Zµ/]{1,6})\s*$")
DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?$")
CODINGS = [{"0", "1"}, {"no", "yes"}, {"false", "true"}, {"j", "n", "y"}, {"ja", "nein"}, {"non", "oui"}]
CODINGS += [{"neg", "pos"}, {"negative", "positive"}]
UNIT = re.compile(r"\s*[<>]?\s*\d+([.,]\d+)?(\s*(%|[a-zA-Zµ/]{2,6})|\s+[a-zA-Z])\s*$")
CONTACT = re.compile(r"\s*(\S+@\S+\.\w+|\+\d[\d\s/()-]{7,})\s*$")


@dataclass(frozen=True)
class Finding:
    """Something about a table: how grave it is, what kind of thing, in which column, and what to do."""

    severity: Severity
    kind: str
    column: str
    text: str

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        return f"column '{self.column}' {self.text}" if self.column else self.text


def look(table: Table, *, missing: str = "refuse") -> list[Finding]:
    """Return all findings on a table, errors first; ``missing`` is how the run treats missing numbers."""
    return sorted(_all(table, missing), key=lambda found: ("error", "warning", "info").index(found.severity))


def check_words(table: Table, declared: Collection[str] = (), *, labels: bool = True) -> None:
    """Refuse labels and words that must not leave a site, but for those of columns that are declared."""
    for index, column in enumerate(table.columns):
        if column.kind == "category" and column.name not in (*table.chosen, *declared):
            for found in _in_words(column.name, *used_words(table, index)):
                raise DataError(found.sentence)
    for found in _in_labels(table) if labels and table.task == "classification" else ():
        raise DataError(f"target '{found.column}' {found.text}")


def look_at_schema(schema: Schema) -> list[Finding]:
    """Return findings on categories that clients agreed on, and may write in more than one way."""
    return [found for each in schema.columns for found in _in_spelling(each.name, each.categories)]


def used_words(table: Table, index: int) -> tuple[tuple[str, ...], int]:
    """Return the categories that occur in a column, and how many rows have one."""
    found = count_words(table.values[:, index], table.columns[index].categories)
    return tuple(found), found.total()


def words_by_column(table: Table) -> dict[str, list[str]]:
    """Return the categories that occur in each column that has some."""
    return {
        column.name: list(used_words(table, index)[0])
        for index, column in enumerate(table.columns)
        if column.kind == "category"
    }


def _all(table: Table, missing: str) -> Iterator[Finding]:
    yield from (Finding("warning" if THREE in note else "info", "reading", "", note) for note in table.notes)
    gaps, infinite = np.isnan(table.values).sum(axis=0), np.isinf(table.values).sum(axis=0)
    step = max(1, table.rows // max(LEAST_ROWS, MOST_CELLS // max(1, len(table.columns))))
    alike: dict[bytes, str] = {}
    for index, column in enumerate(table.columns):
        name, values = column.name, np.asarray(table.values[::step, index], dtype=np.float64)
        if count := gaps[index]:
            needed = column.kind == "number" and missing == "refuse"
            way_out = ": have them imputed (--missing mean), or leave the column or these rows out"
            text = f"has {count:,} missing of {table.rows:,} values" + way_out * needed
            yield Finding("error" if needed else "info", "missing", name, text)
        if count := infinite[index]:
            text = f"has {count:,} infinite values: replace them in the file"
            yield Finding("error", "infinite", name, text)
        if _is_constant(values) and _is_constant(table.values[:, index]):
            text = "never changes and teaches nothing: drop it, at all sites or at none"
            yield Finding("info", "constant", name, text)
        elif (twin := alike.setdefault(np.nan_to_num(values, nan=np.inf).tobytes(), name)) != name:
            yield Finding("warning", "duplicate", name, f"is the same as '{twin}': drop one of them")
        yield from _in_numbers(name, values) if column.kind == "number" else _in_categories(table, index)
    for place, name in enumerate(table.target_names if table.task == "regression" else ()):
        yield Finding("info", "task", name, "is taken for a quantity: the task is a regression")
        yield from _in_numbers(name, table.target[:, place])
    if table.task == "classification":
        counts = zip(table.classes, np.bincount(table.target, minlength=len(table.classes)), strict=True)
        yield from _in_labels(table)
        yield from look_at_balance(table.target_names[0], dict(counts))


def _in_categories(table: Table, index: int) -> Iterator[Finding]:
    (used, rows), name = used_words(table, index), table.columns[index].name
    if name not in table.chosen:
        yield from _in_words(name, used, rows)
    yield from _in_spelling(name, used)


def _in_words(name: str, words: tuple[str, ...], rows: int) -> Iterator[Finding]:
    way_out = f"drop it (--drop {name}), correct it, or declare its categories"
    if found := _misread(words):
        yield Finding("error", found[0], name, f"{found[1]}, or choose it with --categorical {name}")
    elif 2 * sum(CONTACT.match(word) is not None for word in words) > len(words):
        text = f"holds addresses or numbers of persons, which would leave: {way_out}"
        yield Finding("error", "identifier", name, text)
    elif len(words) <= MANY_WORDS:
        return
    elif np.mean([word.strip().count(" ") for word in words]) >= 3:
        text = f"holds free text, and {len(words):,} texts would leave the site"
        yield Finding("error", "free text", name, f"{text}: {way_out}")
    elif len(words) > MOST_WORDS:
        text = f"has {len(words):,} different texts, at most {MOST_WORDS:,} are used as categories"
        yield Finding("error", "vocabulary", name, f"{text}: {way_out}")
    else:
        numbered = np.mean([any(map(str.isdigit, word)) for word in words]) >= 0.9
        often = 5 if numbered or IDENTIFIER.search(name.lower()) else 2
        if len(words) * often > rows:
            text = f"holds {len(words):,} different texts in {rows:,} rows, as identifiers and names do, and "
            yield Finding("error", "identifier", name, f"{text}all of them would leave the site: {way_out}")


def _misread(words: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the kind and text of a finding if words are numbers or dates that were not read as such."""
    plain, commas, signed, dates = (
        sum(pattern.match(word) is not None for word in words) for pattern in (PLAIN, COMMA, SIGNED, DATE)
    )
    if 2 * dates > len(words) > FEW_NUMBERS:
        return "date", "holds dates, and each would be a category: read it with --date, or drop it"
    if not plain + commas + signed > max(FEW_NUMBERS, len(words) / 2):
        return None
    if commas:
        text = "holds numbers with commas, read as text: read it with --numeric and --decimal , or, where"
        return "decimal comma", f"{text} commas part thousands, --decimal ."
    if plain == len(words):
        return "text", "holds numbers, written as text: read them as such with --numeric"
    text = f"holds numbers, and {len(words) - plain:,} stray words such as n/a or > 40 that make text of them"
    return "stray word", f"{text}: write numbers, or {EMPTY}"


def _in_spelling(name: str, words: tuple[str, ...]) -> Iterator[Finding]:
    if count := sum(word.strip().casefold() in MISSING_WORDS for word in words):
        text = f"has {count} words for missing values, such as ? or n/a, as categories"
        yield Finding("warning", "missing", name, f"{text}: {EMPTY}")
    if len(words) > 1 and all(map(UNIT.match, words)):
        yield Finding("warning", "text", name, "has numbers with units as categories: leave units out")
    twins = len(words) - len(set(map(_folded, words)))
    if (conflict := label_conflict(words)) and not twins:
        yield Finding("warning", "spelling", name, conflict.replace("classes", "categories"))
    if twins:
        text = f"has {twins} categories that differ in spaces or capitals only: unite them"
        yield Finding("warning", "spelling", name, text)


def _in_numbers(name: str, values: NDArray[Any]) -> Iterator[Finding]:
    there = np.sort(values[np.isfinite(values)])
    if len(there) < 3 or there[0] == there[-1]:
        return
    for sentinel in SENTINELS:
        low, high = np.searchsorted(there, [sentinel, np.nextafter(sentinel, np.inf)])
        if high - low < 2 or high - low == len(there) or (low and high < len(there)):
            continue  # hardly there, or among the others
        rest = np.concatenate([there[:low], there[high:]])
        apart, width = np.abs(rest - sentinel).min(), rest[-1] - rest[0]
        if apart > width if abs(sentinel) >= 99 else sentinel < 0 <= rest[0] and width > MANY_WORDS:
            text = f"holds {sentinel} in {high - low:,} of {len(values):,} rows, far from others, as is done"
            yield Finding("warning", "sentinel", name, f"{text} for missing values: leave those cells empty")
            there = rest
            break
    quarter, middle, three = np.quantile(there, [0.25, 0.5, 0.75])
    with np.errstate(over="ignore"):  # infinitely far is far enough
        wild = max(there[-1] - middle, middle - there[0]) > WILD * (three - quarter)
    if three > quarter and wild:
        text = f"holds values {WILD:,} times as far from the median as most are"
        yield Finding("warning", "range", name, f"{text}: correct them, or drop those rows")
    if there[0] > 19_000_100 and there[-1] < 21_001_232:
        month, day = there // 100 % 100, there % 100
        if np.isin(month, np.arange(1, 13)).all() and np.isin(day, np.arange(1, 32)).all():
            text = "holds days as eight digits: read it with --date, --date-format %Y%m%d"
            yield Finding("warning", "date", name, text)
    distinct = 1 + np.count_nonzero(np.diff(there))
    counted = there[-1] - there[0] < 2 * distinct or IDENTIFIER.search(name.lower())
    if distinct == len(values) > MANY_WORDS and counted and (there == np.trunc(there)).all():
        text = f"numbers the rows, as identifiers do: drop it (--drop {name})"
        yield Finding("warning", "identifier", name, text)


def _in_labels(table: Table) -> Iterator[Finding]:
    labels, name = table.classes, table.target_names[0]
    words = tuple(label for label in labels if isinstance(label, str))
    if found := _misread(words):
        yield Finding("error", found[0], name, found[1])
    elif len(labels) > MOST_WORDS or (len(labels) > MANY_WORDS and 2 * len(labels) > table.rows):
        text = f"has {len(labels):,} classes in {table.rows:,} rows, and at most {MOST_WORDS:,} that recur"
        text = f"{text} are learnt: name another, or use task = 'regression' for a quantity"
        yield Finding("error", "target", name, text)
    elif conflict := label_conflict(labels):
        yield Finding("error", "labels", name, conflict)


def look_at_balance(name: str, counts: Mapping[Label, int]) -> Iterator[Finding]:
    """Yield findings on how many rows have which label of a target."""
    labels = tuple(counts)
    text = f"is taken for one of {len(labels):,} classes: the task is a classification"
    yield Finding("info", "task", name, text)
    if len(labels) > MANY_WORDS and not isinstance(labels[0], str):
        text = "has many whole numbers as classes: use task = 'regression' for a quantity"
        yield Finding("warning", "task", name, text)
    if len(labels) < 2:
        text = f"has the one class '{labels[0]}': a classifier needs two, so add other rows"
        yield Finding("error", "balance", name, text)
        return
    most = max(labels, key=counts.__getitem__)
    if (share := counts[most] / sum(counts.values())) >= UNEVEN:
        text = f"is '{most}' in {share:.2%} of the rows: always saying so is as"
        yield Finding("warning", "balance", name, f"{text} accurate, so look at balanced accuracy, F1 or AUC")


def label_conflict(labels: Collection[Label]) -> str | None:
    """Return what is wrong if labels are written in more than one way: 0 and 1 here, no and yes there."""
    words = {_folded(str(label)) for label in labels}
    ways = ["/".join(sorted(coding)) for coding in CODINGS if coding & words]
    if len(words) < len(labels):
        ways = ["with and without capitals or spaces"]
    elif len(ways) < 2 or not words <= set().union(*CODINGS):
        ways = ["numbers", "words"] if len({isinstance(label, str) for label in labels}) > 1 else []
    told = f"is written in more than one way, {' and '.join(ways)}, so there are more classes than meant"
    return f"{told}: agree on one" if ways else None


def _is_constant(values: NDArray[Any]) -> bool:
    least = np.fmin.reduce(values)  # passes NaN over
    return bool(np.isnan(least) or least == np.fmax.reduce(values))


def _folded(word: str) -> str:
    return " ".join(word.split()).casefold()
