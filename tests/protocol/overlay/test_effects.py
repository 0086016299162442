"""Effects are yielded lazily: if nobody iterates over the effects of a call, the call does nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path

OVERLAY = Path(__file__).parents[3] / "src" / "quillcast" / "protocol" / "overlay"
OWNERS = {"agreement": "Agreement", "joining": "OverlayJoin", "lost_peers": "LostPeers"}
"""The attribute of `Pastry` for each part that yields effects."""


def yielding(trees: list[ast.Module]) -> dict[str, set[str]]:
    """The methods of each class that yield effects."""
    return {
        part.name: {
            method.name
            for method in part.body
            if isinstance(method, ast.FunctionDef) and method.returns and ast.unparse(method.returns) == "Effects"
        }
        for tree in trees
        for part in tree.body
        if isinstance(part, ast.ClassDef)
    }


def dropped(trees: list[ast.Module]) -> Iterator[str]:
    """Calls whose effects are ignored."""
    methods = yielding(trees)
    for part in (part for tree in trees for part in tree.body if isinstance(part, ast.ClassDef)):
        lazy = {f"self.{name}" for name in methods[part.name]}
        lazy |= {f"self.{owner}.{name}" for owner, class_ in OWNERS.items() for name in methods[class_]}
        for node in ast.walk(part):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                called = ast.unparse(node.value.func)
                if called in lazy:
                    yield f"{part.name}: {called}"


def test_no_effect_is_dropped() -> None:
    trees = [ast.parse(path.read_text()) for path in sorted(OVERLAY.glob("*.py"))]
    assert {class_ for class_, methods in yielding(trees).items() if methods} == set(OWNERS.values())
    assert list(dropped(trees)) == []


def test_a_call_whose_effects_are_ignored_is_detected() -> None:
    text = """
class Agreement:
    def lost(self) -> Effects:
        self._repair()
    def _repair(self) -> Effects:
        yield SearchRing()
class OverlayJoin: ...
class LostPeers: ...
class Pastry:
    def lost(self):
        self.agreement.lost()
"""
    assert list(dropped([ast.parse(text)])) == ["Agreement: self._repair", "Pastry: self.agreement.lost"]
