"""Stateless randomness: a draw is a hash of its purpose, so neither order nor partitioning matters.

The mixing step is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014, variant 13 of Stafford's), a bijection of 64-bit words.
"""

from typing import Any

import numpy as np
from numba import njit

Word = Any
"""64 bits: `uint64` in kernels, `int` to Python."""

GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: the step between the generator's states
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@njit("uint64(uint64)", cache=True)
def finalise(word: Word) -> Word:
    """Scatter a word's bits over all 64 bits; different words stay different."""
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


@njit("uint64(uint64, uint64, uint64)", cache=True)
def mix(seed: Word, a: Word, b: Word) -> Word:
    """64 bits that depend only on the arguments. For equal `seed` and `a`, different `b` give different bits."""
    return finalise(finalise(finalise(seed + GAMMA) + a + GAMMA) + b + GAMMA)


@njit("uint64(uint64, uint64)", cache=True)
def below(bits: Word, bound: Word) -> Word:
    """An integer below the bound (at most 2^32), from the upper 32 of 64 random bits."""
    return ((bits >> np.uint64(32)) * bound) >> np.uint64(32)


@njit("float64(uint64)", cache=True)
def fraction(bits: Word) -> float:
    """A number in [0, 1) from the upper 53 of 64 random bits."""
    return float(bits >> np.uint64(11)) * 2.0**-53
