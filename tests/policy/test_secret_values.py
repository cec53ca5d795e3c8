"""Promises about what counts as a secret of the host's environment: tokens and passwords do, settings don't."""

from __future__ import annotations

import random
import string

import pytest

from ipysandbox.policy.secret_values import secret_values

LETTERS = string.ascii_letters + string.digits
KEY_LINES = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"]
PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *KEY_LINES, "-----END PRIVATE KEY-----"])


def made_up(prefix: str, length: int, alphabet: str = LETTERS) -> str:
    return prefix + "".join(random.Random(prefix).choices(alphabet, k=length))


TOKEN = made_up("x", 32)

SECRETS = {
    # by name, whatever the value's form
    "GITHUB_TOKEN": ["abcd-2024-efgh"],
    "AWS_SECRET_ACCESS_KEY": ["wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"],
    "PGPASSWORD": ["pässwörd-1"],
    "MY_PASSPHRASE": ["correct horse battery staple"],
    "LAB_API_KEY": ["/" + made_up("q", 39)],  # base64 may begin so
    # by format, whatever the name
    "A": [made_up("ghp_", 36)],
    "B": [made_up("sk-proj-", 48)],
    "AWS_ACCESS_KEY_ID": ["AKIAIOSFODNN7EXAMPLE"],
    "C": [made_up("AC", 32, "0123456789abcdef")],
    "D": [made_up("", 40)],
    "E": ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlLW9mLWl0"],
}


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_known_by_its_name_or_its_form(name: str) -> None:
    (value,) = SECRETS[name]
    assert secret_values({name: value}) == {name: (value,)}


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("DATABASE_URL", f"postgres://me:{TOKEN}@db.lab/x", {TOKEN}),
        ("DATABASE_URL", "postgres://me:hunter%2F2hunter@db.lab:5432/x", {"hunter%2F2hunter", "hunter/2hunter"}),
        ("DATABASE_URL", "postgres://postgres:postgres@db.lab:5432/x", {"postgres:postgres@db.lab"}),
        ("PIP_INDEX_URL", f"https://{made_up('ghp_', 36)}@pypi.lab/simple", {made_up("ghp_", 36)}),
        ("SLACK_WEBHOOK", f"https://hooks.slack.com/services/T01/B02/{TOKEN}", {TOKEN}),
        ("CONN", f"host=db user=me password={TOKEN} sslmode=on", {TOKEN}),
        ("HEADER", f"Authorization: Bearer {TOKEN}", {TOKEN}),
        ("KEY", PEM, set(KEY_LINES)),
        ("GOOGLE_KEY", '{"private_key": "' + PEM.replace("\n", "\\n") + '"}', set(KEY_LINES)),
    ],
)
def test_of_a_longer_value_the_secret_part_counts(name: str, value: str, parts: set[str]) -> None:
    assert set(secret_values({name: value})[name]) == parts


# fmt: off
SETTINGS = [
    # withheld from a sandbox by its name, and still nothing that must not be shown
    ("AWS_REGION", "us-east-1"), ("AWS_PROFILE", "default"), ("DB_HOST", "db.lab.internal"), ("PGUSER", "postgres"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json"), ("SSH_AUTH_SOCK", "/tmp/ssh-XXXXa8dKd83j/agent.812"),
    ("GITHUB_SHA", "0123456789abcdef0123456789abcdef01234567"), ("GITHUB_REPOSITORY", "lab/study-of-things-2024"),
    ("GPG_KEY", "A035C8C19219BA821ECEA86B64E628F8D684696D"), ("INVOCATION_ID", "5f0c8a1d7e6b4c3f9a2d1e0b8c7f6a5d"),
    ("OIDC_TOKEN_AUTH_METHOD", "client_secret_basic"), ("TOKEN_URL", "https://auth.lab.internal/oauth/token"),
    ("PASSWORD_STORE_DIR", "/home/me/.password-store"), ("EMAIL", "me@example.org"), ("DISPLAY", ":0"),
    # too short, too common or too plain
    ("DB_PASSWORD", "secret1"), ("DB_PASSWORD", "postgres"), ("DB_PASSWORD", "Password"), ("API_TOKEN", "disabled"),
    ("API_TOKEN", "aaaaaaaaaaaaaaaa"), ("MAX_TOKENS", "4096"), ("PASSWORD_CHANGED", "20240131"), ("X_TOKEN", ""),
    # ordinary
    ("PATH", "/nix/store/1a2s3d4f5g6h7j8k9l0zxcvbnm123456-python/bin:/usr/bin"), ("LANG", "en_US.UTF-8"),
    ("EXPERIMENT", "sk-learn-pipeline-with-scaler"), ("RUN", "My-Experiment-2024-Run-17"), ("TERM", "xterm-256color"),
]
# fmt: on


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_a_setting_is_no_secret(name: str, value: str) -> None:
    assert secret_values({name: value}) == {}


def test_a_password_that_is_also_the_users_name_stays_readable() -> None:
    assert secret_values({"USER": "jane.doe.1", "SMTP_PASSWORD": "jane.doe.1"}) == {}
