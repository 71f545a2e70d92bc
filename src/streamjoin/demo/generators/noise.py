"""Random values of numbered things: each a hash of the seed, the thing's number and what it is for.

So any of them can be made alone, in any order, and is always the same, whatever the version of numpy. Two
purposes of one thing are independent of each other. Hash: the finalizer of splitmix64, twice. Cost: about
10 ns for a number and as much for a letter of a text; a text of many megabytes is better made in pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

_STEP = 0x9E3779B97F4A7C15  # 2^64 / the golden ratio, as in splitmix64
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Noise:
    """The random values of things, in their order.

    >>> noise = Noise.of(7, np.array([4, 5]))
    >>> np.array_equal(noise.below("dice", 6)[1:], Noise.of(7, np.array([5])).below("dice", 6))
    True
    """

    seed: int
    things: Words  # their numbers, mixed once

    @classmethod
    def of(cls, seed: int, numbers: Ints) -> Noise:
        return cls(seed, _mix(numbers.astype(np.uint64) * np.uint64(_STEP)))

    def words(self, purpose: str) -> Words:
        """64 random bits for each."""
        start = (self.seed * _STEP + crc32(purpose.encode())) % (1 << 64)
        return _mix(self.things + _mix(np.array([start], np.uint64)))

    def share(self, purpose: str) -> npt.NDArray[np.float64]:
        """Uniform in [0, 1)."""
        return (self.words(purpose) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, purpose: str, limit: int | Ints) -> Ints:
        """Uniform in [0, limit), with a limit of at most 2^32."""
        upper = (self.words(purpose) >> np.uint64(32)) * np.asarray(limit, np.uint64)
        return (upper >> np.uint64(32)).astype(np.int64)

    def pick(self, purpose: str, words: tuple[str, ...]) -> Any:
        """One of the words, as an Arrow array."""
        return pa.array(words).take(pa.array(self.below(purpose, len(words))))

    def text(self, purpose: str, lengths: Ints, *, blanks: bool = False) -> Any:
        """Letters a to z, as an Arrow array of strings of these lengths; with blanks, 1 in 13 is one."""
        return _strings(_letters(self.words(purpose), lengths, blanks=blanks), lengths)

    def binary(self, purpose: str, width: int) -> Any:
        """Random bytes, which nothing can compress, as an Arrow array of binaries of that width."""
        place = np.arange(-(-width // 8), dtype=np.uint64) * np.uint64(_STEP)
        random = _mix(self.words(purpose)[:, None] + place).astype("<u8", copy=False)
        kept = np.ascontiguousarray(random.view(np.uint8)[:, :width])
        offsets = np.arange(len(random) + 1, dtype=np.int32) * np.int32(width)
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(random), [None, pa.py_buffer(offsets), pa.py_buffer(kept)]
        )

    def digits(self, purpose: str, count: int) -> Any:
        """That many digits, at most 9, as an Arrow array of strings."""
        number = self.below(purpose, 10**count)[:, None]
        places = number // 10 ** np.arange(count - 1, -1, -1) % 10
        return _strings((places + ord("0")).astype(np.uint8).ravel(), np.full(len(places), count))


def _mix(words: Words) -> Words:
    mixed = words ^ (words >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _letters(start: Words, lengths: Ints, *, blanks: bool) -> npt.NDArray[np.uint8]:
    """The letters of all texts, one after the other. Eight come from each word; the last ones may be cut."""
    words = (lengths + 7) // 8
    first = np.cumsum(words) - words
    place = (np.arange(words.sum()) - np.repeat(first, words)).astype(np.uint64)
    random = _mix(np.repeat(start, words) + place * np.uint64(_STEP))
    drawn = random.astype("<u8", copy=False).tobytes()
    letters = np.frombuffer(drawn.translate(_alphabet(blanks=blanks)), np.uint8)
    spare = 8 * words - lengths
    end = 8 * (first + words)
    kept = np.ones(len(letters), np.bool_)
    for back in range(1, 8):
        kept[end[spare >= back] - back] = False
    return letters[kept]


def _alphabet(*, blanks: bool) -> bytes:
    """A letter for each byte."""
    letters = bytearray(_LETTERS[byte * 26 >> 8] for byte in range(256))
    if blanks:
        letters[::13] = b" " * len(letters[::13])
    return bytes(letters)


def _strings(letters: npt.NDArray[np.uint8], lengths: Ints) -> Any:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters))
