"""The demo's output while it runs: a live picture in a terminal, plain lines elsewhere."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from quillcast.demo.roles import children_of
from quillcast.demo.state import State
from quillcast.demo.watch import TopicView

NOTES_SHOWN = 9
BEAT_S = 0.5  # one bar in the picture of deliveries
BEATS = 48
PLAIN_EVERY_S = 2.0
BARS = " ▁▂▃▄▅▆▇█"


class Display(Protocol):
    """Where the conductor reports its progress. A context manager that tidies up at its end."""

    def __enter__(self) -> "Display": ...

    def __exit__(self, *error: object) -> None: ...

    def phase(self, text: str) -> None:
        """A phase of the demo begins."""
        ...

    def note(self, text: str) -> None:
        """Something happened that deserves a line."""
        ...

    def show(self, draw: Callable[[], Iterable[str]]) -> None:
        """Draw this now, and on a terminal from now on instead of the tree."""
        ...

    def tick(self) -> None:
        """The state has changed."""
        ...


def display(console: Console, state: State) -> Display:
    """The display that suits the console."""
    return LiveDisplay(console, state) if console.is_terminal else PlainDisplay(console, state)


class PlainDisplay:
    """Prints a line for each happening, and one about rates every other second."""

    def __init__(self, console: Console, state: State) -> None:
        self._console, self._state = console, state
        self._rates = Rates(state)
        self._said_at = state.began

    def __enter__(self) -> "PlainDisplay":
        self._print(self._state.title)
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def phase(self, text: str) -> None:
        self.note(text)

    def note(self, text: str) -> None:
        self._print(f"{self._state.elapsed_s:5.1f} s  {text}")

    def show(self, draw: Callable[[], Iterable[str]]) -> None:
        for line in draw():
            self._print(f"         {line}")

    def tick(self) -> None:
        self._rates.beat()
        if self._state.streaming and time.monotonic() - self._said_at >= PLAIN_EVERY_S:
            self._said_at = time.monotonic()
            self.note(self._rates.words())

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class LiveDisplay:
    """The busiest topic's tree, rates and happenings, redrawn a few times a second."""

    def __init__(self, console: Console, state: State) -> None:
        self._console, self._state = console, state
        self._rates = Rates(state)
        self._notes: list[tuple[float, str]] = []
        self._phase = ""
        self._draw: Callable[[], Iterable[str]] | None = None
        self._drawn: list[str] = []
        self._live = Live(get_renderable=self._picture, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "LiveDisplay":
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the last picture on the screen."""
        self._live.__exit__(None, None, None)
        self._console.print(Text(self._state.title, style="bold"), self._story(self._notes))
        if self._drawn:
            self._console.print(self._drawing(self._drawn), soft_wrap=True)

    def phase(self, text: str) -> None:
        self._phase = text

    def note(self, text: str) -> None:
        self._notes.append((self._state.elapsed_s, text))

    def show(self, draw: Callable[[], Iterable[str]]) -> None:
        self._draw, self._drawn = draw, [*draw()]

    def tick(self) -> None:
        self._rates.beat()

    def _picture(self) -> RenderableType:
        head = Table.grid(expand=True)
        head.add_column()
        head.add_column(justify="right")
        head.add_row(Text(self._state.title, style="bold"), f"{self._state.elapsed_s:.0f} s")
        head.add_row(Text(self._phase, style="cyan"), "")
        body = Table.grid(expand=True, padding=(0, 2))
        body.add_column(ratio=2)
        body.add_column(ratio=3)
        news = self._story(self._notes[-NOTES_SHOWN:])
        body.add_row(
            self._tree() if self._draw is None else self._drawing(self._draw()),
            Group(self._topics(), "", self._bars(), "", news),
        )
        return Group(head, Rule(style="dim"), Padding(body, (0, 1)))

    @staticmethod
    def _story(notes: Sequence[tuple[float, str]]) -> RenderableType:
        """What happened when."""
        story = Table.grid(padding=(0, 2, 0, 0))
        story.add_column(justify="right", style="dim", no_wrap=True)
        story.add_column()
        for at_s, text in notes:
            story.add_row(f"{at_s:.1f} s", Text(text, style="red" if text.startswith("SIGKILL") else ""))
        return story

    @staticmethod
    def _drawing(lines: Iterable[str]) -> RenderableType:
        return Text("\n".join(lines), no_wrap=True)

    def _tree(self) -> RenderableType:
        view = self._state.watch.topic(self._state.busiest)
        parents = view.parents(self._state.dead)
        tree = Tree(Text(f"{self._state.busiest or 'no topic yet'}", style="bold"), guide_style="dim")
        children = children_of(parents)
        known: set[bytes] = set()

        def draw(branch: Tree, peer: bytes) -> None:
            known.add(peer)
            twig = branch.add(self._label(peer, view, is_root=parents.get(peer, b"") is None))
            for child in children.get(peer, []):
                if child not in known:
                    draw(twig, child)

        for peer, parent in sorted(parents.items()):
            if parent is None:
                draw(tree, peer)
        lost = [
            peer for peer in {**parents, **view.without_parent} if peer not in known and peer not in self._state.dead
        ]
        for peer in lost:
            tree.add(Text(f"{self._state.name(peer)} looks for a parent", style="yellow"))
        for peer in self._state.dead:
            tree.add(Text(f"{self._state.name(peer)} killed", style="red strike"))
        return tree

    def _label(self, peer: bytes, view: TopicView, *, is_root: bool) -> Text:
        name = self._state.name(peer)
        if is_root:
            return Text.assemble((name, "bold magenta"), (" root", "magenta"), self._counted(peer, view))
        if peer in view.subscribers:
            return Text.assemble((name, "green"), self._counted(peer, view))
        return Text.assemble((name, "blue"), (" forwards", "blue"))

    def _counted(self, peer: bytes, view: TopicView) -> tuple[str, str]:
        return (f" {view.delivered[peer]:,}" if peer in view.subscribers else "", "dim")

    def _topics(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, expand=True)
        table.add_column("topic", no_wrap=True, overflow="ellipsis")
        for column in ("subscribers", "published", "delivered", "due"):
            table.add_column(column, justify="right")
        for view in sorted(self._state.watch.topics.values(), key=lambda view: view.name):
            due = sum(view.behind(self._state.dead).values())
            counts = (len(view.subscribers), view.published, view.delivered.total(), due)
            table.add_row(view.name, *[f"{count:,}" for count in counts])
        return table

    def _bars(self) -> RenderableType:
        words = self._rates.words() if self._state.streaming else ""
        return Group(Text(self._rates.bars(), style="green", no_wrap=True), Text(words, style="dim"))


class Rates:
    """How much was published and delivered recently."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._beats: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)], maxlen=BEATS + 1)

    def beat(self) -> None:
        """Record the counts, once per `BEAT_S`."""
        now = self._state.elapsed_s
        if now - self._beats[-1][0] >= BEAT_S:
            self._beats.append((now, self._state.watch.published_count, self._state.watch.delivered_count))

    def words(self) -> str:
        """The rates over the last two seconds, and the totals."""
        since, then = self._beats[-1], self._beats[max(-5, -len(self._beats))]
        seconds = max(since[0] - then[0], BEAT_S)
        rates = [(since[at] - then[at]) / seconds for at in (1, 2)]
        watch = self._state.watch
        return (
            f"{rates[0]:,.0f} events/s published, {rates[1]:,.0f}/s delivered; "
            f"{watch.published_count:,} events, {watch.delivered_count:,} deliveries"
        )

    def bars(self) -> str:
        """Deliveries per beat as a row of bars, the latest on the right."""
        beats = list(self._beats)
        steps = [after[2] - before[2] for before, after in pairwise(beats)]
        top = max(steps, default=0) or 1
        return "".join(BARS[-(-step * (len(BARS) - 1) // top)] for step in steps).rjust(BEATS)
