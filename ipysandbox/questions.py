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


def worded(prompt: str, who: str) -> str:
    """The question as it is shown: ``who`` before each line, since none may look like another program's own."""
    lines = [f"[{who}] {line}" for line in re.split(r"\r\n?|\n|[\v\f\x1c-\x1e\x85\u2028\u2029]", prompt)]
    return "\n".join([_WARNING, *lines] if is_for_a_secret(prompt) else lines)
