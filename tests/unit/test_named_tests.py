"""Tests that docs/faults.md names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_is_there():
    named, file = 0, None
    for line in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").splitlines():
        if heading := re.search(r"\| Test \(`(tests/\S+\.py)`\)", line):
            file = heading[1]
        for word in re.findall(r"`([\w/.]*(?:::)?[\w:]*test_\w+(?:\[\w+\])?)`", line):
            *place, name = word.split("[")[0].split("::")
            path = place.pop(0) if place and place[0].endswith(".py") else file
            text = (ROOT / path).read_text(encoding="utf-8")
            assert f"def {name}(" in text, word
            assert all(f"class {part}" in text for part in place), word
            named += 1
    assert named > 20
