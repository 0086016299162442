"""Plug-ins: parts of an experiment that a factory makes, either built in or from another package.

A `Kind` is a registry of factories: policies, modifiers, topologies, workloads and metrics have one each. A name in an
experiment is a built-in one, that of an entry point of an installed package, or `module:factory`. Parentheses after it
hold arguments: `mine:Nearest(16)`. All three are found and called in the same way.
"""

import hashlib
import inspect
import os
import re
import sys
import sysconfig
import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quillcast.core.errors import LocalError, QuillcastError
from quillcast.core.extensions import offered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = "quillcast"
DEBUG = "QUILLCAST_DEBUG"  # leaves exceptions as they are, for their tracebacks


class PluginFailed(LocalError):
    """A plug-in is missing, is of another kind, or raised an exception; the text names it and the remedy."""


class Kind(NamedTuple):
    """A kind of plug-ins.

    Args:
        name: for people.
        entry_points: the group of entry points in which packages offer such plug-ins.
        makes: the class of what a factory returns.
        built_in: names, each with its `module:factory`.
    """

    name: str
    entry_points: str
    makes: type
    built_in: Mapping[str, str]

    def names(self) -> list[str]:
        """The names of all plug-ins of this kind."""
        return sorted({*self.built_in, *offered(self.entry_points)})

    def knows(self, text: str) -> bool:
        """Whether the text names a plug-in of this kind: one of `names`, or `module:factory`."""
        name, _ = _parsed(text)
        return name in self.names() or bool(re.fullmatch(r"[A-Za-z_][\w.-]*:[A-Za-z_][\w.]*", name))

    def make(self, text: str, *given: object, within: str = "", **named: object) -> Any:
        """Call the factory that the text names, with `given` and then the arguments in the text's parentheses.

        `within` is the whole text for errors, if this is a part of it. `named` are further arguments, by name.
        Raises `LocalError` with the known names, or with the factory's arguments; `PluginFailed` if it cannot be used.
        """
        name, arguments = _parsed(text)
        reference = self._reference(name)
        if reference is None:
            near = get_close_matches(name, self.names(), n=1)
            hint = f"did you mean {near[0]}? Known" if near else "known"
            where = f"{within or text!r}: " if (within or text) != name else ""
            raise LocalError(
                f"{where}there is no {self.name} {name!r}; {hint}: {', '.join(self.names())}; "
                "for one of your own, write module:Class"
            )
        factory = _imported(f"{self.name} {name}", reference)
        try:
            signature = inspect.signature(factory)
            signature.bind(*given, *arguments, **named)
        except TypeError:
            if foreign := [each for each in named if each not in signature.parameters]:
                raise LocalError(f"{self.name} {name} takes no {foreign[0]}; leave it out") from None
            known = [each for each in signature.parameters.values() if each.kind is not each.KEYWORD_ONLY]
            takes = ", ".join(map(str, known[len(given) :])) or "nothing"
            raise LocalError(f"{within or text!r}: {name} takes {takes} in parentheses") from None
        with blaming(factory, f"{self.name} {text} cannot be made"):
            made = factory(*given, *arguments, **named)
        if not isinstance(made, self.makes):
            wanted = f"{self.makes.__module__}.{self.makes.__qualname__}"
            raise PluginFailed(
                f"{text} is not a {self.name}: it makes a {type(made).__qualname__} and not a {wanted}; "
                f"return one, or derive its class from that"
            )
        return made

    def portable(self, text: str) -> str:
        """The same plug-in by its `module:factory`, for machines where its package has no entry points."""
        name, _ = _parsed(text)
        reference = None if name in self.built_in else self._reference(name)
        return text if reference is None else text.replace(name, reference, 1)

    def package(self, text: str) -> str:
        """The top package of the factory that the text names, if the text names one."""
        name, _ = _parsed(text)
        return (self._reference(name) or "").partition(":")[0].partition(".")[0]

    def _reference(self, name: str) -> str | None:
        if name in self.built_in:
            return self.built_in[name]
        if ":" in name:
            return name
        entry = offered(self.entry_points).get(name)
        return None if entry is None else entry.value


def _parsed(text: str) -> tuple[str, list[int | str]]:
    """The name, and the arguments in parentheses."""
    match = re.fullmatch(r"\s*([A-Za-z_][\w.-]*(?::[A-Za-z_][\w.]*)?)\s*(?:\((.*)\))?\s*", text)
    if match is None:
        return text.strip(), []
    parts = (part.strip() for part in split(match[2] or "", ","))
    return match[1], [int(part) if re.fullmatch(r"\d+", part) else part for part in parts if part]


def split(text: str, separator: str) -> list[str]:
    """Split at separators that are not in parentheses."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _imported(what: str, reference: str) -> Callable[..., Any]:
    module, _, attribute = reference.partition(":")
    if (here := str(Path.cwd())) not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        made: Callable[..., Any] = attrgetter(attribute)(import_module(module))
    except ModuleNotFoundError as error:
        remedy = f"install the package that has it, or start where {(error.name or module).partition('.')[0]}.py is"
        raise PluginFailed(f"{what} cannot be imported: there is no module {error.name}; {remedy}") from error
    except AttributeError as error:
        raise PluginFailed(f"{what} cannot be imported: {error}; correct the name after the colon") from error
    except Exception as error:
        if DEBUG in os.environ:
            raise
        raise _failed(f"{what} cannot be imported", module.partition(".")[0], error) from error
    if not callable(made):
        raise PluginFailed(f"{what} is a {type(made).__name__}, which cannot be called; name a class or a function")
    return made


@contextmanager
def blaming(plugin: object, what: str) -> Iterator[None]:
    """Report an exception in this block as a failure of the plug-in, unless it is one of ours. `what` names it."""
    try:
        yield
    except QuillcastError:
        raise
    except Exception as error:
        if not is_foreign(plugin) or DEBUG in os.environ:
            raise
        raise _failed(what, package_of(plugin), error) from error


def is_foreign(plugin: object) -> bool:
    """Whether a plug-in, or its factory, is from another package."""
    return package_of(plugin) != OURS


def package_of(plugin: object) -> str:
    """The top package of a plug-in or its factory."""
    return str(plugin.__module__).partition(".")[0]


def _failed(what: str, package: str, error: Exception) -> PluginFailed:
    """The error for an exception of a plug-in. It names the last line in the plug-in's package."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        file = Path(frame.filename)
        if package in {file.stem, *file.parts}:
            where = f" ({file.name}, line {frame.lineno})"
    told = " ".join(str(error).split())
    return PluginFailed(f"{what}: {type(error).__name__}: {told}{where}; correct it there")


def ship(spark: "SparkSession", packages: Iterable[str], scratch: str, *, everywhere: bool) -> None:
    """Have Spark send packages of plug-ins to its workers.

    Those that are installed in this Python are sent only with `everywhere`, to workers on other machines.
    """
    for name in sorted(packages):
        installed = all(root.is_relative_to(sysconfig.get_path("purelib")) for root in _roots(name))
        if installed and not everywhere:
            continue
        archive = _zipped(name, Path(scratch))
        if hasattr(spark, "_jvm"):
            spark.sparkContext.addPyFile(str(archive))
        else:
            spark.addArtifacts(str(archive), pyfile=True)


def digest(package: str) -> str:
    """A digest of all files of a package or module."""
    content = hashlib.sha256()
    for path, inside in _files(package).items():
        content.update(b"%b %d " % (str(inside).encode(), path.stat().st_size))
        content.update(path.read_bytes())
    return content.hexdigest()[:12]


def _zipped(package: str, scratch: Path) -> Path:
    """An archive of a package or module, named after its content, because Spark keeps the first file of a name."""
    archive = scratch / f"{package}-{digest(package)}.zip"
    written = archive.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(written, "w") as made:
        for path, inside in _files(package).items():
            made.write(path, inside)
    return written.replace(archive)


def _files(package: str) -> dict[Path, Path]:
    """The files of a package or module, in order, and their places in an archive."""
    return {
        path: path.relative_to(root.parent)
        for root in _roots(package)
        for path in (sorted(root.rglob("*")) if root.is_dir() else [root])
        if path.is_file() and "__pycache__" not in path.parts
    }


def _roots(package: str) -> list[Path]:
    """The folders of a package, or the file of a module."""
    spec = find_spec(package)
    found = [spec.origin, *(spec.submodule_search_locations or [])] if spec else []
    return [Path(place) for place in found[1:] or found if place]
