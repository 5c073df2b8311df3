"""CKKS: what comes back, how exact it is, and everything that is refused."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tacit.core.errors import ConfigError, MessageError, ProtectionError, SecretError
from tacit.core.secret import Secret
from tacit.crypto.ckks import PARAMETERS, Adder, Cipher, ParameterSet, Product, make_keys, rotations_for
from tacit.crypto.ckks.packing import SUM, gathering
from tacit.crypto.ckks.parameters import ring_of
from tacit.crypto.seal import residues as seal_residues
from tacit.crypto.seal.blob import CHECKSUM_BYTES, all_residues, checksum, read

HEADER = 96
SETS = list(PARAMETERS.values())
KEYS = {name: make_keys(chosen) for name, chosen in PARAMETERS.items()}
names = pytest.mark.parametrize("chosen", SETS, ids=list(PARAMETERS))


def cipher_of(chosen: ParameterSet) -> Cipher:
    return Cipher(chosen, KEYS[chosen.name].secret)


def adder_of(chosen: ParameterSet) -> Adder:
    return Adder(chosen, KEYS[chosen.name].key_id)


def whole(chosen: ParameterSet, blob: bytes, seeded: bool = False) -> bytes:
    """The same vector with both polynomials, as a total has them, unless it is to keep its seed."""
    adder = adder_of(chosen)
    adder.add(blob)
    return blob if seeded else adder.total()


def again(blob: bytes) -> bytes:
    """A blob whose content was changed, with the right checksum."""
    return blob[:-CHECKSUM_BYTES] + checksum(blob[:-CHECKSUM_BYTES], HEADER)


def changed(blob: bytes, at: int, value: bytes) -> bytes:
    return again(blob[:at] + value + blob[at + len(value) :])


# Precision


@names
@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("length", [1, 2047, 2049, 9000])
def test_a_vector_of_any_length_comes_back(chosen, seeded, length):
    vector = np.random.default_rng(length).uniform(-3, 3, length)
    cipher = cipher_of(chosen)
    blob = whole(chosen, cipher.encrypt(vector, bound=3.0, summands=7), seeded)
    back = cipher.decrypt(blob)
    unit = chosen.rounding_unit(bound=3.0, summands=7)
    assert back.shape == vector.shape and back.dtype == np.float64
    assert np.abs(back - vector).max() <= unit
    assert (back / unit == np.rint(back / unit)).all()  # nothing below the unit is shown


@names
def test_noise_is_what_the_rounding_unit_is_made_for(chosen):
    cipher, rng = cipher_of(chosen), np.random.default_rng(0)
    bound = min(
        2.0 ** (54 - chosen.scale_bits), chosen.headroom / 2
    )  # no more amplification than float64 can follow
    summands = int(min(chosen.headroom / bound, 16))
    values, noise = rng.uniform(-bound, bound, chosen.slots), []
    for _ in range(4):
        blob = cipher.encrypt(values, bound=bound, summands=summands)
        header = read(ring_of(chosen), cipher.key_id, blob, SUM)
        slots = cipher._decrypt(header, all_residues(cipher._ring, header, blob), np.inf)[0]
        noise.append(slots - np.ldexp(values, chosen.amplification(bound, summands)))
    assert np.std(noise) == pytest.approx(chosen.slot_noise, rel=0.7)


@names
@pytest.mark.parametrize("summands", [2, 3, 40])
def test_sums_keep_the_promised_precision(chosen, summands):
    cipher, adder, rng = cipher_of(chosen), adder_of(chosen), np.random.default_rng(summands)
    vectors = rng.uniform(-1, 1, (summands, 300))
    for index, vector in enumerate(vectors):
        adder.add(whole(chosen, cipher.encrypt(vector, bound=1.0, summands=summands), index % 2 == 0))
    assert adder.count == summands
    found = cipher.decrypt(adder.total())
    assert np.abs(found - vectors.sum(axis=0)).max() <= chosen.rounding_unit(bound=1.0, summands=summands)


@names
def test_twenty_thousand_summands_by_doubling(chosen):
    cipher, rng = cipher_of(chosen), np.random.default_rng(1)
    vector = rng.uniform(-1, 1, 500)
    vector[:2] = 1, -1
    parts = [whole(chosen, cipher.encrypt(vector, bound=1.0, summands=20_000))]
    while len(parts) < 15:
        adder = adder_of(chosen)
        adder.add(parts[-1])
        adder.add(parts[-1])
        parts.append(adder.total())
    adder = adder_of(chosen)
    for power, part in enumerate(parts):
        if 20_000 >> power & 1:
            adder.add(part)
    assert adder.count == 20_000
    # Doubled noise adds up 141 times faster than that of 20,000 clients.
    alike = 6 * chosen.slot_noise * 20_000 / 2.0 ** chosen.amplification(1.0, 20_000)
    found = cipher.decrypt(adder.total())
    assert np.abs(found - 20_000 * vector).max() <= chosen.rounding_unit(1.0, 20_000) + alike
    assert chosen.rounding_unit(1.0, 20_000) <= 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sum", "sum-compact"])
def test_twenty_thousand_clients_keep_the_promise(name):
    chosen, rng = PARAMETERS[name], np.random.default_rng(2)
    cipher, adder, total = cipher_of(chosen), adder_of(chosen), np.zeros(chosen.slots)
    for _ in range(20_000):
        vector = rng.uniform(-1, 1, chosen.slots)
        total += vector
        adder.add(whole(chosen, cipher.encrypt(vector, bound=1.0, summands=20_000)))
    assert np.abs(cipher.decrypt(adder.total()) - total).max() <= chosen.rounding_unit(1.0, 20_000)


@names
def test_totals_at_the_edge_of_the_headroom_decode(chosen):
    summands = 3
    bound = min(chosen.headroom / summands, 1e9)
    cipher, adder = cipher_of(chosen), adder_of(chosen)
    for _ in range(summands):
        adder.add(cipher.encrypt(np.array([bound, -bound]), bound=bound, summands=summands))
    found = cipher.decrypt(adder.total())
    np.testing.assert_allclose(found, [3 * bound, -3 * bound], rtol=1e-9)


@names
def test_integers_are_exact(chosen):
    cipher, adder, rng = cipher_of(chosen), adder_of(chosen), np.random.default_rng(3)
    vectors = rng.integers(-4, 5, (25, 2500))
    for vector in vectors:
        adder.add(whole(chosen, cipher.encrypt(vector, bound=4, summands=1000)))
    found = np.rint(cipher.decrypt(adder.total()))
    assert (found == vectors.sum(axis=0)).all()


def test_more_additions_than_sixty_bit_residues_can_hold():
    chosen = PARAMETERS["product"]
    cipher, adder = cipher_of(chosen), adder_of(chosen)
    blob = whole(chosen, cipher.encrypt(np.arange(-5, 6), bound=5, summands=100))
    for _ in range(100):
        adder.add(blob)
    assert (np.rint(cipher.decrypt(adder.total())) == 100 * np.arange(-5, 6)).all()


# Products


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (51, 10), (64, 7), (500, 2), (562, 6)])
def test_products_equal_numpy(shape):
    chosen, rng = PARAMETERS["product"], np.random.default_rng(shape[0])
    features = shape[0]
    keys = make_keys(chosen, rotations_for(chosen, features))
    cipher, product = Cipher(chosen, keys.secret), Product(chosen, keys.evaluation, keys.key_id)
    adder, parts = Adder(chosen, keys.key_id), rng.uniform(-9, 9, (2, *shape))
    for part in parts:
        adder.add(cipher.encrypt_columns(part, bound=9.0, summands=20))
    np.testing.assert_allclose(cipher.decrypt_columns(adder.total()), parts.sum(axis=0), atol=1e-8)
    matrix = rng.normal(size=(features, features)) * 1e-3
    exact = matrix @ parts.sum(axis=0)
    found = cipher.decrypt_columns(product.apply(matrix, adder.total()))
    assert np.abs(found - exact).max() <= 1e-7 * np.abs(exact).max()


@pytest.mark.parametrize(("name", "tolerance"), [("product", 1e-7), ("product-small", 1e-3)])
def test_each_output_may_have_its_own_matrix(name, tolerance):
    chosen, rng = PARAMETERS[name], np.random.default_rng(7)
    features, outputs = 9, 300  # with 'product' two ciphertexts, with 'product-small' three
    keys = make_keys(chosen, rotations_for(chosen, features))
    cipher, product = Cipher(chosen, keys.secret), Product(chosen, keys.evaluation, keys.key_id)
    sides, matrices = rng.uniform(-1, 1, (features, outputs)), rng.normal(size=(outputs, features, features))
    matrices[5] = 0
    blob = cipher.encrypt_columns(sides, bound=1.0, summands=5)
    exact = np.einsum("oij,jo->io", matrices, sides)
    found = cipher.decrypt_columns(product.apply(matrices, blob))
    assert np.abs(found - exact).max() <= tolerance * np.abs(exact).max()
    shared = cipher.decrypt_columns(product.apply(matrices[0], blob))
    assert np.abs(shared - matrices[0] @ sides).max() <= tolerance * np.abs(exact).max()


def test_noise_of_products_is_what_the_rounding_unit_is_made_for(monkeypatch):
    monkeypatch.setattr("tacit.crypto.ckks._rounded", lambda values, unit: values)
    chosen, features = PARAMETERS["product-small"], 30
    keys = make_keys(chosen, rotations_for(chosen, features))
    cipher, product = Cipher(chosen, keys.secret), Product(chosen, keys.evaluation, keys.key_id)
    for outputs in (8, 64):  # all places: with the slot in which noise gathers most
        sides = np.random.default_rng(0).uniform(-1, 1, (features, outputs))
        matrix = np.roll(np.eye(features), 1, axis=1)  # all of a row in one element: nothing averages out
        blob = cipher.encrypt_columns(sides, bound=1.0, summands=1)
        found = cipher.decrypt_columns(product.apply(matrix, blob))
        back = chosen.matrix_reach(1) * 2.0 ** chosen.column_amplification(1)
        unit = chosen.product_unit(1, gathering(chosen.slots, features, outputs))
        assert np.abs(found - matrix @ sides).max() * back < unit / 2


def test_products_at_the_edge_of_the_headroom_decode():
    chosen = PARAMETERS["product-small"]
    keys = make_keys(chosen, rotations_for(chosen, 2))
    cipher, product = Cipher(chosen, keys.secret), Product(chosen, keys.evaluation, keys.key_id)
    summands = int(chosen.product_headroom)
    part, count = cipher.encrypt_columns(np.full((2, 1), 3.0), bound=3.0, summands=summands), 1
    while count * 2 <= summands:
        adder = Adder(chosen, keys.key_id)
        adder.add(part)
        adder.add(part)
        part, count = adder.total(), count * 2
    found = cipher.decrypt_columns(product.apply(np.array([[0.5, 0.5], [1.0, -1.0]]), part))
    np.testing.assert_allclose(found, [[3.0 * count], [0.0]], atol=3e-3 * count)


def test_products_that_cannot_be_are_refused():
    chosen = PARAMETERS["product"]
    keys = make_keys(chosen, rotations_for(chosen, 4))
    cipher, product = Cipher(chosen, keys.secret), Product(chosen, keys.evaluation, keys.key_id)
    blob = cipher.encrypt_columns(np.ones((4, 2)), bound=1.0, summands=2)
    for matrix, words in (
        (np.ones((3, 3)), "shape"),
        (np.ones((3, 4, 4)), "shape"),
        (np.zeros((4, 4)), "zeros"),
        (np.full((4, 4), np.nan), "NaN"),
    ):
        with pytest.raises(ConfigError, match=words):
            product.apply(matrix, blob)
    with pytest.raises(ConfigError, match="rotation keys are missing"):
        product.apply(np.eye(9), cipher.encrypt_columns(np.ones((9, 2)), bound=1.0, summands=2))
    with pytest.raises(ProtectionError, match="kind sum"):
        product.apply(np.eye(4), cipher.encrypt(np.ones(4), bound=1.0, summands=2))
    with pytest.raises(ProtectionError, match="kind product"):
        product.apply(np.eye(4), product.apply(np.eye(4), blob))
    with pytest.raises(ProtectionError, match="kind product"):
        Adder(chosen, keys.key_id).add(product.apply(np.eye(4), blob))
    with pytest.raises(ConfigError, match="no level for a product"):
        cipher_of(PARAMETERS["sum"]).encrypt_columns(np.ones((4, 2)), bound=1.0, summands=2)
    with pytest.raises(ConfigError, match="no level for a product"):
        Product(PARAMETERS["sum"], keys.evaluation, keys.key_id)
    with pytest.raises(ConfigError, match="takes no rotations"):
        make_keys(PARAMETERS["sum"], [1])
    with pytest.raises(ConfigError, match="steps are from 1"):
        make_keys(chosen, [4096])
    with pytest.raises(ConfigError, match="features do not fit"):
        cipher.encrypt_columns(np.ones((5000, 1)), bound=1.0, summands=2)


def test_evaluation_keys_are_checked():
    chosen = PARAMETERS["product-small"]
    keys = make_keys(chosen, rotations_for(chosen, 2))
    good = keys.evaluation
    with pytest.raises(ProtectionError, match="evaluation key of key"):
        Product(chosen, good, bytes(16))
    with pytest.raises(ProtectionError, match="other parameters"):
        Product(PARAMETERS["product"], good, keys.key_id)
    for at in (0, 5, 30, 100, len(good) // 2, len(good) - 1):
        with pytest.raises(ProtectionError):
            Product(chosen, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], keys.key_id)
    for length in (0, 40, 90, len(good) - 1):
        with pytest.raises(MessageError):
            Product(chosen, good[:length], keys.key_id)


# Refusals


@names
def test_overflow_is_refused_with_value_limit_and_fix(chosen):
    cipher = cipher_of(chosen)
    bound = chosen.headroom / 20_000 * 1.01
    with pytest.raises(ConfigError, match=r"20,000 values .* decodes totals up to .*scale the values down"):
        cipher.encrypt([0.0], bound=bound, summands=20_000)
    if chosen.multiplies:
        with pytest.raises(ConfigError, match="does not decode"):
            cipher.encrypt_columns([[0.0]], bound=1.0, summands=int(chosen.product_headroom) + 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.0000001, -2.0])
def test_values_beyond_the_bound_are_refused_and_stay_private(value):
    with pytest.raises(MessageError) as refusal:
        cipher_of(PARAMETERS["sum"]).encrypt([0.5, value], bound=1.0, summands=2)
    assert not np.isfinite(value) or str(value) not in refusal.value.public


@pytest.mark.parametrize(("bound", "summands"), [(0, 1), (-1, 1), (np.nan, 1), (np.inf, 1), (1, 0), (1, 1.5)])
def test_declarations_that_mean_nothing_are_refused(bound, summands):
    with pytest.raises(ConfigError):
        cipher_of(PARAMETERS["sum"]).encrypt([0.0], bound=bound, summands=summands)


@pytest.mark.parametrize("vector", [[], 3.0, [[1.0]]])
def test_only_vectors_are_encrypted(vector):
    with pytest.raises(ConfigError, match="shape"):
        cipher_of(PARAMETERS["sum"]).encrypt(vector, bound=3.0, summands=1)


@pytest.mark.parametrize("seeded", [True, False])
def test_every_flipped_bit_is_refused(seeded):
    chosen, rng = PARAMETERS["sum-compact"], np.random.default_rng(4)
    cipher, adder = cipher_of(chosen), adder_of(chosen)
    blob = whole(chosen, cipher.encrypt(np.ones(10), bound=1.0, summands=9), seeded)
    ends = [*range(HEADER * 8), *range(8 * len(blob) - 8 * CHECKSUM_BYTES, 8 * len(blob))]
    refused = 0
    bits = [*rng.integers(0, 8 * len(blob), 300).tolist(), *ends]
    for bit in bits:
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            adder.add(bytes(damaged))
        except ProtectionError:
            refused += 1
    assert refused == len(bits)
    assert adder.count == 0


def test_blobs_of_any_other_length_are_refused():
    cipher = cipher_of(PARAMETERS["sum"])
    blob = cipher.encrypt(np.ones(10), bound=1.0, summands=9)
    for length in (0, 1, HEADER - 1, HEADER, HEADER + 16, 1000, len(blob) - 1):
        with pytest.raises(MessageError):
            cipher.decrypt(blob[:length])
    with pytest.raises(MessageError):
        cipher.decrypt(blob + b"\0")
    with pytest.raises(MessageError):
        cipher.decrypt(again(blob[:1000]))


def test_headers_that_lie_are_refused_though_the_checksum_is_right():
    chosen = PARAMETERS["sum"]
    cipher = cipher_of(chosen)
    blob = cipher.encrypt(np.ones(10), bound=1.0, summands=9)
    lies = {
        "form": changed(blob, 5, b"\0"),
        "unknown form": changed(blob, 5, b"\2"),
        "primes": changed(blob, 6, b"\1"),
        "reserved": changed(blob, 7, b"\1"),
        "rows": changed(blob, 56, (1 << 31).to_bytes(4, "little")),
        "no rows": changed(blob, 56, bytes(4)),
        "outputs": changed(blob, 60, b"\2"),
        "chunks": changed(blob, 64, b"\2"),
        "count": changed(blob, 68, b"\2"),
        "no count": changed(blob, 68, b"\0"),
        "summands": changed(blob, 72, b"\0"),
        "too many summands": changed(blob, 72, b"\xff\xff\xff\xff"),
        "matrices": changed(blob, 76, b"\2"),
        "bound": changed(blob, 80, np.float64(1e9).tobytes()),
        "bound of nothing": changed(blob, 80, np.float64(np.nan).tobytes()),
        "factor": changed(blob, 88, np.float64(2.0).tobytes()),
    }
    for name, lie in lies.items():
        with pytest.raises(MessageError):
            cipher.decrypt(lie)
            pytest.fail(name)
    for kind, word in ((b"\3", "product"), (b"\4", "integers"), (b"\7", "7")):
        with pytest.raises(ProtectionError, match=f"blob of kind {word}, expected was sum"):
            cipher.decrypt(changed(blob, 4, kind))


@names
@pytest.mark.parametrize("seeded", [True, False])
def test_residues_beyond_the_modulus_are_refused(chosen, seeded):
    blob = whole(chosen, cipher_of(chosen).encrypt(np.ones(10), bound=1.0, summands=9), seeded)
    with pytest.raises(MessageError, match="beyond its modulus"):
        adder_of(chosen).add(changed(blob, HEADER, b"\xff" * 16))


def test_forged_residues_do_not_decrypt_to_a_plausible_number():
    chosen = PARAMETERS["sum"]
    cipher = cipher_of(chosen)
    blob = cipher.encrypt(np.ones(10), bound=1.0, summands=9)
    with pytest.raises(ProtectionError, match="beyond what 9 summands"):
        cipher.decrypt(changed(blob, HEADER + 100, bytes(8)))


def test_foreign_keys_and_parameters_are_refused():
    chosen = PARAMETERS["sum"]
    ours, theirs = cipher_of(chosen), Cipher(chosen, make_keys(chosen).secret)
    blob = theirs.encrypt([1.0], bound=1.0, summands=2)
    with pytest.raises(ProtectionError, match="blob under key"):
        ours.decrypt(blob)
    with pytest.raises(ProtectionError, match="blob under key"):
        adder_of(chosen).add(blob)
    with pytest.raises(ProtectionError, match="blob of parameters 'sum' where 'sum-compact'"):
        adder_of(PARAMETERS["sum-compact"]).add(blob)
    namesake = replace(chosen, scale_bits=43)  # the same name, another scale
    with pytest.raises(ProtectionError, match="blob of parameters"):
        Adder(namesake, theirs.key_id).add(blob)
    # The wrong key under the right name gives no number at all.
    with pytest.raises(ProtectionError, match="beyond what"):
        ours.decrypt(changed(blob, 40, ours.key_id))


def test_blobs_that_do_not_belong_together_are_not_added():
    chosen = PARAMETERS["product-small"]
    cipher, adder = cipher_of(chosen), adder_of(chosen)
    adder.add(cipher.encrypt(np.ones(4), bound=1.0, summands=3))
    for other in (
        cipher.encrypt(np.ones(5), bound=1.0, summands=3),
        cipher.encrypt(np.ones(4), bound=2.0, summands=3),
        cipher.encrypt(np.ones(4), bound=1.0, summands=4),
        cipher.encrypt_columns(np.ones((4, 1)), bound=1.0, summands=3),
    ):
        with pytest.raises(ProtectionError, match="encrypt alike"):
            adder.add(other)
    for _ in range(2):
        adder.add(whole(chosen, cipher.encrypt(np.ones(4), bound=1.0, summands=3)))
    with pytest.raises(ProtectionError, match="4 encrypted vectors, but 3 were declared"):
        adder.add(cipher.encrypt(np.ones(4), bound=1.0, summands=3))
    assert adder.count == 3
    np.testing.assert_allclose(cipher.decrypt(adder.total()), np.full(4, 3.0), atol=1e-6)
    with pytest.raises(ConfigError, match="nothing was added"):
        adder_of(chosen).total()


def test_parameters_below_128_bits_are_refused():
    for weak in (
        ParameterSet("weak", 4096, (60, 60), 40),
        ParameterSet("odd", 5000, (40, 40), 20),
        ParameterSet("long-name-of-a-parameter-set", 4096, (54, 55), 36),
        ParameterSet("deep", 16384, (60, 40, 40, 60), 40, multiplies=True),
    ):
        with pytest.raises(ConfigError, match="is refused"):
            make_keys(weak)


# Keys and secrets


def test_secrets_are_small_and_stay_hidden():
    chosen = PARAMETERS["sum"]
    keys = make_keys(chosen)
    secret = keys.secret.reveal()
    cipher = Cipher(chosen, keys.secret)
    assert len(secret) == 32
    for thing in (keys, cipher, cipher._expanded):
        assert secret.hex() not in repr(thing) and repr(secret) not in repr(thing)
    for public in (keys.evaluation, keys.key_id, cipher.encrypt([1.0], bound=1, summands=1)):
        assert secret not in public
    with pytest.raises(SecretError):
        copy.deepcopy(keys)
    with pytest.raises(ProtectionError, match="32 bytes"):
        Cipher(chosen, Secret(b"short"))


def test_key_holders_expand_the_same_key_in_different_processes():
    chosen = PARAMETERS["sum-compact"]
    secret = bytes(range(32))
    cipher = Cipher(chosen, Secret(secret))
    code = (
        "import sys; from tacit.core.secret import Secret; from tacit.crypto.ckks import *;"
        f"cipher = Cipher(parameter_set('sum-compact'), Secret(bytes.fromhex('{secret.hex()}')));"
        "sys.stdout.buffer.write(cipher.encrypt([1.0, -2.0], bound=2, summands=2))"
    )
    blob = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    np.testing.assert_allclose(cipher.decrypt(blob), [1.0, -2.0], atol=1e-6)
    # Pinned: if another release of SEAL expands a secret otherwise, old keys are foreign and not garbage.
    assert cipher.key_id.hex() == "265898cfabe27e411b89303307f2e297"


def test_encryption_is_fresh_and_decryption_is_not():
    cipher = cipher_of(PARAMETERS["sum"])
    vector = np.linspace(-1, 1, 50)
    one, two = (cipher.encrypt(vector, bound=1.0, summands=2) for _ in range(2))
    assert one[HEADER:] != two[HEADER:] and one[:HEADER] == two[:HEADER]
    seeds = {blob[-CHECKSUM_BYTES - 64 : -CHECKSUM_BYTES] for blob in (one, two)}
    assert len(seeds) == 2
    assert cipher.decrypt(one).tobytes() == cipher.decrypt(one).tobytes()


def test_importing_is_light():
    code = "import sys, tacit.crypto.ckks; sys.exit('tenseal' in sys.modules or 'pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_systems_without_files_in_memory_use_a_private_folder(monkeypatch):
    monkeypatch.delattr(seal_residues.os, "memfd_create")
    with seal_residues.private_file() as path:
        folder = path.parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    cipher = cipher_of(PARAMETERS["sum"])
    assert cipher.decrypt(cipher.encrypt([0.5], bound=1.0, summands=1))[0] == 0.5


@names
def test_sizes_on_the_wire(chosen):
    sizes = {"product": (102_576, 213_104), "product-small": (35_504, 73_840)}
    sizes |= {"sum": (37_040, 82_032), "sum-compact": (27_824, 57_456)}
    cipher = cipher_of(chosen)
    vector = np.ones(chosen.slots)
    blob = cipher.encrypt(vector, bound=1, summands=1)
    found = len(blob), len(whole(chosen, blob))
    assert found == sizes[chosen.name]
