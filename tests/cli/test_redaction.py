"""What is handed on has no keys, tokens and passwords in it, unless somebody wants them."""

import json

import pytest

import holdfast
from commanding import command
from holdfast.formats.secret_shapes import redacted, redacted_value
from thorough import few_cases

# Made up, and put together here so that nobody takes this file for a leak.
SECRETS = {
    "sk-ant-" + "api03-" + "a1B2" * 8: "Anthropic key",
    "sk-" + "proj-" + "Zz09" * 8: "API key",
    "ghp_" + "a1B2c3D4e5" * 4: "GitHub token",
    "github_pat_" + "11ABC_" * 6: "GitHub token",
    "glpat-" + "a1B2c3D4e5" * 2: "GitLab token",
    "hf_" + "aB3" * 12: "Hugging Face token",
    "hf_" + "a-B_3" * 9: "Holdfast token",
    "AKIA" + "ABCDEFGH12345678": "AWS key",
    "AIza" + "a1B2c" * 7: "Google key",
    "xoxb-" + "123456789012-abcdef": "Slack token",
    "xapp-" + "1-A0123-456-abcdef": "Slack token",
    "gsk_" + "a1B2c3D4" * 6: "Groq key",
    "xai-" + "a1B2c3D4" * 10: "xAI key",
    "r8_" + "a1B2c3D4e5" * 4: "Replicate token",
    "npm_" + "a1B2c3D4e5f6" * 3: "npm token",
    "pypi-" + "AgEIcHlwaS5vcmc" * 6: "PyPI token",
    "SG." + "a1B2c3D4e5" * 2 + "." + "a1B2c3D4e5" * 4: "SendGrid key",
    "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----\n\nlQ\n=ab\n-----END PGP PRIVATE KEY BLOCK-----":
    "private key",
    "sk_live_" + "a1B2c3D4" * 3: "Stripe key",
    "12345678" + ":AA" + "a1B2c3D4e5f" * 3: "Telegram token",
    "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0In0." + "s" * 20: "JSON web token",
    "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIB\nabc\n-----END RSA PRIVATE KEY-----": "private key",
}  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS, ids=SECRETS.values())
def test_a_secret_is_replaced_by_its_kind_wherever_it_stands(secret):
    said = f"It is {secret}, and this stays."
    assert redacted(said) == f"It is [redacted: {SECRETS[secret]}], and this stays."
    assert redacted(f"“{secret}”") == f"“[redacted: {SECRETS[secret]}]”"


BEFORE = {
    "words of a script without spaces": "密钥",
    "a sign of Markdown": "see _",
    "a colour of a terminal": "\x1b[01;31m\x1b[K",
    "a line break of JSON that was cut off": '{"out": "one\\n',
    "a sign that JSON escapes": "\\u003c",
    "an escape of an address": "https://example.org/?a=1%26k%3D",
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_secret_begins_where_words_of_another_kind_end(before):
    after = "_" if before.endswith("_") else "。"
    said = [before + secret + after for secret in SECRETS]
    left = [before + f"[redacted: {kind}]" + after for kind in SECRETS.values()]
    some_take_the_sign = [each[:-1] for each in left]
    for text, kept, short in zip(said, left, some_take_the_sign, strict=True):
        assert redacted(text) in (kept, short)


def test_a_bot_token_in_the_address_that_it_is_used_in_is_replaced():
    token = "12345678" + ":AA" + "a1B2c3D4e5f" * 3
    said = f"GET https://api.telegram.org/bot{token}/getMe"
    assert redacted(said) == "GET https://api.telegram.org/bot[redacted: Telegram token]/getMe"


def test_a_secret_that_names_a_field_is_replaced_and_no_field_is_lost():
    one, other = "ghp_" + "a1B2c3D4e5" * 4, "ghp_" + "Z9y8X7w6v5" * 4
    kept = redacted_value({one: 1, other: 2, "n": 3})
    word = "[redacted: GitHub token]"
    assert kept == {word: 1, f"{word} 2": 2, "n": 3}


@pytest.mark.parametrize(
    "said, left",
    [
        ("PGPASSWORD=hunter22 psql", "PGPASSWORD=[redacted: secret] psql"),
        ('dbPassword: "hunter22"', 'dbPassword: "[redacted: secret]"'),
        ("githubToken=abcdefgh1", "githubToken=[redacted: secret]"),
        ('{"out": "one\\npassword=hunter22', '{"out": "one\\npassword=[redacted: secret]'),
        ("地址postgresql://ann:s3cret@db", "地址postgresql://ann:[redacted: password]@db"),
        ("令牌Bearer abcdefghijklmnop1", "令牌Bearer [redacted: token]"),
        ("DB_PASSWORD=correcthorse", "DB_PASSWORD=[redacted: secret]"),
        ('{"api_key": "correcthorse"}', '{"api_key": "[redacted: secret]"}'),
        ("my password: hunter22", "my password: [redacted: secret]"),
        ("Authorization: Bearer abcdefghijklmnop1", "Authorization: Bearer [redacted: token]"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [redacted: token]"),
        ("password=hunter2", "password=[redacted: secret]"),
        ('{"api_key": "abc1234"}', '{"api_key": "[redacted: secret]"}'),
        ('password="correct horse 9"; and on', 'password="[redacted: secret]"; and on'),
        ('{"password": "ab\\"cdefgh"}', '{"password": "[redacted: secret]"}'),
        ('say {\\"api_key\\": \\"abc1234\\"}', 'say {\\"api_key\\": \\"[redacted: secret]\\"}'),
        ("postgresql://ann:s3cret@db/agents", "postgresql://ann:[redacted: password]@db/agents"),
    ],
)
def test_a_value_is_a_secret_by_what_stands_before_it(said, left):
    assert redacted(said) == left


@pytest.mark.parametrize(
    "said",
    [
        "Your password: required by the bank.",
        "max_tokens: 12345678",
        'token = os.environ["TOKEN"]',
        'api_key=os.getenv("OPENAI_API_KEY2")',
        "password = getpass.getpass()",
        "password=self.password,",
        "api_key=api_key, password=None",
        "password = await ask_for_it(user)",
        "password: required|min:8|confirmed",
        "password=$DB_PASSWORD1",
        'password="${DB_PASSWORD1}"',
        "secret = load_secret_from_vault(name)",
        "token: Optional[AccessToken]",
        "api_key: settings.openai_api_key",
        "const token = await getToken(user);",
        '"password": {"type": "string"}',
        'access_token = response.json()["access_token"]',
        "Basic responsibilities of a gardener",
        "The secret of the tide is patience.",
        "https://example.org:8080/a@b",
        "git@github.com:holdfast/holdfast.git",
        "commit 4874419a4874419a4874419a4874419a4874419a",
        "01a1e7712d16894d790bd191720dab1f",
        "desk-lamps-for-people-who-read-at-night",
        "if (password === confirmPassword) {",
        "a nonsecret=abcdefgh1",
    ],
)
def test_other_words_stay(said):
    assert redacted(said) == said


LONG = ["-", "a-", "secret", "password:", "password.", "://", "eyJ", "SG."]


@few_cases(every=3)
@pytest.mark.parametrize("unit", LONG)
def test_a_long_text_that_nearly_is_a_secret_stays(unit):
    """And it comes to an end: no shape goes back over what it has read."""
    text = unit * (100_000 // len(unit))
    assert redacted(text) == text


def test_a_private_key_without_an_end_is_left_out_with_all_that_follows():
    begun = "-----BEGIN " + "PRIVATE KEY-----"
    assert redacted(f"Here: {begun}\nMIIB" + "a" * 9_000) == "Here: [redacted: private key]"
    assert begun not in redacted(begun * 4_000)


def test_arguments_stay_json():
    call = {"arguments": json.dumps({"login": {"password": "hunter22x"}, "n": 12345678})}
    kept = redacted_value(call)
    assert json.loads(kept["arguments"]) == {
        "login": {"password": "[redacted: secret]"},
        "n": 12345678,
    }
    plain = {"arguments": '{ "n":1 }', "content": None}
    assert redacted_value(plain) == plain


def test_what_a_secret_field_has_inside_is_secret_too():
    given = {
        "token": {"value": "correct9", "type": "string"},
        "api_keys": 2,
        "secret": ["abcdefgh"],
    }
    left = {"value": "[redacted: secret]", "type": "string"}
    kept = redacted_value(given)
    assert kept == {"token": left, "api_keys": 2, "secret": ["[redacted: secret]"]}
    assert redacted_value({"password": "abc1234"}) == {"password": "[redacted: secret]"}


@pytest.mark.parametrize("format", ["markdown", "html", "openai.chat", "anthropic"])
def test_json_in_a_text_of_a_call_or_its_result_has_no_secrets_either(tmp_path, format):
    path = str(tmp_path / "agent.db")
    inner = json.dumps({"api_key": 'correct"horse9', "token": {"value": "battery8"}})
    with holdfast.open(path) as store, store.session("k").turn("Go.") as turn:
        call = turn.call("post", {"body": inner, "auth": {"token": {"value": "staple77"}}})
        turn.result(call, json.dumps({"answer": inner}))
        turn.say("Done.")
    told = command("export", "k", "--as", format, "--store", path).out
    found = [word for word in ("horse9", "battery8", "staple77") if word in told]
    assert (found, "post" in told) == ([], True)


KEY = "sk-" + "proj-" + "Zz09" * 8


@pytest.fixture
def place(tmp_path):
    path = str(tmp_path / "agent.db")
    with holdfast.open(path) as store:
        session = store.session("k")
        with session.turn(f"My key is {KEY}.") as turn:
            call = turn.call("log_in", {"token": "correcthorse9"})
            turn.result(call, f"in with {KEY}")
            turn.say(f"I will keep {KEY} to myself.")
    return path


@pytest.mark.parametrize(
    "format, by_default",
    [
        ("markdown", False), ("html", False), ("openai.chat", False), ("openai.responses", False),
        ("anthropic", False), ("holdfast", True), ("goose-json", True),
    ],
)  # fmt: skip
def test_what_is_handed_on_has_no_secrets_and_what_is_carried_on_from_has_all(
    place, format, by_default
):
    told = command("export", "k", "--as", format, "--store", place).out
    assert (KEY in told, "correcthorse9" in told) == (by_default, by_default)
    assert ("[redacted: API key]" in told) is not by_default
    whole = command("export", "k", "--as", format, "--keep-secrets", "--store", place).out
    assert KEY in whole and "correcthorse9" in whole and "[redacted" not in whole
