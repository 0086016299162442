"""docs/bundles.md shows what the code does."""

import re
from pathlib import Path

import pytest

from quillcast.core.bundle import Block

PAGE = (Path(__file__).parents[2] / "docs" / "bundles.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)


def test_the_bytes_of_the_example_are_a_valid_block() -> None:
    block = Block.seal(b"publisher-------", 7, [b"a", b"", b"ccc"], time_ns=1_000, keys=[b"k", b"l", b""])
    lines = re.findall(r"^ ?(\d+)  ([0-9a-f]{2}(?: [0-9a-f]{2}){7})", PAGE, re.MULTILINE)
    assert [int(at) for at, _ in lines] == list(range(0, block.size, 8))
    assert bytes.fromhex("".join(hexadecimal for _, hexadecimal in lines)) == block.data


def test_the_program_of_the_page_prints_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    at = next(index for index, (language, _) in enumerate(BLOCKS) if language == "python")
    exec(BLOCKS[at][1], {})
    assert capsys.readouterr().out == BLOCKS[at + 1][1]
