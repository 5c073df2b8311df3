"""Originals in their published formats, made small, served here, and parsed into our convention."""

from __future__ import annotations

import functools
import gzip
import io
import os
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow.parquet as pq
import pytest

from reproductions._formats import ADULT, CREDIT, HEPMASS, HIGGS, READERS, SUSY
from reproductions._originals import fetch_original, prepare
from tacit.core.errors import DataError
from tacit.data import files
from tacit.data.arrow import to_table
from tacit.data.catalog import DataSet, catalog, content_digest
from tacit.data.files import load
from tacit.data.inspection import check
from tacit.data.sources import read_parquet
from tacit.data.table import Table
from tests.quick import representatives

RNG = np.random.default_rng(1)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("site")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def packed(**members: str | bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def served(site: tuple[Path, str], name: str, *contents: bytes, **facts: Any) -> DataSet:
    """The catalogue's entry with its addresses on this machine and the size of a test."""
    urls = []
    for index, content in enumerate(contents):
        (site[0] / f"{name}{index}").write_bytes(content)
        urls.append(f"{site[1]}/{name}{index}")
    return replace(catalog()[name], urls=tuple(urls), archives=(), content="", **facts)


def read(path: Path) -> Table:
    return to_table(read_parquet(path), path.stem)


def text(rows: np.ndarray, separator: str = ",") -> str:
    return "".join(separator.join(str(cell) for cell in row) + "\n" for row in rows.tolist())


def test_every_downloadable_set_has_a_reader() -> None:
    assert {facts.original for facts in catalog().values() if facts.urls} == set(READERS)
    assert all(len(facts.archives) in (0, len(facts.urls)) for facts in catalog().values())
    assert [len(names) for names in (SUSY, HIGGS, HEPMASS, CREDIT, ADULT)] == [18, 28, 28, 23, 14]


def test_miniboone(site: tuple[Path, str], tmp_path: Path) -> None:
    values = RNG.normal(size=(5, 50)).round(4)
    original = packed(**{"MiniBooNE_PID.txt": "     2     3\n" + text(values, "   ")})
    path = prepare(served(site, "miniboone", original, rows=5, classes={"0": 3, "1": 2}), tmp_path)
    table = read(path)
    np.testing.assert_array_equal(table.values, values.astype(np.float32))
    assert (table.target.tolist(), table.columns[49].name) == ([1, 1, 0, 0, 0], "f49")
    # Only the parquet and the pins stay: the download itself is gone.
    assert sorted(found.name for found in tmp_path.rglob("*") if found.is_file()) == [
        "miniboone.parquet",
        "miniboone.parquet.sha256",
        "miniboone0.sha256",
    ]
    assert prepare(served(site, "miniboone", b"never read", rows=5), tmp_path) == path


@pytest.mark.parametrize(
    ("name", "inner", "names"), [("susy", "SUSY.csv.gz", SUSY), ("higgs", "HIGGS.csv.gz", HIGGS)]
)
def test_a_gzip_within_a_zip(
    site: tuple[Path, str], tmp_path: Path, name: str, inner: str, names: list[str]
) -> None:
    labels = np.array([1, 0, 1])
    values = RNG.normal(size=(3, len(names))).astype(np.float32)
    rows = "".join(
        ",".join(f"{cell:.18e}" for cell in [label, *row]) + "\n"
        for label, row in zip(labels, values, strict=True)
    )
    original = packed(**{inner: gzip.compress(rows.encode())})
    table = read(prepare(served(site, name, original, rows=3, classes={"0": 1, "1": 2}), tmp_path))
    np.testing.assert_array_equal(table.values, values)
    assert [column.name for column in table.columns] == names
    assert (table.target.tolist(), table.classes) == ([1, 0, 1], (0, 1))


def test_hepmass_has_two_parts(site: tuple[Path, str], tmp_path: Path) -> None:
    header = ",".join(["# label", *HEPMASS]) + "\n"
    parts = {
        f"hepmass/all_{part}.csv.gz": gzip.compress((header + text(np.full((rows, 29), 1.0))).encode())
        for part, rows in (("train", 4), ("test", 2))
    }
    table = read(prepare(served(site, "hepmass", packed(**parts), rows=6), tmp_path))
    assert table.groups["split"].tolist() == ["train"] * 4 + ["test"] * 2
    assert table.values.shape == (6, 28)


def test_large_tables_are_streamed(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reproductions._formats._BLOCK", 1 << 16)
    original = packed(**{"SUSY.csv.gz": gzip.compress(text(np.tile(np.arange(19) % 2, (5000, 1))).encode())})
    path = prepare(served(site, "susy", original, rows=5000, classes={"0": 5000}), tmp_path)
    assert pq.ParquetFile(path).num_row_groups > 1


def test_har_lies_in_a_zip_within_a_zip(site: tuple[Path, str], tmp_path: Path) -> None:
    inner = {"UCI HAR Dataset/features.txt": "1 mean()-X\n2 bandsEnergy()-1,8\n3 bandsEnergy()-1,8\n"}
    inner["UCI HAR Dataset/activity_labels.txt"] = "1 WALKING\n2 SITTING\n"
    for part, labels in (("train", "1\n2\n"), ("test", "2\n")):
        inner[f"UCI HAR Dataset/{part}/X_{part}.txt"] = "  1.0 -2.5e-001 3.0\n" * len(labels.split())
        inner[f"UCI HAR Dataset/{part}/y_{part}.txt"] = labels
        inner[f"UCI HAR Dataset/{part}/subject_{part}.txt"] = "30\n" * len(labels.split())
    original = packed(**{"UCI HAR Dataset.zip": packed(**inner), "UCI HAR Dataset.names": ""})
    facts = served(site, "har", original, rows=3, features=3, classes={"WALKING": 1, "SITTING": 2})
    table = read(prepare(facts, tmp_path))
    assert [column.name for column in table.columns] == [
        "mean()-X",
        "bandsEnergy()-1,8-X",
        "bandsEnergy()-1,8-Y",
    ]
    assert (table.groups["split"].tolist(), table.groups["subject"].tolist()) == (
        ["train", "train", "test"],
        [30] * 3,
    )
    assert [table.classes[code] for code in table.target] == ["WALKING", "SITTING", "SITTING"]


def test_fashion_mnist_is_four_idx_files(site: tuple[Path, str], tmp_path: Path) -> None:
    def idx(array: np.ndarray) -> bytes:
        head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
        return gzip.compress(head + array.astype(np.uint8).tobytes())

    train, test = RNG.integers(256, size=(3, 28, 28)), RNG.integers(256, size=(2, 28, 28))
    contents = [idx(train), idx(np.array([0, 1, 2])), idx(test), idx(np.array([0, 1]))]
    facts = served(site, "fashion_mnist", *contents, rows=5, classes={"0": 2, "1": 2, "2": 1})
    table = read(prepare(facts, tmp_path))
    assert table.values.dtype == np.uint8
    np.testing.assert_array_equal(table.values, np.concatenate([train, test]).reshape(5, 784))
    assert table.groups["split"].tolist() == ["train"] * 3 + ["test"] * 2


def as_original(table: Table) -> bytes:
    """Write a table of ours back in the format in which it was published."""
    labels = [table.classes[code] for code in table.target]
    cells = [
        [
            column.categories[int(cell)] if column.kind == "category" else str(cell)
            for cell in table.values[:, index]
        ]
        for index, column in enumerate(table.columns)
    ]
    names = [column.name for column in table.columns]
    rows = [[*row, str(label)] for row, label in zip(zip(*cells, strict=True), labels, strict=True)]
    if table.name == "skin_segmentation":
        return packed(**{"Skin_NonSkin.txt": "".join("\t".join(row) + "\n" for row in rows)})
    if table.name == "obesity_levels":
        lines = "".join(",".join(row) + "\n" for row in [[*names, "NObeyesdad"], *rows])
        return packed(**{"ObesityDataSet_raw_and_data_sinthetic.csv": lines})
    if table.name == "credit_default":
        head = (
            "@RELATION x\n" + "".join(f"@ATTRIBUTE {word} REAL\n" for word in ["id", *names, "y"]) + "@DATA\n"
        )
        return (head + "".join(f"{index}," + ",".join(row) + "\n" for index, row in enumerate(rows))).encode()
    if table.name == "dry_bean":
        return packed(**{"DryBeanDataset/Dry_Bean_Dataset.xlsx": workbook([[*names, "Class"], *rows])})
    train = int((table.groups["split"] == "train").sum())
    if table.name == "optdigits":
        tra, tes = ("".join(",".join(row) + "\n" for row in part) for part in (rows[:train], rows[train:]))
        return packed(**{"optdigits.tra": tra, "optdigits.tes": tes, "readme.txt": ""})
    first = "".join(", ".join(row) + "\n" for row in rows[:train])
    second = "|1x3 Cross validator\n" + "".join(", ".join(row) + ".\n" for row in rows[train:])
    return packed(**{"adult.data": first + "\n", "adult.test": second + "\n"})


def workbook(rows: list[list[str]]) -> bytes:
    book, file = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append([float(cell) if cell[0].isdigit() else cell for cell in row])
    book.save(file)
    return file.getvalue()


@pytest.mark.parametrize(
    "name",
    representatives(
        ["dry_bean", "skin_segmentation", "obesity_levels", "optdigits", "credit_default", "adult"],
        *("obesity_levels", "optdigits"),
    ),
)
def test_a_fresh_download_has_the_content_of_the_catalogue(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if not Path(os.environ.get("TACIT_DATA", "nowhere"), f"{name}.parquet").is_file():
        pytest.skip(f"TACIT_DATA has no {name}.parquet")
    table = load(name)
    facts = replace(served(site, name, as_original(table)), content=catalog()[name].content)
    path = prepare(facts, tmp_path)
    assert content_digest(read(path)) == catalog()[name].content
    # Another writing of the same rows is recognised by what it says.
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    found = check(name)
    assert (found["ok"], found["digest"]) == (True, "same content")


@pytest.fixture
def small(site: tuple[Path, str]) -> DataSet:
    original = packed(**{"Skin_NonSkin.txt": "1\t2\t3\t1\n4\t5\t6\t2\n"})
    return served(site, "skin_segmentation", original, rows=2, classes={"1": 1, "2": 1})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": 3}, "has 2 rows, the published data have 3"),
        ({"features": 4}, "has 3 features"),
        ({"classes": {"1": 2}}, "has {'1': 1, '2': 1} classes"),
        ({"content": "0" * 64}, "published size but other values"),
    ],
)
def test_what_differs_from_the_published_data_is_refused(
    small: DataSet, tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        prepare(replace(small, **wrong), tmp_path)
    # The download is kept for a look at it, but neither trusted nor put in place.
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["skin_segmentation0"]


def test_the_first_download_is_pinned(small: DataSet, site: tuple[Path, str], tmp_path: Path) -> None:
    path = prepare(small, tmp_path)
    path.unlink()
    assert prepare(small, tmp_path) == path
    path.unlink()
    changed = packed(**{"Skin_NonSkin.txt": "1\t2\t3\t1\n4\t5\t7\t2\n"})
    with pytest.raises(DataError, match="changed at its source"):
        prepare(served(site, "skin_segmentation", changed, rows=2, classes={"1": 1, "2": 1}), tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"not a zip", packed(**{"other.txt": ""}), packed(**{"Skin_NonSkin.txt": "1\t2\n3\t4\t5\tx\n"})],
)
def test_another_format_is_refused(site: tuple[Path, str], tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match=r"get the data by hand|fetch it again"):
        prepare(served(site, "skin_segmentation", content, rows=2), tmp_path)
    assert not list(tmp_path.glob("*.parquet*"))


def test_fetch_original_fills_the_cache(
    small: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reproductions._originals.catalog", lambda: {"skin_segmentation": small})
    monkeypatch.setattr("reproductions._originals.cache_folder", lambda: tmp_path)
    calls: list[tuple[int, int | None]] = []
    path = fetch_original("skin_segmentation", progress=lambda *call: calls.append(call))
    assert calls and path == tmp_path / "skin_segmentation.parquet"
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    assert load("skin_segmentation").rows == 2
