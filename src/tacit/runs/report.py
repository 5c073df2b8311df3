"""The report of a run: one HTML file for people, without scripts, network or outside fonts.

It reads the result as written into the run folder and nothing else, so that a report can be made again from
any run. Components for which the result holds nothing are left out.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template
from typing import Any

import tacit
from tacit.runs.page import context, costs, evidence, exposure, scores
from tacit.runs.page.units import escape

UNITS = "Bytes are decimal (1 kB is 1,000 bytes); times are CPU time unless they say wall clock."


def render(result: Mapping[str, Any]) -> str:
    """Write the report of a run.

    ``result`` has names and settings, ``scores``, ``classes``, the ``ledger``'s summary, ``skew``,
    ``exposure``, ``reveals``, ``rounds``, ``notes``, ``promises`` and ``command``. Any of them may be
    missing or None. Everything that comes from it is escaped.

    >>> page = render({"method": "fedheonn", "data": "dry_bean", "clients": 100, "accuracy": 0.904})
    >>> page.count("<h1>fedheonn learnt dry_bean from 100 clients: <em>accuracy 90.40\\xa0%</em></h1>")
    1
    """
    sections = [
        scores.score_section(result),
        evidence.site_section(result),
        evidence.rounds_section(result),
        scores.class_section(result),
        evidence.curve_section(result),
        evidence.residual_section(result),
        evidence.feature_section(result),
        evidence.tree_section(result),
        costs.partition_section(result),
        costs.traffic_section(result),
        costs.time_section(result),
        exposure.exposure_section(result),
        context.notes_section(result),
        context.settings_section(result),
    ]
    return fill(context.headline(result)[0], context.header(result), sections, result.get("version"))


def fill(title: str, header: str, sections: Iterable[str], version: object = None) -> str:
    """Put finished parts into the page; the title is text, the others are HTML."""
    template = Template(files("tacit.runs.page").joinpath("template.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(f"Tacit · {title}"),
        header=header,
        main="\n".join(part for part in sections if part),
        footer=f"Made by Tacit {escape(version or tacit.__version__)}. {UNITS}",
    )
