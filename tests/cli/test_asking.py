"""Queries pass over peers that are leaving: a peer on its way out does not fail `top`, `check` or `tree`."""

import re
from pathlib import Path
from typing import Any

import pytest

from quillcast.cli import asking
from quillcast.core.errors import Leaving, Unreachable
from quillcast.live.discovery.questions import StatusQuestion
from quillcast.live.discovery.registry import Entry

OLD, YOUNG = (Entry(id_byte * 16, f"127.0.0.1:{number}", number, number) for number, id_byte in enumerate(("a1", "b2")))
QUESTION = StatusQuestion()
GONE = Leaving("the peer at 127.0.0.1:0 is leaving its network")


def answer_with(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> None:
    """Let two peers run here, which give these answers (by nodeId)."""

    def ask(path: Path, *_: object, **__: object) -> Any:
        answer = next(answer for node_id, answer in answers.items() if node_id.startswith(path.name.partition(".")[0]))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(asking, "ask", ask)
    monkeypatch.setattr(asking, "peers_here", lambda _: [OLD, YOUNG])


def test_a_query_goes_to_the_oldest_peer_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, {OLD.node_id: "old", YOUNG.node_id: "young"})
    assert asking.ask_peer("n", "", QUESTION, str) == "old"
    answer_with(monkeypatch, {OLD.node_id: GONE, YOUNG.node_id: "young"})
    assert asking.ask_peer("n", "", QUESTION, str) == "young"
    answer_with(monkeypatch, {OLD.node_id: GONE, YOUNG.node_id: GONE})
    with pytest.raises(Leaving):
        asking.ask_peer("n", "", QUESTION, str)


def test_a_peer_that_does_not_answer_is_named_with_its_process_and_another_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = Unreachable("the peer at /run/a1.sock does not answer (timed out)")
    silent.__cause__ = TimeoutError("timed out")
    answer_with(monkeypatch, {OLD.node_id: silent, YOUNG.node_id: "young"})
    monkeypatch.setattr(asking, "choose", lambda _, prefix: [OLD] if prefix else [OLD, YOUNG])
    asking._tell_once.cache_clear()
    told = "peer a1a1a1a1 (process 0) does not answer; is it stopped?"
    assert asking.ask_peer("n", "", QUESTION, str) == "young"
    assert asking.ask_peer("n", "", QUESTION, str) == "young"
    assert capsys.readouterr().err == f"quillcast: {told}\n"
    assert asking.answered([(YOUNG, None), (OLD, "old")]) == ["old"]
    assert "peer b2b2b2b2 (process 1) does not answer" in capsys.readouterr().err
    with pytest.raises(Unreachable, match="peer b2b2b2b2"):
        asking.answered([(YOUNG, None)])
    monkeypatch.setattr(asking, "choose", lambda *_: [OLD, YOUNG])
    expected = f"^{re.escape(told)}; other peers here: b2b2b2b2$"
    with pytest.raises(Unreachable, match=expected):
        asking.ask_peer("n", "a1", QUESTION, str)
    answer_with(monkeypatch, {OLD.node_id: silent, YOUNG.node_id: GONE})
    with pytest.raises(Unreachable, match=f"^{re.escape(told)}$"):
        asking.ask_peer("n", "", QUESTION, str)


def test_peers_that_leave_are_not_among_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, {OLD.node_id: GONE, YOUNG.node_id: "young"})
    assert asking.ask_each("n", [OLD, YOUNG], QUESTION, str) == [(YOUNG, "young")]
    assert asking.ask_each("n", [], QUESTION, str) == []
    with pytest.raises(Leaving):
        asking.ask_each("n", [OLD], QUESTION, str)
