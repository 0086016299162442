"""What holds for every tracked file: it works on any machine, and the files that must agree do."""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import quillcast

ROOT = Path(__file__).parent.parent
SIZE_BYTES_MAX = 4 << 20

# Packages come from wherever the machine's own installer is set up to find them.
INDEX_ADDRESS = re.compile(
    r"pypi\.org|pythonhosted\.org|deb\.debian\.org|npmjs\.(?:org|com)|index[-_]url|find[-_]links|trusted[-_]host"
)
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(?:home|root|work|opt|Users|mnt)/[\w.-]+")
MARKDOWN_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
REQUIREMENT_NAME = re.compile(r"[A-Za-z0-9._-]+")


def tracked_files() -> list[Path]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("which files are tracked is known only in a git checkout")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0")[:-1] if (path := ROOT / name).is_file()]


def tracked_lines() -> Iterator[tuple[str, str]]:
    """Each line of each text file, with its place."""
    for path in tracked_files():
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        yield from ((f"{path.relative_to(ROOT)}:{number}", line) for number, line in enumerate(lines, 1))


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def constraints() -> list[str]:
    return (ROOT / "constraints.txt").read_text().splitlines()


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_file_names_a_package_index() -> None:
    assert [f"{place}: {line}" for place, line in tracked_lines() if INDEX_ADDRESS.search(line)] == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert [f"{place}: {line}" for place, line in tracked_lines() if MACHINE_PATH.search(line)] == []


def test_no_file_is_too_large_to_clone() -> None:
    assert [path.name for path in tracked_files() if path.stat().st_size > SIZE_BYTES_MAX] == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in tracked_files()
        if path.suffix == ".md"
        for target in MARKDOWN_LINK.findall(path.read_text())
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_constraints_are_sorted_exact_versions() -> None:
    lines = constraints()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    assert lines == sorted(lines, key=str.lower)


def test_every_dependency_is_pinned() -> None:
    described = project()
    groups = [described["dependencies"], *described["optional-dependencies"].values()]
    wanted = {canonical(REQUIREMENT_NAME.match(requirement)[0]) for group in groups for requirement in group}
    assert wanted - {canonical(line.partition("==")[0]) for line in constraints()} == set()


def test_every_dependency_has_its_reason_written_down() -> None:
    described = project()
    groups = [described["dependencies"], *described["optional-dependencies"].values()]
    names = [REQUIREMENT_NAME.match(requirement)[0] for group in groups for requirement in group]
    reasons = "\n".join(path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert [name for name in names if f"`{name}`" not in reasons] == []


def test_the_changelog_tells_of_this_version() -> None:
    assert f"\n## {quillcast.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("script", [".ci/run", "scripts/bootstrap", "scripts/servers"])
def test_scripts_parse_and_may_be_run(script: str) -> None:
    assert (ROOT / script).stat().st_mode & 0o111
    subprocess.run(["bash", "-n", ROOT / script], check=True)
