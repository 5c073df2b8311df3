"""Faults that no rule makes, but that an author could: each is a text that becomes another.

A fault whose text is no longer there stops the campaign: write it anew for the code as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import Mutant

SOURCES = Path(__file__).parents[2] / "src/tacit"


@dataclass(frozen=True)
class Fault:
    """One fault by hand, in a room under whose name it is reported."""

    room: str
    path: str
    before: str
    after: str
    meaning: str

    def mutant(self) -> Mutant:
        """Return where the fault lies in the source as it is."""
        source = (SOURCES / self.path).read_text()
        if (count := source.count(self.before)) != 1:
            raise LookupError(f"{self.path} has {count} times, not once: {self.before!r}")
        start = source.index(self.before)
        line = source.count("\n", 0, start) + 1
        stop = start + len(self.before)
        return Mutant(
            self.path, self.meaning.replace(" ", "_"), line, start, stop, self.before, self.after, "by hand"
        )


FAULTS = [
    Fault(
        "crypto",
        "crypto/paillier/keys.py",
        "return seal(self, self.randomiser, values, packing)",
        "return seal(self, (lambda once: lambda: once)(self.randomiser()), values, packing)",
        "one randomiser for a whole vector",
    ),
    Fault(
        "crypto",
        "crypto/channel.py",
        "nonce = os.urandom(NONCE)",
        "nonce = bytes(NONCE)",
        "a fixed nonce for sealed messages",
    ),
    Fault(
        "crypto",
        "crypto/channel.py",
        'return bound("place", run, str(number), step, sender, receiver)',
        'return bound("place", run, str(number), step)',
        "seals not bound to sender and receiver",
    ),
    Fault(
        "crypto",
        "crypto/channel.py",
        'found += (len(raw).to_bytes(4, "little"), raw)',
        "found += (raw,)",
        "names that run together",
    ),
    Fault(
        "crypto",
        "crypto/sharing.py",
        "field.random_elements((threshold - 1) * len(constant)).reshape(",
        "np.repeat(field.random_elements(threshold - 1), len(constant)).reshape(",
        "one polynomial for a whole vector",
    ),
    Fault(
        "standing",
        "engines/store.py",
        "nonce = os.urandom(NONCE)",
        "nonce = bytes(NONCE)",
        "a fixed nonce in the party store",
    ),
    Fault(
        "protections",
        "protections/masked/wire.py",
        "return hash_pieces(purpose, run, owner, number",
        "return hash_pieces(purpose, run, number",
        "a commitment not bound to its owner",
    ),
    Fault(
        "core",
        "core/snapshot.py",
        'if owner.state.get("schema") != party.state["schema"]:',
        "if False:",
        "schema not checked when a site goes on",
    ),
    Fault(
        "core",
        "core/contribution.py",
        "if not client.manifest_of(party).experiment:",
        "if False:",
        "a deployed site shows its replica",
    ),
    Fault(
        "scores",
        "models/scores.py",
        "seen = (support > 0) | (called > 0)",
        "seen = support > 0",
        "classes that are predicted but absent left out of the mean",
    ),
    Fault(
        "core",
        "core/differencing.py",
        "self._opened.setdefault(subject, []).append(clients)",
        "self._opened[subject] = [clients]",
        "only the last opening remembered",
    ),
    Fault(
        "core",
        "core/differencing.py",
        'return Subject("holdout"), scores',
        "return (scores,)",
        "counts of held-out rows compared with nothing",
    ),
    Fault(
        "core",
        "core/own_record.py",
        'party.state[f"{_prefix(subject)}{len(known)}"] = now',
        'party.state[f"{_prefix(subject)}0"] = now',
        "a client remembers only the last total that it opened",
    ),
    Fault(
        "core",
        "core/pending_sum.py",
        "        self._pieces.clear()\n",
        "",
        "visible pieces of a restarted sum folded twice",
    ),
    Fault(
        "core",
        "core/contribution.py",
        "if number < last or (number == last and among != before):",
        "if number < last:",
        "two totals of one sum disclosed",
    ),
    Fault(
        "core",
        "core/contribution.py",
        "if not mark.revealed or any(field.columns for field in layout.fields):",
        "if any(field.columns for field in layout.fields):",
        "a client discloses totals that are not for the coordinator",
    ),
    Fault(
        "core",
        "core/contribution.py",
        'if manifest.min_count > 1 and shared.get("min_count") != manifest.min_count:',
        'if manifest.min_count > 1 and "min_count" not in shared:',
        "another least count taken for the agreed one",
    ),
    Fault(
        "core",
        "core/claims.py",
        "if len(set(names)) < len(names):",
        "if False:",
        "one client twice on the roll",
    ),
    Fault(
        "crypto",
        "crypto/linear_tag.py",
        'return hmac.digest(self._key, bound(purpose, place), "sha256")',
        'return hmac.digest(self._key, bound(purpose), "sha256")',
        "weights and pads of tags the same in every sum",
    ),
    Fault(
        "crypto",
        "crypto/linear_tag.py",
        "often = np.ones(len(pads), np.uint64) if counts is None else counts",
        "often = np.ones(len(pads), np.uint64)",
        "pads of clients that are not in the total counted",
    ),
    Fault(
        "crypto",
        "crypto/masking.py",
        "return 1 if own < other else -1",
        "return 1",
        "masks of pairs that do not cancel",
    ),
    Fault(
        "protections",
        "protections/keys/proved_totals.py",
        "if older or sent.pop(FINGERPRINT, fingerprint) != fingerprint:",
        "if older:",
        "two vectors tagged under one pad",
    ),
    Fault(
        "protections",
        "protections/keys/proved_totals.py",
        "again, older = 0 < term.number == last, term.number < last",
        "again, older = False, term.number < last",
        "two ciphertexts of one vector tagged under one pad",
    ),
    Fault(
        "crypto",
        "crypto/seal/blob.py",
        "found = [np.concatenate([part, *(two[at] for two in second)]) for at, part in enumerate(found)]",
        "found = [np.concatenate([part, *(0 * two[at] for two in second)]) for at, part in enumerate(found)]",
        "tags that leave out the second polynomial of a ciphertext",
    ),
    Fault(
        "protections",
        "protections/keys/proved_totals.py",
        "return bound(run, what.contribution, number, str(summands), _text_of(layout), *agreed)",
        "return bound(run, number, str(summands), _text_of(layout), *agreed)",
        "tags not bound to the name of the contribution",
    ),
    Fault(
        "protections",
        "protections/masked/client.py",
        'if read_integer(ticket, "sum") <= state.get("mask/opened", 0):',
        "if False:",
        "a second upload to a sum that was opened",
    ),
    Fault(
        "protections",
        "protections/masked/client.py",
        'party.vault.pop(f"mask/held/{slot}").reveal()',
        'party.vault[f"mask/held/{slot}"].reveal()',
        "shares given twice",
    ),
    Fault(
        "protections",
        "protections/masked/rules.py",
        'return digest_names(list(alive)) if self.complete else b""',
        'return b""',
        "confirmations not bound to the list of survivors",
    ),
    Fault(
        "protections",
        "protections/masked/confirming.py",
        "mine, theirs = (first, second) if own < name else (second, first)",
        "mine = theirs = first",
        "one confirmation for both ways: a client's own opens its lock",
    ),
    Fault(
        "protections",
        "protections/secret_sharing/share_holder.py",
        "if len(set(dealers)) < len(dealers):",
        "if False:",
        "a dealer's shares added twice",
    ),
    Fault(
        "protections",
        "protections/secret_sharing/share_holder.py",
        'party.state["released"] = (share_round.number, share_round.lap)',
        "pass",
        "partial sums told twice",
    ),
    Fault(
        "protections",
        "protections/ring.py",
        'party.state["handed_over"] = lap.sum',
        "pass",
        "laps of a ring after its total was handed over",
    ),
    Fault(
        "protections",
        "protections/ring.py",
        'running, party.vault["blinding"] = paillier.blind(key, running)',
        'party.vault["blinding"] = paillier.blind(key, running)[1]',
        "the first term of a ring not blinded",
    ),
    Fault(
        "protections",
        "protections/noised/halves.py",
        "if number == last:",
        "if False:",
        "noise drawn anew when a sum starts again",
    ),
    Fault(
        "protections",
        "protections/noised/halves.py",
        "self.party.charge(Charge(self._settings.unit, multiplier, 1.0, delta, parts, announced))",
        "pass",
        "epsilon not charged",
    ),
    Fault(
        "protections",
        "protections/noised/grid.py",
        " + rows * 1.5 * sqrt(values)",
        "",
        "a row's rounding counted as a client's",
    ),
    Fault(
        "preparation",
        "data/noisy_scale.py",
        "np.where(present, np.clip(scaled, -1.0, 1.0), 0.0)",
        "np.where(present, scaled, 0.0)",
        "values beyond their bounds not cut, so that noise does not hide them",
    ),
    Fault(
        "standing",
        "standing/differencing.py",
        "if now in opened or not now:",
        "if now in opened[-1:] or not now:",
        "only the last opening taken for one that may open again",
    ),
    Fault(
        "standing",
        "standing/opening.py",
        "if few := find_exposed(opened, now, least):",
        "if few := find_exposed(opened[-1:], now, least):",
        "sums and differences with the last opening only",
    ),
    Fault(
        "standing",
        "standing/opening.py",
        "if (clients := clients_in(book)) < least:",
        "if (clients := len(book.contributions())) < least:",
        "contributions counted for clients",
    ),
    Fault(
        "preparation",
        "data/cells.py",
        "return (counts > 0) & (counts < self.least)",
        "return (counts > 0) & (counts < self.least - 1)",
        "a cell one row too small accepted",
    ),
    Fault(
        "preparation",
        "data/cells.py",
        "if not len(pool) or counts[pool].sum() >= self.least:",
        "if True:",
        "rare categories pooled though they are too few together",
    ),
]
