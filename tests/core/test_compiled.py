"""What the compiler makes of a module is what the interpreter makes of it: rules that keep it so (docs/decisions)."""

import ast
import importlib
import tomllib
from pathlib import Path

import msgspec
import pytest

from quillcast.core.host import Timer

ROOT = Path(__file__).parents[2]
COMPILED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["quillcast"]["compiled"]
HARMLESS = {"len", "min", "max"}


def name_of(module: str) -> str:
    return module.removesuffix(".py").replace("/", ".")


@pytest.mark.parametrize("module", COMPILED)
def test_no_bound_of_a_slice_does_anything_for_mypyc_evaluates_it_twice(module: str) -> None:
    slices = [node for node in ast.walk(ast.parse((ROOT / "src" / module).read_text())) if isinstance(node, ast.Slice)]
    calls = [node for slice_ in slices for node in ast.walk(slice_) if isinstance(node, ast.Call | ast.NamedExpr)]
    assert [ast.unparse(call) for call in calls if getattr(getattr(call, "func", None), "id", "") not in HARMLESS] == []


@pytest.mark.parametrize("module", COMPILED)
def test_structs_are_frozen_by_their_base_for_mypyc_drops_the_keywords_of_a_class(module: str) -> None:
    found = importlib.import_module(name_of(module))
    own = [thing for thing in vars(found).values() if getattr(thing, "__module__", "") == found.__name__]
    structs = [thing for thing in own if isinstance(thing, type) and issubclass(thing, msgspec.Struct)]
    assert [struct for struct in structs if not struct.__struct_config__.frozen] == []
    assert [struct for struct in structs if not issubclass(struct, Timer)] == [], "has it more keywords than frozen?"
