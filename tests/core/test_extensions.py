"""What the installed packages offer."""

from pathlib import Path

import pytest

from quillcast.core.errors import LocalError
from quillcast.core.extensions import offered

offered_anew = offered.__wrapped__


def install(site: Path, package: str, group: str, **references: str) -> None:
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {reference}" for name, reference in references.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


def test_a_name_that_two_packages_offer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "first", "quillcast.toys", star="first:Star", ring="first:Ring")
    assert {name: entry.value for name, entry in offered_anew("quillcast.toys").items()} == {
        "star": "first:Star",
        "ring": "first:Ring",
    }
    install(tmp_path, "second", "quillcast.toys", star="second:Star")
    with pytest.raises(LocalError, match=r"two packages offer star in quillcast\.toys: .*Star and .*; uninstall one"):
        offered_anew("quillcast.toys")
    assert offered_anew("quillcast.others") == {}
