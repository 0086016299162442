"""Questions to a running peer: each is a struct, and a malformed one is refused in one clear line."""

import msgspec
import pytest

from quillcast.core.errors import LocalError
from quillcast.live.discovery.questions import OF_CLIENTS, OF_NODES, PeerQuestion, TreeQuestion, name_of, understood


@pytest.mark.parametrize("codec", [msgspec.json, msgspec.msgpack])
def test_a_question_is_its_name_and_its_fields(codec: object) -> None:
    line = codec.encode({"ask": "tree", "topic": "t"})  # type: ignore[attr-defined]
    assert understood(line, OF_NODES, codec) == TreeQuestion("t", 2.0)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"ask": "nonsense"}', "'nonsense' is not a question; ask one of: status, topics"),
        (b"{}", "None is not a question"),
        (b'{"ask": ["tree"]}', r"\['tree'\] is not a question"),
        (b'{"ask": "tree"}', "the question 'tree' is not understood: .*missing required field `topic`"),
        (b'{"ask": "tree", "topic": 5}', r"the question 'tree' is not understood: Expected `str`, got `int`"),
        (b'{"ask": "tree", "topic": "t", "depth": 5}', "unknown field `depth`.*; use the same version of quillcast"),
        (b"tree", "the question is not understood"),
        (b"", "the question is not understood"),
    ],
)
def test_a_malformed_question_is_refused_in_one_line(line: bytes, why: str) -> None:
    with pytest.raises(LocalError, match=why) as refused:
        understood(line, OF_NODES)
    assert "\n" not in str(refused.value)


def test_no_two_questions_have_the_same_name() -> None:
    kinds: tuple[type[PeerQuestion], ...] = (*OF_NODES, *OF_CLIENTS)
    assert len({name_of(kind) for kind in kinds}) == len(kinds)
