"""Put faults into the code, one at a time, and say which of them the tests notice.

``python -m tests.mutants`` tries the first faults of every room, in an order that is always the same;
``--count`` says how many. ``judged.toml`` names the survivors that change nothing anyone could notice, each
with the reason: these do not count. The exit code is 1 if fewer than nine in ten of the others are noticed in
a room.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

from tests.mutants.campaign import ROOMS, SOURCES, Campaign, mutants_of
from tests.mutants.faults import FAULTS

ENOUGH = 0.9


def main() -> int:
    """Run the campaign and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--room", action="append", choices=list(ROOMS), help="only this one (repeatable)")
    parser.add_argument("--count", type=int, default=60, help="faults of a room by rule; 0 for all")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    judged = tomllib.loads((Path(__file__).parent / "judged.toml").read_text())
    campaign, table = Campaign(options.workers), []
    for room in options.room or ROOMS:
        by_hand = [fault.mutant() for fault in FAULTS if fault.room == room]
        tried = by_hand + mutants_of(room, options.count or None)
        killed, equivalent, survivors = 0, 0, []
        for mutant, outcome in campaign.run(tried):
            if outcome.startswith("killed"):
                killed += 1
            elif mutant.id in judged:
                equivalent += 1
            else:
                survivors.append(mutant)
                where = f"{SOURCES}/{mutant.path}:{mutant.line}"
                print(f"{where} {mutant.id}\n    {mutant.kind}\n    {outcome}", flush=True)
        share = killed / max(1, len(tried) - equivalent)
        table.append((room, len(tried), killed, equivalent, len(survivors), share))
        print(f"{room}: {killed} of {len(tried) - equivalent} noticed, {share:.0%}", flush=True)
    print("\n| Room | Faults | Noticed | Equivalent | Survived | Share |\n|---|---|---|---|---|---|")
    for room, tried_count, killed, equivalent, left, share in table:
        print(f"| {room} | {tried_count} | {killed} | {equivalent} | {left} | {share:.1%} |")
    return int(any(row[-1] < ENOUGH for row in table))


if __name__ == "__main__":
    raise SystemExit(main())
