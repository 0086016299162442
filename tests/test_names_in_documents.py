"""Every file, module, class, function, command, option and setting that the documents name exists."""

import ast
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from keyword import kwlist
from pathlib import Path

import pytest

from tests.test_layers import import_graph

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BASES = (
    ROOT,
    ROOT / "src" / "quillcast",
    ROOT / "docs",
    ROOT / "src" / "quillcast" / "evaluation",
    ROOT / "src" / "quillcast" / "live",
)
SOURCES = ("src", "benchmarks", "examples", "scripts")

DESCRIBED = {  # each page names every module of its packages
    "forwarding.md": ("protocol/forwarding", "protocol/reliability"),
    "live.md": ("live",),
    "neighbours.md": ("protocol/neighbours",),
    "overlay.md": ("protocol/overlay",),
    "scopes.md": ("protocol/scopes", "protocol/scoping"),
    "simulator.md": ("sim",),
    "topics.md": ("protocol/topics",),
}

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(r"(?<![\w/.:~$-])(?:[\w.-]+/)+[\w.*-]*|\b[\w-]+\.(?:py|md|toml|json|svg|html|jsonl\.gz)\b")
NAME = re.compile(r"--[a-z][a-z-]*|[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
SECTION = re.compile(r"\]\((([\w./-]*)#([\w-]+))\)")
CAMEL = re.compile(r"_?[A-Z][a-z0-9]+\w*$")

# Names of other programs and libraries, of files that users have or that runs make, and words of examples.
EXTERNAL = set((Path(__file__).parent / "external_names.txt").read_text().split())


def spans(page: Path) -> Iterator[str]:
    """Inline code of a page."""
    return iter(dict.fromkeys(SPAN.findall(FENCE.sub("", page.read_text()))))


@cache
def trees() -> dict[Path, ast.Module]:
    paths = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path: ast.parse(path.read_text()) for path in paths}


@cache
def names_by_file() -> dict[Path, set[str]]:
    return {path: set(names_in(tree)) for path, tree in trees().items()}


@cache
def classes() -> dict[str, set[str]]:
    """Every class, and what it and the classes that it names as its bases have."""
    members: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                members.setdefault(node.name, set()).update(names_in(node))
                bases.setdefault(node.name, set()).update(name.split(".")[-1] for name in map(ast.unparse, node.bases))
    for name, inherited in bases.items():
        members[name].update(*(members.get(base.split("[")[0], ()) for base in inherited))
    return members


def names_in(tree: ast.AST) -> Iterator[str]:
    """Every name in a piece of source, and what strings without spaces hold."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name):
                yield from name.split(".")
            case ast.Constant(value=str(text)):  # of prose only the options
                yield from re.findall(r"--[a-z][a-z-]*" if " " in text else r"--[a-z][a-z-]*|[A-Za-z_]\w*", text)


@cache
def modules() -> dict[str, set[str]]:
    """The package's modules and what is in each, by every end of their dotted names: `core.ids`, `ids`.

    What the classes of a module inherit counts as in it.
    """
    found: dict[str, set[str]] = {}
    for path, names in names_by_file().items():
        if path.is_relative_to(ROOT / "src"):
            parts = path.relative_to(ROOT / "src").with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            made = [node.name for node in trees()[path].body if isinstance(node, ast.ClassDef)]
            for start in range(len(parts)):
                found.setdefault(".".join(parts[start:]), set()).update(names, *map(classes().__getitem__, made))
    return found


@cache
def strings() -> set[str]:
    """Strings of the source that are names as they stand, such as those of files."""
    constants = (node.value for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str) and NAME.fullmatch(value)}


@cache
def known() -> set[str]:
    """Every single name: of source, settings files, make targets, dependencies."""
    names = EXTERNAL.union(kwlist, *names_by_file().values())
    for path in {*(ROOT / "tests").rglob("*.py")} - {Path(__file__)}:
        names |= set(re.findall(r"^(?:def|class) (\w+)", text := path.read_text(), re.MULTILINE))
        names |= set(re.findall(r"\"((?:--)?[\w-]+)\"", text))
    for path in (*ROOT.glob("scenarios/*.toml"), *(ROOT / "src").rglob("*.toml"), ROOT / "pyproject.toml"):
        names |= set(re.findall(r"\w+", path.read_text()))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names |= {word for group in groups for line in group for word in re.findall(r"\w+", line)}
    return names | set(re.findall(r"\w+", (ROOT / "Makefile").read_text()))


@cache
def tracked() -> frozenset[str]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("which files are tracked is known only in a git checkout")
    listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return frozenset(listed.split("\n"))


def is_file(name: str, page: Path) -> bool:
    """Is there such a file or folder: from the top, in the package, beside the page, or anywhere by its name alone?"""
    if "/" not in name:
        return any(Path(path).name == name for path in tracked())
    return any(any(base.glob(name.rstrip("/"))) for base in (*BASES, page.parent))


def is_name(name: str) -> bool:
    """Does a name stand for something: a class, a member of one, a module, something in one, or any single name?"""
    if name in EXTERNAL or name in modules():
        return True
    *owners, last = name.split(".")
    if owners and owners[-1] in classes():
        return last in classes()[owners[-1]]
    if owners:
        owner, found = ".".join(owners), modules()
        inside = found.get(owner, known()) | found.get(f"{owner}.config", set())  # also settings: `topics.lease_s`
        return (last in inside and all(map(is_name, owners))) or name in strings()
    return name in classes() if CAMEL.match(name) and name not in known() else name in known()


def unknown(span: str, page: Path) -> Iterator[str]:
    for path in PATH.findall(span):
        if path not in EXTERNAL and not is_file(path.partition("::")[0], page):
            yield path
    for name in NAME.findall(PATH.sub(" ", span)):
        if not is_name(name):
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert [(span, name) for span in spans(page) for name in unknown(span, page)] == []


@pytest.mark.parametrize("page", DESCRIBED)
def test_the_page_of_a_package_names_each_of_its_modules(page: str) -> None:
    named = {path.rpartition("/")[2] for span in spans(ROOT / "docs" / page) for path in PATH.findall(span)}
    modules = (path for package in DESCRIBED[page] for path in (ROOT / "src/quillcast" / package).rglob("*.py"))
    assert sorted(path.name for path in modules if not path.stem.startswith("__") and path.name not in named) == []


def test_pages_that_the_source_names_exist() -> None:
    named = (
        (str(path.relative_to(ROOT)), page)
        for path in trees()
        for page in re.findall(r"[\w/.-]+\.md\b", path.read_text())
    )
    assert [(path, page) for path, page in named if not is_page(page, (ROOT / path).parent)] == []


def is_page(name: str, folder: Path) -> bool:
    return any((base / name).is_file() for base in (ROOT, ROOT / "docs", folder))


def test_links_to_sections_lead_to_headings() -> None:
    broken = [
        (str(page.relative_to(ROOT)), link)
        for page in PAGES
        for link, target, section in SECTION.findall(page.read_text())
        if section not in sections((page.parent / target) if target else page)
    ]
    assert broken == []


def sections(page: Path) -> set[str]:
    """How links name a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def longest_chain() -> list[str]:
    """The longest way from the command line down. The package itself loads what it names when that is used."""
    graph = import_graph()

    @cache
    def below(module: str) -> list[str]:
        ways = [below(other) for other in graph[module] if other != "quillcast"]
        return [module, *max(ways, key=len, default=[])]

    return max((below(module) for module in graph if module.startswith("quillcast.cli")), key=len)


def test_the_import_chain_that_is_drawn_is_the_longest() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    chain = re.search(r"longest import chain has (\d+) modules.*?```\n(.*?)\n```", page, re.DOTALL)
    assert chain is not None
    names, package = list[str](), ""
    for line in chain[2].splitlines():
        package = line.split()[0] if line[0] != " " else package
        names += [f"quillcast.{package}.{name}" for name in line.removeprefix(package).replace("→", "").split()]
    assert len(names) == int(chain[1]) == len(longest := longest_chain()), longest
    for name, imported in pairwise(names):
        source = (ROOT / "src" / Path(*name.split("."))).with_suffix(".py").read_text()
        parent, _, last = imported.rpartition(".")
        assert f"from {imported} import" in source or re.search(rf"from {parent} import .*\b{last}\b", source)


def test_external_names_are_used() -> None:
    """Names that no page uses any more leave the list."""
    words = {word for page in PAGES for span in spans(page) for word in (*PATH.findall(span), *NAME.findall(span))}
    words |= {part for word in words for part in word.split(".")}
    assert sorted(EXTERNAL - words) == []


def test_a_name_that_does_not_exist_is_noticed() -> None:
    page = ROOT / "README.md"
    wrong = [
        "Node.absentee",
        "live.absentee",
        "Absentee",
        "--absentee",
        "docs/absentee.md",
        "absentee.py",
        "absent_setting",
    ]
    assert [name for name in wrong if not list(unknown(name, page))] == []
    right = ["Node.publish", "live.node", "ForwardingTable.move", "--wait", "docs/live.md", "node.py", "lease_s"]
    assert [name for name in right if list(unknown(name, page))] == []
