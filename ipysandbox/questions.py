"""Words a sandbox's question (``input()``) for people: who asks, and whether it reads like one for a secret."""

from __future__ import annotations

import re
import unicodedata

_WARNING = "ipysandbox: this reads like a question for a password or key. What you type goes to the code, and is shown."
#: What secrets are called, as it is looked for in any text without regard to accents, case and what joins the words.
#: Sources: how login pages, ssh, git, sudo and wallets of these languages ask.
_WORDS = """
    password passwords passwd passphrase passcode passwort kennwort kennworter geheimzahl losungswort zugangsdaten
    wachtwoord toegangscode pincode losenord adgangskode kodeord passord salasana tunnussana jelszo heslo haslo
    lozinka zaporka geslo parola parole slaptazodis sifre contrasena contrasenya senha contrasinal codigo_secreto
    clave_de_acceso clave_privada clave_api frase_de_contrasena palavra_passe chave_de_api chave_secreta
    mot_de_passe phrase_de_passe phrase_secrete code_secret cle_api cle_d_api cle_privee identifiants_de_connexion
    parola_d_ordine chiave_api chiave_privata frase_segreta kata_sandi mat_khau fjalekalimi
    api_key access_key secret_key private_key ssh_key license_key api_schlussel privater_schlussel zugriffsschlussel
    pass_word pass_phrase pass_code credentials credential seed_phrase recovery_phrase recovery_code mnemonic_phrase
    security_code verification_code one_time_code card_number bestatigungscode code_de_verification
    codigo_de_verificacion
    пароль пароля пароли парола лозинка секретный_ключ пин_код токен код_подтверждения κωδικος_προσβασης συνθηματικο
    密码 密碼 口令 令牌 密钥 密鑰 验证码 驗證碼
    パスワード パスフレーズ 暗証番号 トークン 秘密鍵 비밀번호 암호 토큰 인증번호
    รหัสผ่าน पासवर्ड پاسورد كلمة_المرور كلمة_السر الرقم_السري رمز_المرور گذرواژه رمز_عبور סיסמה סיסמא
"""
#: Of these, other words are made; they count where they stand alone.
_ALONE = (
    "pin pins tan otp totp pwd pass 2fa mfa cvv cvc token tokens secret secrets clave jeton heslo sandi пин σύνθημα"
)
#: Letters that look like a Latin one, and digits that stand for one.
_LIKE = str.maketrans("аеорсухіјѕԁһԛԝькмтвнοαερνκιτυχωѵɑıⅼ4031$@5!", "aeopcyxijsdhqwbkmtbhoaepvkituxwvailaoelsasi")
_JOINT = r"[\W_]{0,3}"
#: What is kept of printed text: more than a question takes.
_LINE_MOST = 1000
_ESCAPES = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~])?")


def _plain(text: str) -> str:
    """Without case, accents and what can't be seen."""
    apart = unicodedata.normalize("NFKD", text).casefold().replace("ł", "l").replace("ø", "o").replace("ı", "i")
    return "".join(c for c in apart if unicodedata.category(c) not in ("Mn", "Cf", "Cc") or c in "\n\t")


def _pattern() -> re.Pattern[str]:
    words = ("_".join(_plain(part) for part in word.split("_")) for word in _WORDS.split())
    anywhere = "|".join(_JOINT.join(map(re.escape, word.split("_"))) for word in words)
    alone = "|".join(re.escape(_plain(word)) for word in _ALONE.split())
    return re.compile(rf"{anywhere}|(?<![^\W_])(?:{alone})(?![^\W_])")


_SECRET = _pattern()
_LETTERS = re.compile(r"password|passphrase|passwort|kennwort|motdepasse|contrasena|apikey|пароль")


def is_for_a_secret(prompt: str) -> bool:
    """Whether the words of a question ask for a password or the like. A guess: whoever asks chooses the words."""
    plain = _plain(prompt)
    readings = (plain, plain.translate(_LIKE))
    if any(_SECRET.search(reading) for reading in readings):
        return True
    # S p e l l e d, or with s.t.o.p.s.
    return any(_LETTERS.search(re.sub(r"[\W_]+", "", reading)) for reading in readings)


class LastLine:
    """The end of what code has printed in one place: a question may have been begun there, without ``input()``."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The cursor is at the beginning of a line, and nothing was printed."""
        self._line = self._before = ""  # the one that the cursor is in, and the last one above with anything in it
        self._is_moved = False  # whether there are colours or movements that nothing has ended yet

    def feed(self, text: str) -> None:
        if not text:
            return
        self._is_moved = self._is_moved or "\x1b" in text
        # Of a long text only its end is looked at: most of what is fed is output of no question.
        *above, line = (self._line + text[-8 * _LINE_MOST :]).split("\n")
        self._before = next((one for one in reversed(above) if one.strip()), self._before)[-_LINE_MOST:]
        self._line = line[-_LINE_MOST:]

    def clear_way(self) -> str:
        """What to write on a terminal before words of ours, so that they are seen, on a line of their own."""
        end = "\n" if self._line else ""
        self.feed(end)
        # What code has left below the cursor, after it went up, goes.
        return f"{self.colours_off()}\x1b[J{end}" if self._is_moved else end

    def colours_off(self) -> str:
        """What to write on a terminal when the code is done with it."""
        was_moved, self._is_moved = self._is_moved, False
        return "\x1b[0m" if was_moved else ""

    def asked(self, prompt: str) -> str:
        """The question as it is read: what was printed on its line, or above where that says nothing, with it."""
        line = f"{_ESCAPES.sub('', self._line)}{prompt}"
        if not any(map(str.isalnum, line)):
            line = f"{_ESCAPES.sub('', self._before)} {line}"
        return f"{line}\n{_as_seen(line)}" if "\b" in line else line


def _as_seen(line: str) -> str:
    """With what stands before a backspace written over."""
    seen: list[str] = []
    at = 0
    for char in line:
        if char == "\b":
            at = max(0, at - 1)
        else:
            seen[at : at + 1] = char
            at += 1
    return "".join(seen)


def worded(prompt: str, who: str, printed: LastLine | None = None) -> str:
    """The question as it is shown: ``who`` before each line, since none may look like another program's own.

    ``printed``: where code has printed before it.
    """
    lines = [f"[{who}] {line}" for line in re.split(r"\r\n?|\n|[\v\f\x1c-\x1e\x85\u2028\u2029]", prompt)]
    is_secret = is_for_a_secret(prompt) or (printed is not None and is_for_a_secret(printed.asked(prompt)))
    return "\n".join([_WARNING, *lines] if is_secret else lines)
