"""A site's policy: which runs it takes part in, whoever asks, by ``[accept]`` in ``site.toml``."""

import json
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from tacit.core.component import list_options
from tacit.core.errors import ConfigError, nearest
from tacit.core.manifest import STANDS, Components, Manifest
from tacit.core.protection import Protection
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS

IDENTITY = 64  # hexadecimal digits of an identity
HIDDEN = {"protect_layers": "all", "expose_weights": False}  # settings of methods that else show a part
WITHSTANDS = {"active": True, "corrupt_share": 0.05}  # the least of settings of protections, against lies


@dataclass(frozen=True)
class Policy:
    """What a site accepts; the keys of ``[accept]`` in ``site.toml``.

    Parameters
    ----------
    methods : tuple of str, optional
        Methods that may be asked for. Left out: all that are installed under a name; ``module:Class`` has to
        be named here.
    modes : tuple of str
        Modes that may be asked for, of methods that have them. In others than ``sealed`` each client sends
        values in the clear.
    protections : tuple of str, optional
        Protections under which the site takes part; for ``noised`` the inner one must be named, too. Left
        out: all installed that hide a single client's contribution, so not ``plain``. Unless that is named,
        methods must leave no part in the clear either (``protect_layers``, ``expose_weights``). Whatever is
        named, ``active``, ``neighbours`` and ``corrupt_share`` must not withstand less than by default.
    min_clients : int
        Fewest contributions over which a run may open a total.
    rows : int
        Fewest rows of its own with which the site takes part.
    min_count : int
        Least ``min_count`` of a run: how often a class or category must occur in the whole federation.
    standing : bool
        Whether the site takes part in standing federations: their totals open again and again, whenever
        enough sites have come, brought more rows or gone. Each time it brings at least ``rows`` rows.
    epsilon : float, optional
        Largest epsilon that one run may cost, by noise that this site adds itself. With a limit, runs without
        such noise are refused. Left out: no limit.
    epsilon_total : float, optional
        Largest epsilon that all runs together may cost. Left out: no limit.
    name_scores : bool
        Whether the model's score on rows that this site keeps aside may be told under its name. Else it is
        only counted among those of all sites.
    operators : tuple of str
        Identities that may ask, beside the coordinator of ``roster.toml``.
    """

    methods: tuple[str, ...] | None = None
    modes: tuple[str, ...] = ("sealed",)
    protections: tuple[str, ...] | None = None
    min_clients: int = 3
    rows: int = 10
    min_count: int = 5
    standing: bool = False
    epsilon: float | None = None
    epsilon_total: float | None = None
    name_scores: bool = False
    operators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("min_clients", "rows", "min_count"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"[accept] {name} is {value}: give a whole number of at least 1")
        for name in ("epsilon", "epsilon_total"):
            if (limit := getattr(self, name)) is not None and not limit > 0:
                raise ConfigError(f"[accept] {name} is {limit}: give a number above 0, or leave it out")
        for kind, known, named in (
            ("methods", METHODS, self.methods),
            ("protections", PROTECTIONS, self.protections),
        ):
            for word in named or ():
                if ":" not in word and word not in known:  # a class without a name has its module before it
                    raise ConfigError(f"[accept] {kind} names '{word}': {nearest(word, known)}")
        for word in self.operators:
            if len(word) != IDENTITY or set(word) - set("0123456789abcdef"):
                raise ConfigError(
                    f"[accept] operators names '{word}': give identities as `tacit site join --json` does"
                )

    @property
    def limits_epsilon(self) -> bool:
        """Whether runs must add noise, and only so much."""
        return self.epsilon is not None or self.epsilon_total is not None

    def check_names(self, site: str, manifest: Manifest) -> None:
        """Refuse methods and protections by name: what is not accepted is not even imported."""
        method, protection = (manifest.components[kind] for kind in ("method", "protection"))
        inner = [str(protection["config"]["inner"])] if "inner" in protection["config"] else []
        for key, accepted, known, names in (
            ("methods", self.methods, METHODS, [method["name"]]),
            ("protections", self.protections, PROTECTIONS, [protection["name"], *inner]),
        ):
            for name in names:
                _check_word(site, key, name, known if accepted is None and ":" in name else accepted)

    def check(self, site: str, manifest: Manifest, components: Components) -> None:
        """Refuse a run that the site's owner does not accept, beside its names (:meth:`check_names`)."""
        config = components.method.config()
        if (mode := config.get("mode")) is not None:
            _check_word(site, "modes", str(mode), self.modes)
        for name, hidden in HIDDEN.items():
            if config.get(name, hidden) != hidden and "plain" not in (self.protections or ()):
                raise ConfigError(
                    f"{site} does not accept {name} = {config[name]!r}, by which a part of its contribution "
                    f"is seen: set it to {hidden!r}, or let its owner name plain in [accept] protections"
                )
        self._check_protection(site, components.protection)
        if STANDS in manifest.declared:
            self._check_standing(site, manifest, components)
        for key in ("min_clients", "min_count"):
            if (asked := getattr(manifest, key)) < (least := getattr(self, key)):
                raise _refused(site, key, asked, f"at least {least}")

    def _check_standing(self, site: str, manifest: Manifest, components: Components) -> None:
        """Refuse a standing federation that the owner did not allow, or whose totals no site could judge."""
        if not self.standing:
            raise ConfigError(
                f"{site} takes part in no standing federation: train without it, or let its owner write "
                "standing = true under [accept] in site.toml"
            )
        if not manifest.stands:
            return
        if components.method.standing is None or not components.protection.stands_at_sites:
            raise ConfigError(
                f"{site} opens standing totals itself, and compares them: {components.protection.name} lets "
                "the coordinator open or choose them. Protect with bfv or ckks, and learn from a single sum"
            )
        if manifest.experiment or manifest.declared.get("holdout", 0.0):
            raise ConfigError(f"{site} brings all its rows to a standing federation: keep none aside")

    def _check_protection(self, site: str, protection: Protection) -> None:
        """Refuse a protection that shows contributions, or withstands less than by default."""
        if self.protections is None and protection.promises.single:
            raise ConfigError(
                f"{site} does not accept protection {protection.registered_name()}, under which its "
                "contribution is seen: choose one that hides it, or name this one in [accept] protections"
            )
        within: Protection | None = protection
        while within is not None:
            config = within.config()
            weak = [name for name, least in WITHSTANDS.items() if config.get(name, least) < least]
            weak += ["neighbours"] * (config.get("neighbours") is not None)
            if weak:
                raise ConfigError(
                    f"{site} does not accept {weak[0]} = {config[weak[0]]!r}: a coordinator that lies could "
                    "open totals over few clients. Leave it as it is"
                )
            within = within.inner_protection

    def check_rows(self, site: str, rows: int) -> None:
        """Refuse to take part with few rows."""
        if rows < self.rows:
            raise ConfigError(
                f"{site} has fewer than the {self.rows} rows with which it takes part: bring more, or lower "
                "[accept] rows",
                private=f"it has {rows}",
            )

    def check_epsilon(self, site: str, components: Components, spent: float, scores: bool) -> None:
        """Refuse a run that costs too much, after ``spent`` in others, or shows ``scores`` without noise."""
        if not self.limits_epsilon:
            return
        method, protection, preparation = components
        costs = [part.own_epsilon for part in (method, protection) if isfinite(part.own_epsilon)]
        if not costs:
            raise ConfigError(
                f"{site} limits epsilon, and this run adds no noise at its clients: set example_noise, or "
                "protect by noised with where = 'distributed'"
            )
        if not isfinite(protection.own_epsilon) and (scores or not preparation.is_needless_for(method)):
            raise ConfigError(
                f"{site} limits epsilon, and the sums of this run's preparation and of scores on rows kept "
                "aside bear no noise: set scale = 'none', missing = 'refuse' and holdout = 0"
            )
        cost = sum(costs)
        if self.epsilon is not None and cost > self.epsilon:
            raise _refused(site, "epsilon", f"{cost:.4g}", f"at most {self.epsilon:g}")
        if self.epsilon_total is not None and spent + cost > self.epsilon_total:
            raise ConfigError(
                f"{site} accepts an epsilon of {self.epsilon_total:g} over all runs, {spent:.4g} is spent, "
                f"and this run may cost {cost:.4g}: ask for less, or raise [accept] epsilon_total there"
            )

    def to_toml(self) -> str:
        """Write ``[accept]`` with a comment for each key; what has no value is commented out."""
        lines = ["[accept]"]
        for option in list_options(Policy):
            text = option.doc.replace("``", "`")
            lines += textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ")
            value, off = getattr(self, option.name), ""
            if value is None:
                value, off = [] if option.type.startswith("tuple") else 1.0, "#"
            lines.append(f"{off}{option.name} = {json.dumps(value)}")  # of such values JSON is TOML
        return "\n".join(lines) + "\n"


def _check_word(site: str, key: str, word: str, accepted: Iterable[str] | None) -> None:
    if accepted is not None and word not in (known := tuple(accepted)):
        raise _refused(site, key, word, ", ".join(known) or "none")


def _refused(site: str, key: str, value: object, limit: str) -> ConfigError:
    return ConfigError(
        f"{site} does not accept {key} = {value}, but {limit}: ask for that, or let its owner change "
        f"[accept] {key} in site.toml"
    )
