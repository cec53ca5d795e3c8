"""No known secret leaves, in whatever usual form and wherever text was cut; nothing else is touched."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import io
import itertools
import json
import re
import struct
import time
import urllib.parse
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.output import Cleaner, KnownSecrets
from ipysandbox.output.redact import Redactor

TOKEN = "sk-proj-9fK2xQ7vLm4RtYw8ZbN1cD6e"
PASSWORD = "p/ss<w&rd=é"
SHORT = "hunter2!"
LONG = "".join(f"{n:02x}" for n in (number * 167 % 256 for number in range(400)))
VALUES = {"OPENAI_API_KEY": (TOKEN,), "PGPASSWORD": (PASSWORD,), "SHORT_TOKEN": (SHORT,), "LONG_KEY": (LONG,)}
SECRETS = KnownSecrets(VALUES)

ENCODERS = {
    "itself": lambda s: s,
    "reversed": lambda s: s[::-1],
    "repr": repr,
    "json": json.dumps,
    "json, not ASCII": lambda s: json.dumps(s, ensure_ascii=False),
    "bytes": lambda s: str(s.encode()) if s.isascii() else s,
    **{f"base64 after {n}": lambda s, n=n: base64.b64encode(b"x" * n + s.encode() + b"y").decode() for n in range(6)},
    **{f"url-safe base64 after {n}": lambda s, n=n: base64.urlsafe_b64encode(b"?" * n + s.encode()).decode()
       for n in range(3)},
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
    "hex, spaced": lambda s: s.encode().hex(" "),
    "hex, colons": lambda s: s.encode().hex(":"),
    "\\x": lambda s: "".join(f"\\x{b:02x}" for b in s.encode()),
    "quote": urllib.parse.quote,
    "quote all": lambda s: urllib.parse.quote(s, safe=""),
    "quote plus": urllib.parse.quote_plus,
    "every byte quoted": lambda s: "".join(f"%{b:02X}" for b in s.encode()),
    "form data": lambda s: urllib.parse.urlencode({"k": s}),
    "html": html.escape,
}  # fmt: skip


def traces(secret: str) -> list[str]:
    """What would give a secret away in its plain, reversed, base64 or hex form."""
    data = secret.encode()
    digits = [base64.b64encode(b"x" * n + data).decode()[4:-4] for n in range(3)]
    return [secret, secret[::-1], data.hex(), data.hex().upper(), *(text for text in digits if len(text) > 7)]


@pytest.mark.parametrize("how", ENCODERS)
@pytest.mark.parametrize("name", VALUES)
def test_every_usual_form_is_replaced_by_the_name(name: str, how: str) -> None:
    (secret,) = VALUES[name]
    shown = Redactor(SECRETS).text(f"before {ENCODERS[how](secret)} after")
    assert f"•••{name}•••" in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert not [trace for trace in traces(secret) if trace in shown]


@pytest.mark.parametrize("size", [8, 11, 12, 14, 15, 16, 20, 22, 23, 38, 39, 71, 255, 256, 257, 1000])
def test_secrets_of_every_length_are_found_wherever_they_lie(size: int) -> None:
    secret = "".join(chr(33 + number * 67 % 90) for number in range(size))
    redactor = Redactor(KnownSecrets({"KEY": (secret,)}))
    for at in range(40):
        assert redactor.text("." * at + secret + ".") == "." * at + "•••KEY•••."


def test_secrets_beside_and_inside_each_other_are_all_replaced() -> None:
    redactor = Redactor(
        KnownSecrets({"A": ("first-secret-1",), "B": ("second-secret-2",), "C": ("x/first-secret-1/y",)})
    )
    assert redactor.text("first-secret-1second-secret-2") == "•••A••••••B•••"
    assert redactor.text("x/first-secret-1/y") == "•••C•••"
    assert redactor.text("first-secret-1 first-secret-1") == "•••A••• •••A•••"


def test_a_secret_that_is_learned_later_is_looked_for_from_then_on() -> None:
    secrets = KnownSecrets()
    redactor = Redactor(secrets)
    assert redactor.stream("stdout", TOKEN) == TOKEN
    secrets.learn({"LATE": (TOKEN,)})
    assert redactor.stream("stdout", f" {TOKEN}\n") == " •••LATE•••\n"
    assert TOKEN not in repr(secrets)


NOT_CAUGHT = {
    "half of it": TOKEN[: len(TOKEN) // 2] + "\n",
    "gaps": " ".join(TOKEN),
    "another case": TOKEN.swapcase(),
    "colours": "\x1b[31m".join(TOKEN),
    "base64 in lines": base64.encodebytes(b"x" * 50 + TOKEN.encode()).decode(),
    "base32": base64.b32encode(TOKEN.encode()).decode(),
    "base64 twice": base64.b64encode(base64.b64encode(TOKEN.encode())).decode(),
    "numbers": str(list(TOKEN.encode())),
    "compressed": base64.b64encode(zlib.compress(TOKEN.encode())).decode(),
}


@pytest.mark.parametrize("how", NOT_CAUGHT)
def test_what_is_not_caught_is_as_documented(how: str) -> None:
    assert Redactor(SECRETS).text(NOT_CAUGHT[how]) == NOT_CAUGHT[how]


# ---- streams

HONEST = st.text(st.characters(codec="utf-8", exclude_characters="•"), max_size=30)
SECRET_TEXT = st.sampled_from([encode(secret) for (secret,) in VALUES.values() for encode in ENCODERS.values()])


def cut(text: str, places: list[float]) -> list[str]:
    at = [0, *sorted(int(place * len(text)) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(at)]


def shown_by(redactor: Redactor, chunks: list[tuple[str, str]]) -> dict[str, str]:
    """All that a front end shows of each stream, and of both in order, where the cell ends after the last."""
    shown = {"stdout": "", "stderr": "", "all": ""}

    def show(name: str, text: str) -> None:
        shown[name] += text
        shown["all"] += text

    for name, text in chunks:
        for held in redactor.release(but=name):
            show(*held)
        show(name, redactor.stream(name, text))
    for held in redactor.release():
        show(*held)
    return shown


@given(st.lists(HONEST | SECRET_TEXT, max_size=6), st.lists(st.floats(0, 1), max_size=8))
def test_no_cut_lets_a_secret_through(parts: list[str], places: list[float]) -> None:
    shown = shown_by(Redactor(SECRETS), [("stdout", chunk) for chunk in cut("".join(parts), places)])["stdout"]
    for (secret,) in VALUES.values():
        assert not [trace for trace in traces(secret) if trace in shown]


@given(st.text(st.characters(codec="utf-8"), max_size=200), st.lists(st.floats(0, 1), max_size=8))
def test_honest_text_passes_unchanged_and_at_once(text: str, places: list[float]) -> None:
    redactor = Redactor(SECRETS)
    chunks = cut(text, places)
    assert [redactor.stream("stdout", chunk) for chunk in chunks] == chunks
    assert redactor.release() == []


@given(
    st.sampled_from([secret for (secret,) in VALUES.values()]),
    st.lists(st.floats(0, 1), max_size=6),
    st.lists(st.sampled_from(["stdout", "stderr"]), min_size=7, max_size=7),
)
def test_a_secret_split_over_both_streams_is_not_shown(secret: str, places: list[float], names: list[str]) -> None:
    shown = shown_by(Redactor(SECRETS), list(zip(names, cut(f"a {secret} b", places), strict=False)))
    for text in shown.values():
        assert secret not in text


def test_a_stream_interrupted_by_the_other_is_joined_again() -> None:
    shown = shown_by(Redactor(SECRETS), [("stdout", TOKEN[:20]), ("stderr", "warning\n"), ("stdout", TOKEN[20:])])
    assert TOKEN not in shown["stdout"]
    assert shown["stderr"] == "warning\n"


def test_only_a_telling_beginning_is_held_back_and_what_turns_out_harmless_is_shown() -> None:
    redactor = Redactor(SECRETS)
    assert redactor.stream("stdout", "key: sk-proj") == "key: sk-proj"  # 7 characters, as in many a prompt
    assert redactor.stream("stdout", "ect") == "ect"
    assert redactor.stream("stdout", f"\n{TOKEN[:12]}") == "\n"
    assert redactor.stream("stdout", " is how they begin\n") == f"{TOKEN[:12]} is how they begin\n"


def test_what_is_held_back_at_the_end_is_shown_as_the_secret_and_so_is_its_rest() -> None:
    redactor = Redactor(SECRETS)
    assert redactor.stream("stdout", f"key {TOKEN[:-1]}") == "key "
    assert redactor.release() == [("stdout", "•••OPENAI_API_KEY•••")]
    assert redactor.release() == []
    assert redactor.stream("stdout", TOKEN[-1] + "\n") == "•••OPENAI_API_KEY•••\n"


def test_the_cost_does_not_grow_with_the_secrets_nor_with_hostile_output() -> None:
    values = [base64.b85encode(hashlib.sha256(bytes([n])).digest()).decode() for n in range(200)]
    many = KnownSecrets({f"KEY_{n}": (value,) for n, value in enumerate(values)})

    def seconds(secrets: KnownSecrets, text: str) -> float:
        best = 1e9
        for _ in range(3):
            redactor = Redactor(secrets)
            begin = time.process_time()
            redactor.stream("stdout", text)
            best = min(best, time.process_time() - begin)
        return best

    honest = "the quick brown fox jumps over the lazy dog 0123456789\n" * 40_000
    begin = time.process_time()
    assert honest.translate({9: None})
    scale = time.process_time() - begin  # Python's own look at each character, on this machine and now
    assert seconds(many, honest) < scale + 0.05
    assert seconds(many, values[7][1:] * 50_000) < 20 * scale + 0.5
    # What most forms have in common, again and again, at each way to lie.
    plain = hashlib.sha256(b"").hexdigest()[:24]
    one = KnownSecrets({"PASSWORD": ("p@ss/w&rd'+%" + plain,)})
    worst = max(seconds(one, plain[at : at + 8] * 250_000) for at in range(16))
    assert worst < 10 * scale + 0.1


def test_a_secret_is_found_among_any_number_of_its_parts() -> None:
    redactor = Redactor(KnownSecrets({"KEY": (TOKEN,)}))
    for at in range(len(TOKEN) - 8):
        part = TOKEN[at : at + 8]
        for before in range(8):
            text = "-" * before + part * 1_000
            assert redactor.text(f"{text}{TOKEN}{text}{TOKEN}") == f"{text}•••KEY•••{text}•••KEY•••"


# ---- messages


@pytest.fixture
def cleaner() -> Cleaner:
    return Cleaner(sandbox="main", secrets=SECRETS)


def show(cleaner: Cleaner, data: dict[str, object]) -> dict[str, object]:
    cleaned = cleaner.clean("display_data", {"data": data, "metadata": {}, "transient": {}})
    assert cleaned is not None
    return cleaned["data"]  # type: ignore[no-any-return]


MESSAGES = {
    "stream": {"name": "stdout", "text": f"a {TOKEN}"},
    "error": {"ename": TOKEN, "evalue": f"no {TOKEN}", "traceback": [f"\x1b[31m{TOKEN}\x1b[0m", "line 2"]},
    "execute_reply": {
        "status": "error", "ename": "E", "evalue": TOKEN, "traceback": [TOKEN],
        "user_expressions": {TOKEN: {"status": "ok", "data": {"text/plain": TOKEN}, "metadata": {}}},
    },
    "execute_result": {
        "data": {"text/plain": TOKEN, "application/json": {TOKEN: [TOKEN, {"k": TOKEN}]}}, "metadata": {},
    },
    "inspect_reply": {"status": "ok", "found": True, "data": {"text/plain": TOKEN}, "metadata": {}},
    "complete_reply": {"status": "ok", "matches": [TOKEN], "cursor_start": 0, "cursor_end": 0, "metadata": {}},
    "history_reply": {"status": "ok", "history": [[1, 1, TOKEN], [1, 2, [TOKEN, TOKEN]]]},
    "input_request": {"prompt": f"{TOKEN}? ", "password": False},
    "kernel_info_reply": {"status": "ok", "banner": TOKEN},
}  # fmt: skip


@pytest.mark.parametrize("kind", MESSAGES)
def test_no_kind_of_message_shows_a_secret(cleaner: Cleaner, kind: str) -> None:
    shown = json.dumps(cleaner.clean(kind, MESSAGES[kind]), ensure_ascii=False)
    assert TOKEN not in shown
    assert "•••OPENAI_API_KEY•••" in shown


def test_the_name_of_an_unknown_type_shows_no_secret_in_lower_case_either(cleaner: Cleaner) -> None:
    shown = show(cleaner, {f"application/x-{TOKEN}": "x"})
    assert TOKEN.lower() not in json.dumps([shown, cleaner.notes]).lower()


@pytest.mark.parametrize("mime", ["text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml"])
def test_no_kind_of_text_shows_a_secret(cleaner: Cleaner, mime: str) -> None:
    wrapped = '<svg xmlns="http://www.w3.org/2000/svg"><text>{}</text></svg>' if "svg" in mime else "<p>{}</p>"
    for secret in (TOKEN, PASSWORD):
        text = str(show(cleaner, {mime: wrapped.format(html.escape(secret) if "<" in wrapped else secret)})[mime])
        assert secret not in html.unescape(text)
        assert "•••" in text


@pytest.mark.parametrize(
    "markup",
    [
        "<p title='{}'>x</p>".format(TOKEN),  # noqa: UP032 - the quotes
        "<p>" + "".join(f"&#{ord(c)};" for c in TOKEN) + "</p>",
        "<p>" + "".join(f"<b>{c}</b>" for c in TOKEN) + "</p>",
        f"<p>{TOKEN[:9]}<!-- -->{TOKEN[9:]}</p>",
        f"<img src='data:image/png;base64,{base64.b64encode(TOKEN.encode()).decode()}'>",
    ],
)
def test_markup_hides_no_secret_in_entities_elements_or_attributes(cleaner: Cleaner, markup: str) -> None:
    for mime in ("text/html", "text/markdown"):
        shown = "".join(map(str, show(cleaner, {mime: markup}).values()))
        assert TOKEN not in html.unescape(shown)
        assert not [trace for trace in traces(TOKEN) if trace in shown]


def test_taking_a_secret_out_of_markup_leaves_no_open_attribute() -> None:
    secrets = KnownSecrets({"ODD": ('q7"><b>w8e9r0',)})
    cleaner = Cleaner(secrets=secrets)
    shown = show(cleaner, {"text/html": '<p title="q7"><b>w8e9r0</b></p>'})
    assert "w8e9r0" not in str(shown)
    assert cleaner.notes == ["text/html left out: it holds a secret of this machine"]


def png(*chunks: tuple[bytes, bytes], after: bytes = b"") -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0\7")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunk(*pair) for pair in chunks) + body + after


def test_a_png_leaves_without_texts_and_shows_the_same_picture(cleaner: Cleaner) -> None:
    from PIL import Image

    data = TOKEN.encode()
    full = png(
        (b"gAMA", struct.pack(">I", 45455)),
        (b"tEXt", b"Comment\0" + data),
        (b"zTXt", b"Comment\0\0" + zlib.compress(data)),
        (b"iTXt", b"Comment\0\0\0\0\0" + data),
        (b"prVt", data),
        after=data,
    )
    shown = base64.b64decode(str(show(cleaner, {"image/png": base64.b64encode(full).decode()})["image/png"]))
    assert data not in shown
    assert not [kind for kind in (b"tEXt", b"zTXt", b"iTXt", b"prVt") if kind in shown]
    before, after = (Image.open(io.BytesIO(picture)) for picture in (full, shown))
    assert (before.tobytes(), before.info["gamma"]) == (after.tobytes(), after.info["gamma"])
    assert cleaner.notes == []


def test_a_picture_or_document_with_a_secret_in_its_bytes_is_left_out(cleaner: Cleaner) -> None:
    frame = b"\xff\xd8\xff\xc0" + struct.pack(">HBHH", 8, 8, 1, 1) + b"\0"
    for secret in (TOKEN.encode(), TOKEN.encode().hex().encode(), base64.b64encode(TOKEN.encode())):
        jpeg = frame + b"\xff\xda\0\2" + secret + bytes(20)  # where the picture's points are
        for mime, data in {"image/jpeg": jpeg, "application/pdf": b"%PDF-1.7 " + secret}.items():
            assert show(cleaner, {mime: base64.b64encode(data).decode()}) == {
                "text/plain": f"[output left out: {mime}]"
            }
    assert len([note for note in cleaner.notes if "it holds a secret" in note]) == 2


def test_a_secret_split_over_outputs_is_not_shown_whole(cleaner: Cleaner) -> None:
    first = show(cleaner, {"text/plain": f"a {TOKEN[:15]}"})["text/plain"]
    second = show(cleaner, {"text/plain": f"{TOKEN[15:]} b"})["text/plain"]
    assert (first, second) == ("a •••OPENAI_API_KEY•••", "•••OPENAI_API_KEY••• b")
    streamed = cleaner.clean("stream", {"name": "stdout", "text": TOKEN[:7]})
    third = show(cleaner, {"text/plain": TOKEN[7:]})["text/plain"]
    assert streamed == {"name": "stdout", "text": TOKEN[:7]}
    assert third == "•••OPENAI_API_KEY•••"


def test_controls_between_the_letters_hide_nothing(cleaner: Cleaner) -> None:
    text = "\0".join(TOKEN[:10]) + "\x1b]0;title\x07" + TOKEN[10:]
    assert cleaner.clean("stream", {"name": "stdout", "text": text}) == {
        "name": "stdout",
        "text": "•••OPENAI_API_KEY•••",
    }


def test_texts_in_a_value_are_redacted_and_its_form_stays(cleaner: Cleaner) -> None:
    reply = {"status": "ok", "tree": {"t": "dict", "v": [["a", 1], [TOKEN, [1.5, None, f"x{PASSWORD}", True]]]}}
    assert cleaner.clean_value(reply) == {
        "status": "ok",
        "tree": {"t": "dict", "v": [["a", 1], ["•••OPENAI_API_KEY•••", [1.5, None, "x•••PGPASSWORD•••", True]]]},
    }
    honest = {"status": "ok", "tree": [1, "text"]}
    assert cleaner.clean_value(honest) is honest


def test_a_secret_is_gone_from_what_is_packed_into_a_frame() -> None:
    cleaner = Cleaner(html="isolate", secrets=KnownSecrets({"API_TOKEN": [TOKEN]}))
    content = {"data": {"text/html": f"<script>show('{TOKEN}')</script>"}, "metadata": {}}
    shown = cleaner.clean("display_data", content)
    assert shown is not None
    frame = html.unescape(html.unescape(shown["data"]["text/html"]))
    packed = re.findall(r'octet-stream" data-for="[^"]*">([^<]*)<', frame)
    [content] = [gzip.decompress(base64.b64decode(one)).decode() for one in packed]
    assert TOKEN not in content
    assert "•••API_TOKEN•••" in content
