"""Energy by the machine's own meters, where there are any."""

import pytest

from tacit.ledger.cost import Meter


def package(folder, number, energy, limit=None, parts=True):
    for name in (f"intel-rapl:{number}", *([f"intel-rapl:{number}:0"] if parts else [])):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "energy_uj").write_text(str(energy))
        if limit is not None:
            (folder / name / "max_energy_range_uj").write_text(str(limit))


def test_processors_are_added_and_their_parts_are_not(tmp_path):
    package(tmp_path, 0, 1_000_000)
    package(tmp_path, 1, 5_000_000)
    meter = Meter(tmp_path)
    package(tmp_path, 0, 1_000_000 + 3_600_000_000)
    package(tmp_path, 1, 5_000_000 + 1_800_000_000)
    assert meter.watt_hours() == pytest.approx(1.5)


def test_a_meter_that_starts_again_is_read_over_its_limit(tmp_path):
    package(tmp_path, 0, 9_000, limit=10_000)
    meter = Meter(tmp_path)
    package(tmp_path, 0, 500, limit=10_000)
    assert meter.watt_hours() == pytest.approx(1_500 / 3.6e9)
    (tmp_path / "intel-rapl:0/max_energy_range_uj").unlink()
    assert meter.watt_hours() is None


def test_without_meters_or_the_right_to_read_them_there_is_none(tmp_path):
    assert Meter(tmp_path).watt_hours() is None
    (tmp_path / "intel-rapl:0").mkdir()
    assert Meter(tmp_path).watt_hours() is None
