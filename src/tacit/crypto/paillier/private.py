"""Paillier's private keys: how they are made, what decrypts, and encrypts faster by the factors of n."""

import secrets
import struct
from typing import Any, NoReturn

import gmpy2
from gmpy2 import mpz
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import ConfigError, MessageError, SecretError
from tacit.core.secret import Secret
from tacit.crypto.paillier import keys
from tacit.crypto.paillier.blob import Packing, read_ciphertexts, read_header
from tacit.crypto.paillier.keys import ALPHA_PRIME_BITS, PublicKey, Randomness
from tacit.crypto.paillier.numbers import FixedBase, combine, is_probably_prime, random_prime, random_unit

MIN_DISTANCE_BITS = 100  # FIPS 186-5: |p - q| > 2^(bits/2 - 100), or Fermat's method might find them

_MAGIC, _VERSION = b"TPS", 1
_PREFIX = struct.Struct(">3sBI")


class PrivateKey:
    """The factors of a public key's modulus; every condition on them is checked here.

    Both primes are ≡ 3 (mod 4), equally long and far apart, and gcd(p - 1, q - 1) = 2: without that
    DJN's randomness does not hide. The object shows nothing, is not copied and not pickled; pass it on
    as :meth:`to_secret`. It keeps p < q in memory, and its tables for encryption are its own. With a short α
    it also has ``orders``, primes α_p | p - 1 and α_q | q - 1 whose product is the order of h.
    """

    __slots__ = (
        "_factors",
        "_inverse",
        "_orders",
        "_primes",
        "_square_inverse",
        "_squares",
        "_tables",
        "public",
    )

    def __init__(
        self, public: PublicKey, primes: tuple[int, int], orders: tuple[int, int] | None = None
    ) -> None:
        p, q = mpz(primes[0]), mpz(primes[1])
        _check_primes(public, p, q)
        short = public.randomness == "short-alpha"
        if short != (orders is not None):
            raise ConfigError("a key with a short α, and only such a key, has the two primes of α")
        self.public = public
        self._primes = (p, q)
        self._orders = (p - 1, q - 1) if orders is None else (mpz(orders[0]), mpz(orders[1]))
        self._check_base(short)
        self._squares = (p**2, q**2)
        # c^a = 1 + a·m·n modulo p² for a multiple a of the order of c's residue, so (c^a - 1)/p = a·q·m.
        self._factors = (gmpy2.invert(self._orders[0] * q, p), gmpy2.invert(self._orders[1] * p, q))
        self._inverse = gmpy2.invert(q, p)
        self._square_inverse = gmpy2.invert(self._squares[1], self._squares[0])
        self._tables: tuple[FixedBase, FixedBase] | None = None

    def _check_base(self, short: bool) -> None:
        h = self.public.base
        for prime, order in zip(self._primes, self._orders, strict=True):
            if short:
                bits = ALPHA_PRIME_BITS[self.public.bits]
                if order.bit_length() != bits or (prime - 1) % order or not is_probably_prime(order):
                    raise ConfigError(f"a prime of α is no divisor of {bits} bits of p - 1 or q - 1")
                if h % prime == 1 or gmpy2.powmod(h, order, prime) != 1:
                    raise ConfigError("h does not have the order α: the key was put together wrongly")
            elif self.public.randomness == "djn" and gmpy2.jacobi(h, prime) != -1:
                raise ConfigError("h is not of the form -x²: the key was put together wrongly")

    def encrypt(self, values: ArrayLike, packing: Packing) -> bytes:
        """Encrypt as :meth:`PublicKey.encrypt` does, in less time: modulo p² and q²."""
        return keys.seal(self.public, self.randomiser, values, packing)

    def _power_tables(self) -> tuple[FixedBase, FixedBase]:
        """Return the two tables of powers, 20 MB together at 2048 bits, filled at the first use."""
        if self._tables is None:
            step = gmpy2.powmod(self.public.base, self.public.modulus, self.public.modulus_squared)
            first, second = (
                FixedBase(step % square, square, min(self.public.exponent_bits, order.bit_length()))
                for square, order in zip(self._squares, self._orders, strict=True)
            )
            self._tables = first, second
        return self._tables

    def randomiser(self) -> mpz:
        """Draw a random n-th residue, with the same distribution as the public key's."""
        if self.public.randomness == "plain":
            # Uniform n-th residues: the p-th powers modulo p², each given by its root below p.
            first, second = (
                gmpy2.powmod(random_unit(prime), prime, square)
                for prime, square in zip(self._primes, self._squares, strict=True)
            )
        else:
            exponent, tables = mpz(secrets.randbits(self.public.exponent_bits)), self._power_tables()
            first, second = (
                table.power(exponent % order) for table, order in zip(tables, self._orders, strict=True)
            )
        return combine(first, second, self._squares, self._square_inverse)

    def open(self, ciphertext: int) -> mpz:
        """Decrypt one ciphertext to a number below n."""
        remainders = []
        for prime, square, order, factor in zip(
            self._primes, self._squares, self._orders, self._factors, strict=True
        ):
            power = gmpy2.powmod(ciphertext % square, order, square)
            quotient, rest = gmpy2.f_divmod(power - 1, prime)
            if rest:
                raise MessageError("a ciphertext is not one that this key's public half makes")
            remainders.append(quotient * factor % prime)
        return combine(remainders[0], remainders[1], self._primes, self._inverse)

    def decrypt(self, blob: bytes, *, packing: Packing | None = None) -> NDArray[Any]:
        """Decrypt a blob to its exact totals, Python integers beyond 64 bits; refuse another packing."""
        header = read_header(self.public, blob, packing)
        totals = [self.open(number) for number in read_ciphertexts(self.public, blob)]
        return header.packing.unpack(totals, header.count, self.public.modulus, header.summands)

    def to_secret(self) -> Secret:
        """Return the key as a secret that can be kept in a vault."""
        public = self.public.to_bytes()
        size = self.public.bits // 16
        numbers = [self._primes[0].to_bytes(size, "big"), self._primes[1].to_bytes(size, "big")]
        if self.public.randomness == "short-alpha":
            numbers += [order.to_bytes(size, "big") for order in self._orders]
        return Secret(b"".join([_PREFIX.pack(_MAGIC, _VERSION, len(public)), public, *numbers]))

    @classmethod
    def from_secret(cls, secret: Secret, *, allow_short: bool = False) -> "PrivateKey":
        """Take a key out of its secret; all conditions are checked again."""
        raw = secret.reveal()
        if len(raw) < _PREFIX.size or raw[:4] != _MAGIC + bytes([_VERSION]):
            raise MessageError(f"not a Paillier private key of version {_VERSION}")
        start = _PREFIX.size + _PREFIX.unpack_from(raw)[2]
        public = PublicKey.from_bytes(raw[_PREFIX.size : start], allow_short=allow_short)
        size, numbers = public.bits // 16, raw[start:]
        expected = 4 if public.randomness == "short-alpha" else 2
        if len(numbers) != expected * size:
            raise MessageError(f"private key has {len(numbers)} bytes of numbers, not {expected * size}")
        p, q, *orders = (mpz.from_bytes(numbers[at : at + size]) for at in range(0, len(numbers), size))
        return cls(public, (p, q), (orders[0], orders[1]) if orders else None)

    def __repr__(self) -> str:
        return f"PrivateKey(hidden, of {self.public!r})"

    def _refuse(self, *_: Any) -> NoReturn:
        raise SecretError("a private key was about to be copied or pickled: pass it on as to_secret()")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse


def far_apart(p: mpz, q: mpz) -> bool:
    """Return whether two primes differ enough to be safe from Fermat's method."""
    return bool(abs(p - q) >> (p.bit_length() - MIN_DISTANCE_BITS))


def _check_primes(public: PublicKey, p: mpz, q: mpz) -> None:
    half = public.bits // 2
    conditions = {
        "p·q is n": p * q == public.modulus,
        "p is smaller than q": p < q,
        f"p and q have {half} bits": p.bit_length() == q.bit_length() == half,
        "p ≡ q ≡ 3 (mod 4)": p % 4 == q % 4 == 3,
        "gcd(p - 1, q - 1) is 2": gmpy2.gcd(p - 1, q - 1) == 2,
        "p and q are far apart": far_apart(p, q),
        "p and q are prime": is_probably_prime(p) and is_probably_prime(q),
    }
    if broken := [name for name, holds in conditions.items() if not holds]:
        raise ConfigError(f"private key refused, for it does not hold that {broken[0]}: make new keys")


def make_keys(bits: int = 2048, *, randomness: Randomness = "djn", allow_short: bool = False) -> PrivateKey:
    """Make a key pair from the operating system's randomness.

    1024 bits take ``allow_short``, and come with a :class:`~tacit.crypto.paillier.keys.ShortKeyWarning`.
    """
    keys.check_bits(bits, allow_short)
    keys.check_randomness(randomness)
    orders, short = (mpz(1), mpz(1)), randomness == "short-alpha"
    if short:
        orders = random_prime(ALPHA_PRIME_BITS[bits]), random_prime(ALPHA_PRIME_BITS[bits])
    while True:
        p, q = random_prime(bits // 2, orders[0]), random_prime(bits // 2, orders[1])
        if p > q:
            (p, q), orders = (q, p), (orders[1], orders[0])
        if gmpy2.gcd(p - 1, q - 1) == 2 and far_apart(p, q):
            break
    public = PublicKey(p * q, _random_base(p, q, orders, randomness), randomness, allow_short)
    return PrivateKey(public, (p, q), orders if short else None)


def _random_base(p: mpz, q: mpz, orders: tuple[mpz, mpz], randomness: Randomness) -> mpz:
    if randomness == "plain":
        return mpz(0)
    if randomness == "djn":
        return -(random_unit(p * q) ** 2) % (p * q)
    parts = []
    for prime, order in ((p, orders[0]), (q, orders[1])):
        part = mpz(1)
        while part == 1:
            part = gmpy2.powmod(random_unit(prime), (prime - 1) // order, prime)
        parts.append(part)
    return combine(parts[0], parts[1], (p, q), gmpy2.invert(q, p))
