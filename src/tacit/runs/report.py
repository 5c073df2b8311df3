"""The report of a run: one HTML file for people, without scripts, network or outside fonts.

It reads the result in the run folder and nothing else, so that it can be made again from any run.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import tacit
from tacit.core.display import Shown
from tacit.core.errors import TacitError
from tacit.engines.assembly import assemble
from tacit.runs.page import context, costs, evidence, markup, scores
from tacit.runs.page.units import escape
from tacit.training import Training

SECTIONS = (
    scores.score_section,
    evidence.site_section,
    evidence.rounds_section,
    scores.class_section,
    evidence.curve_section,
    evidence.residual_section,
    evidence.feature_section,
    evidence.tree_section,
    costs.partition_section,
    costs.traffic_section,
    costs.time_section,
    context.exposure_section,
    context.notes_section,
    context.settings_section,
)
UNITS = "Bytes are decimal (1 kB is 1,000 bytes); times are CPU time unless they say wall clock."


def render(result: Mapping[str, Any]) -> str:
    """Write the report of a run; whatever ``result`` lacks is left out, and all that it holds is escaped."""
    made = [write(result) for write in SECTIONS]
    return fill(context.headline(result)[0], context.header(result), made, result.get("version"))


def fill(title: str, header: str, sections: Iterable[str], version: object = None) -> str:
    """Put finished parts into the page; the title is text, the others are HTML."""
    template = Template(files("tacit.runs.page").joinpath("template.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(f"Tacit · {title}"),
        header=header,
        main="\n".join(part for part in sections if part),
        footer=f"Made by Tacit {escape(version or tacit.__version__)}. {UNITS}",
    )


def titled_page(title: str, sections: Mapping[str, str], *, over: str = "", lead: str = "") -> str:
    """Write any other page: texts at its top, then sections by name, which are HTML."""
    header = context.page_top(escape(over), escape(title), escape(lead))
    return fill(title, header, [markup.section(*each) for each in sections.items()])


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
