"""Policies and filters of other packages, as the examples have them."""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from quillcast.core.envelope import DOWN, Envelope
from quillcast.core.errors import LocalError
from quillcast.core.extensions import offered
from quillcast.live.scopes.confined import ConfinedPolicy
from quillcast.live.scopes.plugins import InstalledFilters, PolicyUnavailable, opened
from quillcast.protocol.scopes.conformance import check
from quillcast.protocol.scopes.filters import Custom, compiled
from quillcast.protocol.scopes.policies import KAry

EXAMPLES = Path(__file__).parents[3] / "examples" / "policies"
PACKAGE, PINNED = EXAMPLES / "by_entry_point", EXAMPLES / "pinned_file"
SHA256 = hashlib.sha256((PINNED / "around_hub.py").read_bytes()).hexdigest()


def installed(folder: Path) -> Path:
    """The example's package as pip installs it."""
    told = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = folder / "two_level-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(PACKAGE / "two_level.py", folder)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {told['name']}\nVersion: {told['version']}\n")
    groups = told["entry-points"].items()
    lines = [line for group, entries in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in entries.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = installed(tmp_path / "site")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    offered.cache_clear()
    yield folder
    offered.cache_clear()
    sys.modules.pop("two_level", None)


@pytest.mark.parametrize("folder", [PACKAGE, PINNED], ids=lambda folder: folder.name)
def test_the_tests_of_the_examples_pass(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_built_in_policies_need_no_process() -> None:
    assert opened("k_ary", {"fan_out": 3}) == KAry(3)


@pytest.mark.usefixtures("site")
def test_an_installed_package_offers_a_policy_by_name() -> None:
    policy = opened("two_level", {"helpers": 2})
    assert isinstance(policy, ConfinedPolicy)
    with policy:
        assert check(policy, sizes=(3,)).fan_out == 2
    assert "two_level" not in sys.modules, "it is imported in its own process only"


@pytest.mark.usefixtures("site")
def test_a_policy_may_be_named_by_module_and_class() -> None:
    policy = opened("two_level:TwoLevel", {})
    assert isinstance(policy, ConfinedPolicy)
    policy.close()


def test_a_policy_in_a_pinned_file() -> None:
    policy = opened("around_hub.py:AroundHub", {"far_s": 1.0}, sha256=SHA256, folder=PINNED)
    assert isinstance(policy, ConfinedPolicy)
    with policy:
        assert check(policy, sizes=(3,)).delivery == "tree"


def test_a_file_that_changed_after_it_was_pinned_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "around_hub.py").write_text("raise SystemExit")
    with pytest.raises(PolicyUnavailable, match=f"has changed: its SHA-256 is .*, not {SHA256}; read the file again"):
        opened("around_hub.py:AroundHub", {}, sha256=SHA256, folder=tmp_path)


def test_a_file_that_is_not_pinned_is_not_run() -> None:
    with pytest.raises(PolicyUnavailable, match=f'is not pinned; read it, and then add sha256 = "{SHA256}"'):
        opened("around_hub.py:AroundHub", {}, folder=PINNED)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("karry", r"there is no policy 'karry' \(did you mean k_ary\?\); known: star, k_ary, .*write module:Class"),
        ("nowhere.py:It", r"cannot read nowhere.py: No such file"),
    ],
)
def test_an_unknown_policy_is_told_with_what_there_is(policy: str, text: str) -> None:
    with pytest.raises(PolicyUnavailable, match=text):
        opened(policy, {}, sha256=SHA256)


def test_a_module_that_is_not_there_is_told() -> None:
    with pytest.raises(
        LocalError, match="policy nowhere:It cannot be made: ModuleNotFoundError: No module named 'nowhere'"
    ):
        opened("nowhere:It", {})


@pytest.mark.usefixtures("site")
def test_an_installed_package_offers_a_filter() -> None:
    lines = list[str]()
    decide = compiled(Custom("first_of", (("n", 2),)), InstalledFilters(lines.append))
    entering = decide(Envelope(bytes(16), DOWN, serial=2))
    assert entering is not None
    assert entering.tags == b"first"
    assert decide(Envelope(bytes(16), DOWN, serial=1)) is None
    assert list(InstalledFilters(lines.append)) == ["first_of"]


@pytest.mark.usefixtures("site")
def test_a_filter_that_raises_stops_the_bundle_and_is_told_once() -> None:
    lines = list[str]()
    decide = compiled(Custom("first_of", (("n", 0),)), InstalledFilters(lines.append))
    assert [decide(Envelope(bytes(16), DOWN, serial=serial)) for serial in range(3)] == [None] * 3
    (line,) = lines
    assert line.startswith("filter first_of raised ZeroDivisionError")


@pytest.mark.usefixtures("site")
def test_a_filter_that_cannot_be_made_is_told() -> None:
    with pytest.raises(LocalError, match="filter first_of of two_level:first_of cannot be made: TypeError"):
        compiled(Custom("first_of", (("m", 2),)), InstalledFilters(print))
