"""Promises about the words of a question: one for a secret is flagged in many spellings, others are left alone."""

from __future__ import annotations

import time

import pytest

from ipysandbox.questions import LastLine, is_for_a_secret, worded

SECRET = """
Password: |Enter passphrase for key '/home/me/.ssh/id':|[sudo] password for me:|API key?|API-Key:|apikey=|PIN: |PASS:
Your token:|GitHub token (ghp_...)|OTP:|your seed phrase|Passwort:|Kennwort eingeben|Mot de passe :|clé d'API
Contraseña:|Senha:|Palavra-passe:|Wachtwoord:|Lösenord|Adgangskode|Salasana|Hasło:|Heslo:|Jelszó:|şifre|PAROLĂ
Пароль:|Κωδικός πρόσβασης|密码：|請輸入密碼|パスワード:|비밀번호|كلمة المرور|סיסמה:|รหัสผ่าน|पासवर्ड|mật khẩu|kata sandi
p a s s w o r d|P.a.s.s.w.o.r.d|pаsswоrd|pass\u200bword|p4ssw0rd|ｐａｓｓｗｏｒｄ|PA\u0301SSWORD|pass-word
"""
OTHER = """
your name? |go on? [y/n] |How many epochs?|spin the wheel?|pinned version?|compass direction|Which bypass?|file name:
tokenizer name?|secretary?|next passenger?|Wie heißt du?|passing grade|number: 4031|opinion?|Quel âge ?|名前は？
"""


def _each(texts: str) -> list[str]:
    return [text for line in texts.strip("\n").split("\n") for text in line.split("|")]


@pytest.mark.parametrize("prompt", _each(SECRET))
def test_a_question_for_a_secret_is_flagged(prompt: str) -> None:
    first, second = worded(prompt, "sandbox").split("\n")
    assert first.startswith("ipysandbox: this reads like a question for a password")
    assert second == f"[sandbox] {prompt}"


@pytest.mark.parametrize("prompt", _each(OTHER))
def test_an_ordinary_question_is_not(prompt: str) -> None:
    assert worded(prompt, "sandbox") == f"[sandbox] {prompt}"


def test_each_line_says_who_asks() -> None:
    assert worded("a\nb\r\nc\u2028d", "box").split("\n") == ["[box] a", "[box] b", "[box] c", "[box] d"]


@pytest.mark.parametrize("part", ["pass", "p ", "api_", "\u0301", "_", "mot_de_"])
def test_no_question_takes_long_to_read(part: str) -> None:
    began = time.perf_counter()
    is_for_a_secret(part * (1000 // len(part)))
    assert time.perf_counter() - began < 0.5


@pytest.mark.parametrize(
    ("printed", "prompt"),
    [
        (["Password: "], ""),
        (["Pass"], "word: "),
        (["Pa", "ss", "wor", "d: "], ""),
        (["Password:\n"], ""),
        (["Password:\n", "\n", "  \n"], "> "),
        (["old line\rPassword: "], ""),
        (["Pass\x1b[1mword: "], ""),
        (["Passx\bword: "], ""),
        (["x" * 50_000, "\n", "Password: "], ""),
    ],
)
def test_what_was_printed_before_a_question_counts(printed: list[str], prompt: str) -> None:
    last = LastLine()
    for text in printed:
        last.feed(text)
    assert worded(prompt, "sandbox", last).startswith("ipysandbox: this reads like a question for a password")


@pytest.mark.parametrize(
    ("printed", "prompt"),
    [("no password is needed\n", "go on? "), ("no password is needed\nReady\n", ""), ("Loading … ", "your name? ")],
)
def test_what_was_printed_before_an_ordinary_question_does_not(printed: str, prompt: str) -> None:
    last = LastLine()
    last.feed(printed)
    assert worded(prompt, "sandbox", last) == f"[sandbox] {prompt}"


@pytest.mark.parametrize(
    ("printed", "way"),
    [
        ("", ""),
        ("a line\n", ""),
        ("begun", "\n"),
        ("\x1b[31mred\n", "\x1b[0m\x1b[J"),
        ("two\nlines\n\x1b[A", "\x1b[0m\x1b[J\n"),
    ],
)
def test_the_way_is_cleared_once(printed: str, way: str) -> None:
    last = LastLine()
    last.feed(printed)
    assert last.clear_way() == way
    assert last.clear_way() == ""
