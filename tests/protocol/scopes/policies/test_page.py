"""docs/scope-policies.md shows what the code does."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from quillcast.protocol.scopes import filters
from quillcast.protocol.scopes.policies import BUILT_IN

PAGE = (Path(__file__).parents[4] / "docs" / "scope-policies.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)


def test_the_table_of_policies_has_their_parameters_and_classes() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\| (tree|redundant|lossy) \|", PAGE, re.MULTILINE)
    assert [(name, parameters.strip(), delivery) for name, parameters, delivery in rows] == [
        (
            name,
            ", ".join(f"`{each.name} = {json.dumps(each.default)}`" for each in msgspec.structs.fields(policy)),
            policy.delivery,
        )
        for name, policy in BUILT_IN.items()
    ]


def test_the_table_of_filters_has_all_of_them() -> None:
    named = set(re.findall(r"`([A-Z]\w+)\(", PAGE.partition("## Filters")[2].partition("## The rules")[0]))
    assert named == {kind.__name__ for kind in filters.Filter.__args__}


def test_the_program_of_the_page_prints_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    at = next(index for index, (language, _) in enumerate(BLOCKS) if language == "python")
    exec(BLOCKS[at][1], {})
    assert capsys.readouterr().out == BLOCKS[at + 1][1]
