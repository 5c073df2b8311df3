"""The documentation in a browser: no page wider than a phone or a desk, no errors, search without a network.

Slow, since all pages are built first; run by ``make test-full`` where Chromium is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from tests.e2e.test_report_page import CHROMIUM, needs_chromium

pytestmark = [pytest.mark.slow, pytest.mark.draws, needs_chromium]
ROOT = Path(__file__).parents[2]
WIDTHS = (390, 1280)  # of a phone and of a desk
# A page holds all others in frames, one after the other, and writes down by how much each overflows.
RULER = """<!doctype html><title>ruler</title><pre id="found"></pre><script>
const pages = PAGES, widths = WIDTHS, found = {};
async function measure() {
  for (const width of widths) for (const page of pages) {
    const frame = document.createElement("iframe");
    frame.width = width; frame.height = 900; frame.src = page;
    document.body.append(frame);
    await new Promise((done) => { frame.onload = done; });
    const root = frame.contentDocument.documentElement;
    found[`${page} at ${width}`] = root.scrollWidth - width;
    frame.remove();
  }
  document.getElementById("found").textContent = JSON.stringify(found);
  document.title = "done";
}
measure();
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build all pages, warnings being errors."""
    out = tmp_path_factory.mktemp("site")
    words = ["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(ROOT / "docs"), str(out)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return out


def opened(address: str, home: Path, budget: int = 60_000) -> tuple[str, list[str]]:
    """Return a page as it stands once its scripts are done, and what the console said."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += ["--enable-logging=stderr", "--allow-file-access-from-files", f"--user-data-dir={home}"]
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--virtual-time-budget={budget}", "--dump-dom"]
    done = subprocess.run(
        [str(CHROMIUM), *flags, address], capture_output=True, text=True, timeout=600, check=True
    )
    return done.stdout, re.findall(r"CONSOLE[:(].*", done.stderr)


def test_no_page_is_wider_than_the_screen_or_has_errors(site: Path, tmp_path: Path) -> None:
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    assert {"index.html", "limits.html", "decisions.html", "quickstart.html"} <= {*pages}
    text = RULER.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(WIDTHS))
    (site / "ruler.html").write_text(text, encoding="utf-8")
    shown, said = opened((site / "ruler.html").as_uri(), tmp_path / "home")
    assert said == []
    measured = json.loads(unescape(re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)[1]))  # type: ignore[index]
    assert len(measured) == len(pages) * len(WIDTHS)
    assert {page: over for page, over in measured.items() if over > 0} == {}


def test_a_page_that_is_too_wide_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "wide.html").write_text("<!doctype html><body><div style='width:2000px'>x</div>")
    text = RULER.replace("PAGES", '["wide.html"]').replace("WIDTHS", json.dumps(WIDTHS))
    (tmp_path / "ruler.html").write_text(text, encoding="utf-8")
    shown, _ = opened((tmp_path / "ruler.html").as_uri(), tmp_path / "home")
    measured = json.loads(unescape(re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)[1]))  # type: ignore[index]
    assert min(measured.values()) > 700


def test_search_finds_pages_without_a_network(site: Path, tmp_path: Path) -> None:
    shown, said = opened(f"{(site / 'search.html').as_uri()}?q=committee", tmp_path / "home")
    assert said == []
    found = re.findall(r'<a href="([^"#]+)[^"]*"[^>]*>', shown[shown.index("search-results") :])
    assert "committee.html" in {address.split("?")[0] for address in found}


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="https?:[^"]*"', text), page
