"""Chance as a hash: equal to SplitMix64 in plain integers, and even."""

import os
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from quillcast.evaluation import let_numba_cache
from quillcast.evaluation.chance import below, finalise, fraction, mix
from tests.evaluation import naive_places as naive

WORDS = [0, 1, 2, 1 << 31, 1 << 63, (1 << 64) - 1, 0x9E3779B97F4A7C15]


def test_the_first_numbers_of_splitmix64_are_the_published_ones() -> None:
    """SplitMix64 from state 0: e220a8397b1dcdaf, 6e789e6aa1b965f4 (Vigna's splitmix64.c)."""
    gamma = 0x9E3779B97F4A7C15
    assert [finalise(gamma), finalise(2 * gamma % 2**64)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


@pytest.mark.parametrize("seed", WORDS)
def test_it_mixes_as_plain_integers_do(seed: int) -> None:
    assert [mix(seed, a, b) for a in WORDS for b in WORDS] == [naive.mix(seed, a, b) for a in WORDS for b in WORDS]


def test_a_kernel_gets_the_same_bits_from_signed_numbers() -> None:
    @njit
    def from_kernel(seed: np.int64, a: np.int32, b: np.int64) -> np.uint64:
        return mix(seed, a, b)

    assert from_kernel(np.int64(7), np.int32(3), np.int64(9)) == naive.mix(7, 3, 9)


def test_numbers_below_a_bound_are_even() -> None:
    drawn = np.array([below(mix(1, 2, number), 10) for number in range(50_000)], np.int64)
    counts = np.bincount(drawn, minlength=10)
    assert len(counts) == 10
    chi_squared = float(((counts - 5_000) ** 2 / 5_000).sum())
    assert chi_squared < 27.9  # 9 degrees of freedom: exceeded once in a thousand seeds


def test_fractions_fill_the_interval() -> None:
    drawn = np.array([fraction(mix(1, 3, number)) for number in range(20_000)])
    assert 0 <= drawn.min() < 0.001
    assert 0.999 < drawn.max() < 1
    assert abs(float(drawn.mean()) - 0.5) < 0.01
    assert fraction((1 << 64) - 1) < 1


def test_each_bit_of_each_argument_changes_half_of_all_bits() -> None:
    for argument in range(3):
        changed = [
            int(
                mix(*(number + 5, 6, 7))
                ^ mix(*[v ^ (1 << bit if at == argument else 0) for at, v in enumerate((number + 5, 6, 7))])
            ).bit_count()
            for number in range(20)
            for bit in range(64)
        ]
        assert 31.5 < sum(changed) / len(changed) < 32.5


def test_kernels_are_cached_in_a_temporary_folder_where_no_other_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "as it was")  # and is again, afterwards
    del os.environ["NUMBA_CACHE_DIR"]
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    let_numba_cache(Path(__file__).parent)
    assert "NUMBA_CACHE_DIR" not in os.environ
    let_numba_cache(Path("/proc/nothing"))
    assert Path(os.environ["NUMBA_CACHE_DIR"]).is_dir()
