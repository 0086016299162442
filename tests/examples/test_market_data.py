"""The market: every desk sees every tick of its symbols, in the feed's order, and no other."""

from pathlib import Path

import pytest

from examples.market_data import DESKS, run, ticks
from tests.examples.programs import EXAMPLES, LINES_MAX

pytestmark = pytest.mark.live


def test_every_desk_sees_its_symbols_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    seen = run()
    assert {desk: list(symbols) for desk, symbols in seen.items()} == DESKS
    for symbols in seen.values():
        for symbol, figures in symbols.items():
            traded = [tick for tick in ticks() if tick["symbol"] == symbol]
            assert figures == {
                "ticks": len(traded),
                "volume": sum(tick["added"] for tick in traded),
                "last": traded[-1]["time"],
            }


@pytest.mark.parametrize("name", ["chat.py", "market_data.py"])
def test_an_example_is_read_in_a_minute(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < LINES_MAX
