"""The report of a training in Python: shown in a notebook, or saved as the page that a run folder has."""

from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import tacit
from tacit.core.display import Shown
from tacit.core.errors import TacitError
from tacit.engines.assembly import assemble
from tacit.runs.report import render
from tacit.training import Training


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """A page about a training, and the values it was made from."""

    html: str
    result: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """Return of which run it is."""
        return {"run": self.result["run"], "characters": len(self.html)}

    def save(self, path: Path | str) -> Path:
        """Write the page."""
        place = Path(path)
        place.write_text(self.html, encoding="utf-8")
        return place

    def _repr_html_(self) -> str:
        page = escape(self.html, quote=True)
        return f'<iframe sandbox srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


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
