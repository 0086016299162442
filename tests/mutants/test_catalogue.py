"""The catalogue stays in step with the source: every mutant applies once, compiles, and names a test that exists."""

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.trial import ROOT, source_of


def test_there_are_enough_of_them_and_each_has_its_own_name() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_applies_and_compiles(mutant: Mutant) -> None:
    path, text = source_of(mutant)
    compile(text, str(path), "exec")
    assert text != path.read_text()


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.seen_by], ids=lambda mutant: mutant.name)
def test_the_test_that_should_see_a_mutant_exists(mutant: Mutant) -> None:
    file, _, function = mutant.seen_by.partition("::")
    assert not function or f"def {function}(" in (ROOT / "tests" / file).read_text()


def test_a_mutant_that_fits_nowhere_is_refused() -> None:
    stale = MUTANTS[0]._replace(before="these lines were changed long ago")
    with pytest.raises(ValueError, match="stand 0 times"):
        source_of(stale)
