"""The formats in which the originals are published, read piece by piece into Arrow tables.

Every reader takes the downloaded files and yields tables in our convention: features first, then the
groups, then ``target``. The large ones (SUSY, HEPMASS, HIGGS) are streamed, so that memory stays bounded.
"""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.data.sources import read_sheet

Reader = Callable[[Sequence[Path]], Iterator[Any]]
# What the readers raise when a file is not what it should be.
DAMAGE = (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError, KeyError, IndexError)
_BLOCK = 16 << 20  # bytes of text that are parsed at a time

LEPTONS = ["lepton_1_pT", "lepton_1_eta", "lepton_1_phi", "lepton_2_pT", "lepton_2_eta", "lepton_2_phi"]
ENERGY = ["missing_energy_magnitude", "missing_energy_phi"]
SUSY = [*LEPTONS, *ENERGY, "MET_rel", "axial_MET", "M_R", "M_TR_2", "R", "MT2", "S_R", "M_Delta_R"]
SUSY += ["dPhi_r_b", "cos_theta_r1"]
JETS = [f"jet_{jet}_{what}" for jet in range(1, 5) for what in ("pt", "eta", "phi", "btag")]
MASSES = ["m_jj", "m_jjj", "m_lv", "m_jlv", "m_bb", "m_wbb", "m_wwbb"]
HIGGS = ["lepton_pT", "lepton_eta", "lepton_phi", *ENERGY, *JETS, *MASSES]
HEPMASS = [*(f"f{index}" for index in range(27)), "mass"]
CREDIT = ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"]
CREDIT += [f"PAY_{month}" for month in (0, 2, 3, 4, 5, 6)]
CREDIT += [f"{what}{month}" for what in ("BILL_AMT", "PAY_AMT") for month in range(1, 7)]
ADULT = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"]
ADULT += ["relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"]


def member(archive: Path | IO[bytes], name: str) -> IO[bytes]:
    """Open one file in a zip by the end of its path, or in a zip within the zip."""
    outer = zipfile.ZipFile(archive)
    found = [path for path in outer.namelist() if path == name or path.endswith(f"/{name}")]
    if found:
        return outer.open(found[0])
    for path in outer.namelist():
        if path.endswith(".zip"):
            return member(io.BytesIO(outer.read(path)), name)
    raise DataError(f"{archive} holds no {name}: its publisher has changed it; get the data by hand")


def _table(columns: dict[str, Any]) -> Any:
    """Make an Arrow table with text as dictionaries and numbers as small as they go without loss.

    Whole numbers take the smallest integer type, others float32, as in the other files.
    """
    import pyarrow as pa

    arrays = {}
    for name, values in columns.items():
        column = np.asarray(values)
        if column.dtype.kind in "US":
            arrays[name] = pa.array(column.tolist()).dictionary_encode()
            continue
        if (column == np.trunc(column)).all():
            low, high = int(column.min()), int(column.max())
            small = np.min_scalar_type(high if low >= 0 else min(low, -high - 1))
            arrays[name] = pa.array(column.astype(small))
        else:
            arrays[name] = pa.array(column.astype(np.float32))
    return pa.table(arrays)


def _rows(
    file: IO[bytes], separator: str | None, skip: Callable[[str], bool] = lambda line: False
) -> list[list[str]]:
    lines = (line.strip() for line in io.TextIOWrapper(file, encoding="utf-8"))
    return [[cell.strip() for cell in line.split(separator)] for line in lines if line and not skip(line)]


def _columns(names: Sequence[str], rows: list[list[str]], text: Collection[str] = ()) -> dict[str, Any]:
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise DataError(f"row {number} has {len(row)} cells, expected {len(names)}: fetch it again")
    found = {name: np.array(cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)}
    return {name: cells if name in text else cells.astype(np.float64) for name, cells in found.items()}


def dry_bean(files: Sequence[Path]) -> Iterator[Any]:
    """Read the .xlsx in the zip: its .arff is rounded to fewer digits than float32 holds."""
    header, *rows = read_sheet(member(files[0], "Dry_Bean_Dataset.xlsx"), "dry_bean")[0]
    cells = [[str(cell) for cell in row] for row in rows]
    yield _table(_columns([*header[:-1], "target"], cells, ["target"]))


def skin_segmentation(files: Sequence[Path]) -> Iterator[Any]:
    """Read tab-separated B, G, R and label."""
    yield _table(_columns(["B", "G", "R", "target"], _rows(member(files[0], "Skin_NonSkin.txt"), None)))


def obesity_levels(files: Sequence[Path]) -> Iterator[Any]:
    """Read a CSV with a header; the last column is the level."""
    header, *rows = _rows(member(files[0], "ObesityDataSet_raw_and_data_sinthetic.csv"), ",")
    numbers = {"Age", "Height", "Weight", "FCVC", "NCP", "CH2O", "FAF", "TUE"}
    yield _table(_columns([*header[:-1], "target"], rows, {*header, "target"} - numbers))


def optdigits(files: Sequence[Path]) -> Iterator[Any]:
    """Read two CSV files without a header: train and test."""
    names = [*(f"px{index}" for index in range(64)), "target"]
    parts = [_rows(member(files[0], f"optdigits.{end}"), ",") for end in ("tra", "tes")]
    yield _table(_with_split(_columns(names, parts[0] + parts[1]), len(parts[0])))


def adult(files: Sequence[Path]) -> Iterator[Any]:
    """Read two CSV files without a header; the test file starts with a remark, its labels end with a dot."""
    parts = [
        _rows(member(files[0], f"adult.{end}"), ",", skip=lambda line: line.startswith("|"))
        for end in ("data", "test")
    ]
    numbers = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
    columns = _columns([*ADULT, "target"], parts[0] + parts[1], {*ADULT, "target"} - numbers)
    columns["target"] = np.char.rstrip(columns["target"], ".")
    yield _table(_with_split(columns, len(parts[0])))


def credit_default(files: Sequence[Path]) -> Iterator[Any]:
    """Read an .arff of numbers; a leading column of identifiers is left out."""
    rows = _rows(io.BytesIO(files[0].read_bytes()), ",", skip=lambda line: line.startswith(("@", "%")))
    names = [*CREDIT, "target"]
    yield _table(_columns(names, [row[-len(names) :] for row in rows]))


def _with_split(columns: dict[str, Any], train: int) -> dict[str, Any]:
    target = columns.pop("target")
    split = np.where(np.arange(len(target)) < train, "train", "test")
    return {**columns, "split": split, "target": target}


def miniboone(files: Sequence[Path]) -> Iterator[Any]:
    """Read numbers in columns; the first line says how many rows are signal and how many background."""
    with member(files[0], "MiniBooNE_PID.txt") as file:
        signal, background = (int(word) for word in file.readline().split())
        values = _matrix(file)
    if len(values) != signal + background:
        raise DataError(
            f"MiniBooNE has {len(values)} rows, its first line says {signal + background}: fetch it again"
        )
    columns: dict[str, Any] = {f"f{index}": column for index, column in enumerate(values.T)}
    yield _table({**columns, "target": (np.arange(len(values)) < signal).astype(np.uint8)})


def _matrix(file: IO[bytes]) -> NDArray[np.float32]:
    return np.loadtxt(file, dtype=np.float32, ndmin=2)


def har(files: Sequence[Path]) -> Iterator[Any]:
    """Read text matrices of train and test, with names, activities and subjects in files of their own."""
    listed = [row[1] for row in _rows(member(files[0], "features.txt"), None)]
    # Of three columns of one name the axes are meant.
    axes = [listed[:place].count(name) for place, name in enumerate(listed)]
    names = [
        f"{name}-{'XYZ'[axis]}" if listed.count(name) > 1 else name
        for name, axis in zip(listed, axes, strict=True)
    ]
    activities = dict(_rows(member(files[0], "activity_labels.txt"), None))
    parts = [_matrix(member(files[0], f"X_{part}.txt")) for part in ("train", "test")]
    subjects = [_matrix(member(files[0], f"subject_{part}.txt")) for part in ("train", "test")]
    labels = [row[0] for part in ("train", "test") for row in _rows(member(files[0], f"y_{part}.txt"), None)]
    columns: dict[str, Any] = dict(zip(names, np.concatenate(parts).T, strict=True))
    columns["subject"] = np.concatenate(subjects)[:, 0]
    columns["target"] = np.array([activities[label] for label in labels])
    yield _table(_with_split(columns, len(parts[0])))


def hepmass(files: Sequence[Path]) -> Iterator[Any]:
    """Read two large CSV files with a header, label first: train and test at all masses."""
    for part in ("train", "test"):
        yield from _stream(member(files[0], f"all_{part}.csv.gz"), HEPMASS, header=True, split=part)


def _stream(file: IO[bytes], names: list[str], header: bool = False, split: str = "") -> Iterator[Any]:
    """Read a large CSV, label first."""
    import pyarrow as pa
    from pyarrow import csv

    reading = csv.ReadOptions(
        block_size=_BLOCK, column_names=["target", *names], skip_rows=int(header), use_threads=False
    )
    types = csv.ConvertOptions(column_types=dict.fromkeys(["target", *names], pa.float32()))
    with gzip.open(file) as text:
        for batch in csv.open_csv(text, read_options=reading, convert_options=types):
            columns = {name: batch.column(name) for name in names}
            if split:
                codes = pa.array(np.zeros(batch.num_rows, dtype=np.int8))
                columns["split"] = pa.DictionaryArray.from_arrays(codes, [split])
            yield pa.table({**columns, "target": batch.column("target").cast(pa.uint8())})


def fashion_mnist(files: Sequence[Path]) -> Iterator[Any]:
    """Read four idx files: images and labels of train and test."""
    images = np.concatenate([_idx(files[0]), _idx(files[2])])
    columns: dict[str, Any] = {
        f"p{index}": pixels for index, pixels in enumerate(images.reshape(len(images), -1).T)
    }
    labels = [_idx(files[1]), _idx(files[3])]
    yield _table(_with_split({**columns, "target": np.concatenate(labels)}, len(labels[0])))


def _idx(path: Path) -> NDArray[np.uint8]:
    """Read bytes after a header of two zeros, the type, the number of dimensions and the dimensions."""
    with gzip.open(path) as file:
        data = file.read()
    shape = [int.from_bytes(data[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(data[3])]
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


READERS: dict[str, Reader] = {
    reader.__name__: reader
    for reader in (
        *(dry_bean, skin_segmentation, obesity_levels, optdigits, adult, credit_default),
        *(miniboone, har, hepmass, fashion_mnist),
    )
}
READERS["susy"] = lambda files: _stream(member(files[0], "SUSY.csv.gz"), SUSY)
READERS["higgs"] = lambda files: _stream(member(files[0], "HIGGS.csv.gz"), HIGGS)
