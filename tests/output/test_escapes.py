"""A known secret is found however honest code escapes it, and however often that is escaped again."""

from __future__ import annotations

import html
import itertools
import json
import quopri
import re
import shlex
import time
import unicodedata
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.output import KnownSecrets
from ipysandbox.output.redact import Redactor

VALUES = {
    "UMLAUTS": "Pässwörd-mit-ß",
    "QUOTES": "it's \"quoted\" 'twice'",
    "BACKSLASHES": r"dom\nick\\x41\u00e4\t9",
    "ENDS": '\\"begins\'and-ends"\\',
    "SLASHES": "https/and//on/</and>?",
    "MARKUP": "R&D<b>'x'&lt;9>&amp;",
    "PERCENT": "50%25off%zz%41+1 =x",
    "BEYOND": "schlüssel🔑€'\"",
    "CYRILLIC": "пароль№\"'/7",
    "BASE64": "aB3/dE5+fG7/hI9+kL==",
    "MIXED": "p/ss<w&rd='é\"\\",
}
SECRETS = KnownSecrets({name: (value,) for name, value in VALUES.items()})


def lower(text: str) -> str:
    return re.sub("%..", lambda match: match[0].lower(), text)


def json_in_capitals(text: str) -> str:
    return "".join(c if c.isascii() else re.sub("u....", lambda m: "u" + m[0][1:].upper(), escape)
                   for c, escape in ((c, json.dumps(c)[1:-1]) for c in text))  # fmt: skip


def named(text: str) -> str:
    """As ``htmlentities`` of PHP and editors have it."""
    names = {
        ord(sign[0]): entity for sign, entity in ((v, k) for k, v in html.entities.html5.items()) if len(sign) == 1
    }
    return "".join(
        f"&{names[ord(c)].rstrip(';')};" if ord(c) in names and not c.isascii() else html.escape(c) for c in text
    )


ENCODERS: dict[str, Callable[[str], str]] = {
    "ascii": ascii,
    "repr": repr,
    "repr of bytes": lambda s: repr(s.encode()),
    "repr of a list": lambda s: repr([s, "it's"]),
    "unicode_escape": lambda s: s.encode("unicode_escape").decode(),
    "backslashreplace": lambda s: s.encode("ascii", "backslashreplace").decode(),
    "namereplace": lambda s: s.encode("ascii", "namereplace").decode(),
    "json": json.dumps,
    "json in capitals": json_in_capitals,
    "json, not ASCII": lambda s: json.dumps(s, ensure_ascii=False),
    "json of PHP": lambda s: json.dumps(s).replace("/", "\\/"),
    "json in scripts": lambda s: (
        json.dumps(s).replace("<", "\\u003c").replace(">", "\\u003E").replace("&", "\\u0026").replace("'", "\\u0027")
    ),
    "html": html.escape,
    "html of elements": lambda s: html.escape(s, quote=False),
    "html by Jinja": lambda s: html.escape(s, quote=False).replace('"', "&#34;").replace("'", "&#39;"),
    "html by PHP": lambda s: html.escape(s).replace("&#x27;", "&#039;"),
    "html, one kind of quotes": lambda s: html.escape(s).replace("&#x27;", "'"),
    "html, both kinds named": lambda s: html.escape(s).replace("&#x27;", "&apos;"),
    "xmlcharrefreplace": lambda s: s.encode("ascii", "xmlcharrefreplace").decode(),
    "html, ASCII": lambda s: html.escape(s).encode("ascii", "xmlcharrefreplace").decode(),
    "html, hex": lambda s: "".join(c if c.isascii() else f"&#x{ord(c):x};" for c in s),
    "html, HEX": lambda s: "".join(c if c.isascii() else f"&#x{ord(c):X};" for c in s),
    "html, named": named,
    "quote": urllib.parse.quote,
    "quote all": lambda s: urllib.parse.quote(s, safe=""),
    "quote plus": urllib.parse.quote_plus,
    "quote, lower case": lambda s: lower(urllib.parse.quote(s, safe="")),
    "encodeURI": lambda s: urllib.parse.quote(s, safe=";/?:@&=+$,#-_.!~*'()"),
    "encodeURIComponent": lambda s: urllib.parse.quote(s, safe="-_.!~*'()"),
    "encodeURI, lower case": lambda s: lower(urllib.parse.quote(s, safe=";/?:@&=+$,#-_.!~*'()")),
    "octal, as git has it": lambda s: "".join(
        chr(b) if b < 128 and chr(b) not in '"\\' else f"\\{b:03o}" if b > 127 else "\\" + chr(b) for b in s.encode()
    ),
}
NESTED = {
    "repr of repr": lambda s: repr(repr(s)),
    "repr of repr of repr": lambda s: repr(repr(repr(s))),
    "a dict with JSON in it": lambda s: str({"body": json.dumps({"key": s})}),
    "JSON in JSON": lambda s: json.dumps({"body": json.dumps({"key": s})}),
    "JSON in JSON in JSON": lambda s: json.dumps(json.dumps(json.dumps([s]))),
    "JSON in an attribute": lambda s: f'<div data-x="{html.escape(json.dumps(s))}">',
    "HTML in JSON": lambda s: json.dumps({"html": f"<p>{html.escape(s)}</p>"}),
    "HTML in HTML": lambda s: html.escape(html.escape(s)),
    "JSON in an address": lambda s: "?q=" + urllib.parse.quote(json.dumps({"key": s})),
    "an address in an address": lambda s: urllib.parse.quote(urllib.parse.quote(s, safe=""), safe=""),
    "an address in JSON": lambda s: json.dumps({"url": "https://x/?k=" + urllib.parse.quote(s, safe="")}),
    "an address in HTML": lambda s: html.escape("?a=1&k=" + urllib.parse.quote(s, safe="-_.!~*'()")),
    "repr of bytes in a repr": lambda s: repr({"a": repr(s.encode())}),
    "repr of JSON in bytes": lambda s: repr(json.dumps({"a": s}, ensure_ascii=False).encode()),
}
ALL = {**ENCODERS, **NESTED}


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("name", VALUES)
def test_every_way_to_escape_is_replaced_by_the_name(name: str, how: str) -> None:
    written = ALL[how](VALUES[name])
    shown = Redactor(SECRETS).text(f"before\n{written}\nafter")
    assert shown.startswith("before\n")
    assert shown.endswith("\nafter")
    mark = f"•••{name}•••"
    assert shown.count(mark) == 1
    # Nothing else than what the encoder puts around it; backslashes that it begins or ends with may stay.
    around = len(ALL[how]("")) + (30 if VALUES[name].endswith("\\") else 8)
    assert len(shown) <= len(f"before\n{mark}\nafter") + around


SIGNS = st.sampled_from("äößéЖ€🔑\"'\\/&<>%;#=+ -_x4u09amp")
NOT_CAUGHT = {
    "CSV": lambda _: VALUES["QUOTES"].replace('"', '""'),
    "shlex.quote": shlex.quote,
    "quoted-printable": lambda s: quopri.encodestring(s.encode()).decode(),
    "decomposed": lambda s: unicodedata.normalize("NFD", s),
}


@pytest.mark.parametrize("how", NOT_CAUGHT)
def test_what_is_not_caught_is_as_documented(how: str) -> None:
    written = NOT_CAUGHT[how](VALUES["MIXED"])
    assert Redactor(SECRETS).text(written) == written


#: Any, also with what looks like escapes.
PASSWORDS = st.text(SIGNS, min_size=10, max_size=24).filter(
    lambda s: s.strip() == s and len(re.sub(r"[\\%&#;0-9a-fxump]", "", s)) > 5
)


@given(PASSWORDS, st.sampled_from(sorted(ALL)), st.booleans())
def test_no_password_is_shown_escaped(password: str, how: str, others: bool) -> None:
    more = {f"OTHER_{n}": (f"other'{n}\"secret",) for n in range(20)} if others else {}
    shown = Redactor(KnownSecrets({"KEY": (password,), **more})).text(f"- {ALL[how](password)} -")
    assert "•••KEY•••" in shown
    ends = len(password) - len(password.strip("\\"))
    assert len(shown) <= len("- •••KEY••• -") + len(ALL[how]("")) + 16 + 10 * ends


@given(
    st.sampled_from(sorted(VALUES)), st.sampled_from(sorted(ALL)), st.lists(st.floats(0, 1), max_size=8), st.booleans()
)
def test_no_cut_lets_an_escaped_secret_through(name: str, how: str, places: list[float], other: bool) -> None:
    secret = VALUES[name]
    text = f"before\n{ALL[how](secret)}\nafter"
    at = [0, *sorted(int(place * len(text)) for place in places), len(text)]
    redactor, shown = Redactor(SECRETS), ""
    for begin, end in itertools.pairwise(at):
        for _, held in redactor.release(but="stdout") if other else ():
            shown += held
        shown += redactor.stream("stdout", text[begin:end])
    shown += "".join(held for _, held in redactor.release())
    assert f"•••{name}•••" in shown
    # What was shown before it was known for one is fewer than eight letters of it, escaped, backslashes not counted.
    begun = ALL[how](secret[:10])
    assert len(shown) <= len(f"before\n•••{name}•••\nafter") + len(ALL[how]("")) + len(begun) + 10


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("name", VALUES)
def test_letter_by_letter_no_more_than_a_beginning_is_shown(name: str, how: str) -> None:
    redactor = Redactor(SECRETS)
    written = ALL[how](VALUES[name])
    shown = "".join(redactor.stream("stdout", letter) for letter in f"before\n{written}\nafter\n")
    shown += "".join(held for _, held in redactor.release())
    assert shown.startswith("before\n")
    assert shown.endswith("\nafter\n")
    assert f"•••{name}•••" in shown
    plain = html.unescape(urllib.parse.unquote(shown))
    assert VALUES[name][7:] not in plain


def test_long_secrets_are_found_whole() -> None:
    secret = "".join(f"{n:x}'ä\"/" for n in range(700))
    redactor = Redactor(KnownSecrets({"LONG": (secret,)}))
    for how, encode in ALL.items():
        shown = redactor.text(f"before\n{encode(secret)}\nafter")
        assert "•••LONG•••" in shown, how
        assert len(shown) < 200, how


HONEST = st.text(st.sampled_from("abc019xu&;#%\\\"'/<>ä€🔑\n ampltquo"), max_size=200)


@given(HONEST, st.lists(st.floats(0, 1), max_size=8))
def test_text_full_of_escapes_passes_unchanged(text: str, places: list[float]) -> None:
    redactor = Redactor(SECRETS)
    at = [0, *sorted(int(place * len(text)) for place in places), len(text)]
    chunks = [text[begin:end] for begin, end in itertools.pairwise(at)]
    assert [redactor.stream("stdout", chunk) for chunk in chunks] == chunks


def test_binary_data_is_searched_too() -> None:
    redactor = Redactor(SECRETS)
    data = bytes(range(256)) * 4
    assert redactor.holds_in(data) is None
    assert redactor.holds_in(data + repr(VALUES["MIXED"]).encode() + data) == "MIXED"
    assert redactor.holds_in(data + ascii(VALUES["UMLAUTS"]).encode() + data) == "UMLAUTS"


@pytest.mark.parametrize(
    "text",
    ["\\", '\\"', "&amp;", "&", "&#39;", "%41", "%25", "%", "\\u00e4", "p/ss&lt;", "ss\\x3c", "\\N{", "&aaaaaaaaaaa"],
)
def test_hostile_escapes_cost_no_more_than_their_length(text: str) -> None:
    def seconds(size: int) -> float:
        best = 1e9
        for _ in range(3):
            redactor = Redactor(SECRETS)
            begin = time.process_time()
            redactor.stream("stdout", text * (size // len(text)))
            best = min(best, time.process_time() - begin)
        return best

    assert seconds(400_000) < 8 * seconds(100_000) + 0.05
