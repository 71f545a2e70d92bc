"""The exchange: bucket labels that spread evenly over Spark's shuffle partitions.

Spark puts a group in partition pmod(murmur3(label), partitions). Small labels 0, 1, 2… can all
fall into one partition; so labels are searched for: bucket i gets the smallest unused integer
whose hash is i modulo the number of buckets. Then buckets spread evenly over any number of
partitions that divides theirs, and the labels depend on nothing that a restart may change.
"""

from __future__ import annotations

from functools import cache

_MASK = 0xFFFFFFFF
GUARD = -1  # the label of the group that stores which join this checkpoint belongs to


def spark_hash(value: int) -> int:
    """Spark's Murmur3 hash of a 32-bit integer with seed 42, as a signed integer.

    >>> spark_hash(1)
    -559580957
    """
    k = (value & _MASK) * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    h = 42 ^ (k * 0x1B873593 & _MASK)
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4  # the number of bytes
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def bucket_labels(buckets: int) -> list[int]:
    """One label per bucket.

    >>> labels = bucket_labels(4)
    >>> [spark_hash(label) % 4 for label in labels], [spark_hash(label) % 2 for label in labels]
    ([0, 1, 2, 3], [0, 1, 0, 1])
    """
    labels: dict[int, int] = {}
    candidate = 0
    while len(labels) < buckets:
        labels.setdefault(spark_hash(candidate) % buckets, candidate)
        candidate += 1
    return [labels[bucket] for bucket in range(buckets)]


@cache
def first_label(buckets: int) -> int:
    """The label of the bucket that speaks where one must speak for all."""
    return bucket_labels(buckets)[0]
