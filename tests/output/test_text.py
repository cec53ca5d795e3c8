"""Terminal text keeps letters, colours and progress bars, and no other control, however it is cut into pieces."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipysandbox.output import TextCleaner, clean_text

KEPT = re.compile(r"\x1b\[(?:[0-9;:]*m|[0-2]?K|[0-9]{0,3}A)")


def controls(text):
    return [c for c in KEPT.sub("", text) if (c < " " and c not in "\n\r\t\b") or "\x7f" <= c <= "\x9f" or c == "\x1b"]


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m and \x1b[1;38;5;200mbold\x1b[m",
        "\x1b[38:2::1:2:3mtrue colour\x1b[0m",
        "a\tb\r\nstep 1\rstep 2\bx",
        "naïve café — 数据 — Δx ≤ 5 µm — 🧪 ä\u0308\u0308",
        "العربية עברית ไทย",
        "a\nb\x1b[A\x1b[2Kc",
        "zero width\u200djoiner \u200f mark",
    ],
)
def test_ordinary_text_is_untouched(text):
    assert clean_text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b]52;c;Y3VybA==\x07b", "ab"),
        ("\x1b]8;;https://sink.test\x1b\\report.pdf\x1b]8;;\x1b\\", "report.pdf"),
        ("\x1b]0;title\nnext", "\nnext"),
        ("\x1bP1$r\x1b\\\x1b_app\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\x", "x"),
        ("\x1b]never ended", ""),
        ("\x1b]cut by \x1b[31mred", "\x1b[31mred"),
        ("\x9d52;c;eA==\x9c \x9b2J", "52;c;eA== 2J"),
        ("\x1b[6n\x1b[c\x1b[?1049h\x1b[2J\x1b[H\x1b[5;5Hx", "x"),
        ("\x1b[?25lx\x1b[?25h", "x"),
        ("\x1bcx\x1b(B\x1b7\x1b8\x1b=", "x"),
        ("\x1b\x1b[31m[2J", "\x1b[31m[2J"),
        ("\x1b[3\n1m", "\n1m"),
        ("\x1b\x00[2J", "[2J"),
        ("bell\x07 null\x00 feed\x0c del\x7f nel\x85", "bell null feed del nel"),
        ("user\u202egpj.exe\u2066x", "user‹U+202E›gpj.exe‹U+2066›x"),
        ("\ud800x\udfff", "\ufffdx\ufffd"),
        ("\x1b[AX", "X"),
        ("a\n\x1b[5AX", "a\nX"),
        ("\x1b[" + "1;" * 100 + "mX", "X"),
        # What conceals text (8), and its opposite (28), among colours of that number.
        ("\x1b[8mX\x1b[28m", "X"),
        ("\x1b[008mX", "X"),
        ("\x1b[8:1mX", "X"),
        ("\x1b[1;8;31mX", "\x1b[1;31mX"),
        ("\x1b[;8mX", "\x1b[mX"),
        ("\x1b[38;5;8;8mX", "\x1b[38;5;8mX"),
        ("\x1b[48;2;8;28;8mX", "\x1b[48;2;8;28;8mX"),
        ("\x1b[38:5:8mX", "\x1b[38:5:8mX"),
        ("\x1b[038;05;8mX", "\x1b[038;05;8mX"),
        ("\x1b[58;5;8mX", "X"),
        ("\x1b[38;2;8mX", "X"),
        ("\x1b[38;8mX", "X"),
    ],
)
def test_controls_are_removed(text, shown):
    assert clean_text(text) == shown


def test_nested_progress_bars_keep_their_movements():
    bars = "outer: 10%\n\rinner: 50%\x1b[A\router: 20%\n\r\x1b[K\x1b[A"
    assert clean_text(bars) == bars


def test_moves_up_never_leave_the_streams_own_lines():
    cleaner = TextCleaner()
    assert cleaner.feed("one\n") == "one\n"
    assert cleaner.feed("\x1b[A") == "\x1b[A"
    assert cleaner.feed("\x1b[A") == ""


PIECES = st.text(
    st.one_of(
        st.sampled_from("\x1b\x1b[]P\\_^X;:0129mKAJHhc\x07\x9b\x9c\x9d\x18\n\r\b ab\u202e\ud800"), st.characters()
    ),
    max_size=60,
)


@given(PIECES)
@settings(max_examples=1500, deadline=None)
def test_cleaned_text_holds_no_control_and_is_stable(text):
    cleaned = clean_text(text)
    assert not controls(cleaned)
    assert clean_text(cleaned) == cleaned
    assert len(cleaned) <= 8 * len(text)


@given(st.lists(PIECES, max_size=6))
@settings(max_examples=800, deadline=None)
def test_a_stream_shows_the_same_however_it_is_cut(pieces):
    cleaner = TextCleaner()
    shown = "".join(map(cleaner.feed, pieces))
    assert shown == clean_text("".join(pieces))
    assert not controls(shown)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_control_string_cut_in_two_stays_out(cut):
    text = "\x1b]52;c;eA==\x1b\\"
    cleaner = TextCleaner()
    assert cleaner.feed(text[:cut]) + cleaner.feed(text[cut:] + "shown") == "shown"


def test_a_long_unfinished_string_holds_nothing_back_for_ever():
    cleaner = TextCleaner()
    cleaner.feed("\x1b]")
    for _ in range(20):
        cleaner.feed("a" * 100_000)
    assert cleaner.feed("back") == "back"


@pytest.mark.parametrize("unit", ["\x1b", "\x1b]", "\x1b[", "\x1b[1;", "\x1b[31m", "\x1b]a\x07", "\x9d", "\x1bP\x1b"])
def test_time_grows_with_the_length_only(unit):
    def seconds(count):
        start = time.process_time()
        clean_text(unit * count)
        return time.process_time() - start

    small = max(min(seconds(20_000) for _ in range(3)), 0.002)
    assert seconds(200_000) < 40 * small
