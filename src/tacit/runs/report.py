"""The report of a run: one HTML file for people, without scripts, network or outside fonts.

It reads the result in the run folder and nothing else, so that it can be made again from any run.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import tacit
from tacit.core.display import Shown
from tacit.core.errors import TacitError
from tacit.core.text import visible
from tacit.engines.assembly import assemble
from tacit.runs.page import context, costs, evidence, scores
from tacit.runs.page.units import escape
from tacit.training import Training

PARTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {  # of the page, as its template names them
    "top": context.read_top,
    "notes": context.read_notes,
    "scores": scores.read_scores,
    "sites": evidence.draw_sites,
    "rounds": evidence.draw_rounds,
    "classes": scores.draw_classes,
    "curves": evidence.draw_curves,
    "residuals": evidence.draw_residuals,
    "features": evidence.list_features,
    "trees": evidence.draw_trees,
    "division": costs.draw_division,
    "traffic": costs.read_traffic,
    "times": costs.read_times,
    "exposure": context.read_exposure,
    "settings": context.read_settings,
}


def render(result: Mapping[str, Any]) -> str:
    """Write the report of a run; whatever ``result`` lacks is left out, and all that it holds is escaped."""
    made = {name: read(result) for name, read in PARTS.items()}
    top = made["top"]
    words = {"over": "Tacit run report", "lead": top["lead"], "made": top["made"]}
    return fill("report.html", top["title"], version=result.get("version"), **words, **made)


@cache
def templates() -> Environment:
    """Return the templates; what they are given loses what turns the writing, and is escaped."""
    return Environment(
        loader=PackageLoader("tacit.runs", "page"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible(str(value), keep="\n\t"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def pieces() -> Any:
    """Return the pieces of pages as functions: ``table``, ``figure``, ``sentence`` and so on."""
    return templates().get_template("pieces.html").module


def fill(template: str, title: str, *, version: object = None, **parts: Any) -> str:
    """Write a page: ``over``, ``lead`` and ``made`` are texts at its top, the others are the template's."""
    blank = {"over": "", "lead": "", "made": ""}
    page = templates().get_template(template)
    return page.render({**blank, "title": title, "version": version or tacit.__version__, **parts})


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """A page about a training, and the values it was made from."""

    html: str
    result: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        return {"run": self.result["run"], "characters": len(self.html)}

    def save(self, path: Path | str) -> Path:
        """Write the page."""
        place = Path(path)
        place.write_text(self.html, encoding="utf-8")
        return place

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 40em; border: 0"
        return f'<iframe sandbox srcdoc="{escape(self.html)}" style="{style}"></iframe>'


def report(training: Training) -> Report:
    """Make the report of a training, as far as Python knows what ``tacit run`` does."""
    manifest, schema, record = training.manifest, training.schema, training.record
    scores = {"clients' own hold-outs": training.holdout} if training.holdout else {}
    if training.test is not None and training.trained is not None:
        scores = {"federated": training.trained.scores(training.test), **scores}
    main = next(iter(scores.values()), {})
    result: dict[str, Any] = {
        "run": manifest.run,
        "version": tacit.__version__,
        "method": manifest.components["method"]["name"],
        "protect": manifest.components["protection"]["name"],
        "data": ", ".join(schema.target_names),
        "seed": manifest.seed,
        "clients": record.clients,
        "features": schema.features,
        "classes": list(schema.classes),
        **{name: value for name, value in main.items() if isinstance(value, float)},
        "scores": scores,
        "ledger": training.ledger.summary(),
        "exposure": training.exposure.summary(),
        "rounds": [line for line in record.history.lines if "round" in line],
        "notes": record.notes,
        "model": training.outcome.digest,
    }
    with suppress(TacitError):  # a method written in a notebook cannot be assembled by its name
        parts = assemble(manifest)
        result["reveals"] = dict(parts.method.reveals)
        result["promises"] = {"name": result["protect"], **parts.protection.promises.as_dict()}
    return Report(render(result), result)
