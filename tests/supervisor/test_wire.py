"""The relay's parser: signed and plain, or not at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.supervisor.wire import DELIMITER, BadMessage, Message, new_header, pack, sign, unpack

KEY = b"key"


def frames(*parts: bytes, key: bytes = KEY) -> list[bytes]:
    return [DELIMITER, sign(key, parts), *parts]


def test_a_message_survives_the_way_there_and_back() -> None:
    message = Message(new_header("execute_request", "s"), {"a": 1}, {}, {"code": "ü 🧪"}, [b"id"], [b"\x00raw"])
    back = unpack(pack(message, KEY), KEY)
    assert (back.header, back.parent, back.content, back.idents, back.buffers) == (
        message.header,
        {"a": 1},
        {"code": "ü 🧪"},
        [b"id"],
        [b"\x00raw"],
    )


def test_what_is_too_large_is_told_from_its_header_and_not_read() -> None:
    request = {"msg_id": "asked"}
    sent = frames(b'{"msg_type":"x_reply"}', json.dumps(request).encode(), b"{}", b"no JSON at all" * 1000)
    message = unpack(sent, KEY, most=10_000)
    assert (message.type, message.parent_id, message.content["status"]) == ("x_reply", "asked", "error")
    with pytest.raises(BadMessage, match="not JSON"):
        unpack(sent, KEY, most=20_000)
    with pytest.raises(BadMessage, match="large headers"):
        unpack(frames(b'{"a":"' + b"x" * (2 << 20) + b'"}', b"{}", b"{}", b"{}"), KEY, most=10_000)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([b"x"], "no delimiter"),
        ([DELIMITER, b"sig", b"{}", b"{}", b"{}"], "frames"),
        (frames(b"{}", b"{}", b"{}", b"{}", key=b"other"), "wrong signature"),
        (frames(b"{}", b"{}", b"{}", b"[]"), "not an object"),
        (frames(b"{}", b"{}", b"{}", b"\xff"), "not JSON"),
        (frames(b"{}", b"{}", b"{}", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "not JSON|nested"),
        (frames(b"{}", b"{}", b"{}", b'{"a":' + b"[" * 100 + b"]" * 100 + b"}"), "nested"),
        (frames(b"{}", b"{}", b"{}", b'{"a":[' + b"[]," * 1_000_000 + b"0]}"), "too many items"),
        (frames(b"{}", b"{}", b"{}", b'{"a":' + b"9" * 1_000_000 + b"}"), "not JSON|nested"),
    ],
)
def test_what_is_no_message_is_refused_by_name(bad: list[bytes], reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        unpack(bad, KEY)


def test_a_long_text_of_brackets_and_commas_is_just_a_text() -> None:
    text = '[1,2],{"a\\"b"}' * 200_000
    message = Message(new_header("stream", "s"), {}, {}, {"name": "stdout", "text": text})
    assert unpack(pack(message, KEY), KEY).content["text"] == text


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":"' + b"a," * 1_000_000,
        b'{"a":"' + b'\\",' * 1_000_000,
        b'{"a":' + b'"\\\\",' * 1_000_000,
        b'{"a":[' + b'"",' * 1_000_000 + b"0]}",
        b'{"a":"' + b"\\\\," * 1_000_000 + b'\\"',
    ],
    ids=["no end", "escaped quotes", "escaped escapes", "many strings", "escapes and no end"],
)
def test_a_long_text_that_is_no_json_is_refused_after_one_look(text: bytes) -> None:
    with pytest.raises(BadMessage):
        unpack(frames(b"{}", b"{}", b"{}", text), KEY)


def test_nan_and_infinity_become_null() -> None:
    content = unpack(frames(b"{}", b"{}", b"{}", b'{"a": NaN, "b": -Infinity}'), KEY).content
    assert json.dumps(content, allow_nan=False) == '{"a": null, "b": null}'


@given(st.lists(st.binary(max_size=60), max_size=12))
def test_no_frames_raise_anything_but_bad_message(rubbish: list[bytes]) -> None:
    with pytest.raises(BadMessage):
        unpack([*rubbish, DELIMITER], KEY)
    try:
        unpack(frames(*(rubbish + [b"{}"] * 4)[:4]), KEY)
    except BadMessage:
        assert any(part != b"{}" for part in rubbish[:4])
