"""The file of tokens: who is in it, and nobody else, is let in."""

import hashlib
import logging

import pytest

import holdfast
from commanding import command
from holdfast.server.serving.token_file import AWAY_S, TokenFile
from wire_server import new_token
from worlds import HandWorld

SPACES = (" {}", "{} ", "\t{}", "\u00a0{}", "\u2028{}", "{}\x1c", "{}\n", "{0} {0}")
"""White space around a word or in it, as Python divides words."""


def digest(token):
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


@pytest.fixture
def tokens(file):
    """Two tokens that are in the file."""
    return new_token(file, "one", "write"), new_token(file, "two", "write")


def test_a_file_of_tokens_is_its_owners_and_has_digests(file):
    new_token(file, "one", "write")
    assert [each.tenant for each in TokenFile(str(file)).identities()] == ["one"]
    file.chmod(0o666)
    with pytest.raises(holdfast.errors.BadArgument, match="only its owner can write"):
        TokenFile(str(file))
    file.chmod(0o600)
    for line in ("hf_token one write", "sha256:00 one write", f"sha256:{'0' * 64} one all", "x"):
        file.write_text(line)
        with pytest.raises(holdfast.errors.BadArgument, match="line 1") as refused:
            TokenFile(str(file))
        assert "hf_token" not in str(refused.value)
    file.write_text("# nobody\n")
    with pytest.raises(holdfast.errors.BadArgument, match="some tokens"):
        TokenFile(str(file))


@pytest.mark.parametrize("shape", SPACES)
@pytest.mark.parametrize("word", ["acme", "*"])
def test_a_token_is_for_exactly_the_tenant_that_was_given_or_it_is_not_made(file, shape, word):
    given = shape.format(word)
    done = command("token", file, f"--tenant={given}", "--scope", "admin")
    assert done.code == 2 and "`tenant` takes one word" in done.err
    done = command("token", file, f"--name={given}")
    assert done.code == 2 and "`name` takes one word" in done.err
    assert not file.exists()


def test_a_token_is_not_made_for_a_tenant_that_no_store_has(file):
    for given in ("a" * 257, "é" * 129, ""):
        done = command("token", file, f"--tenant={given}")
        assert done.code == 2 and "256 bytes" in done.err
    assert not file.exists()
    new_token(file, "é" * 128, "read")
    [who] = TokenFile(str(file)).identities()
    assert who.tenant == "é" * 128


def test_a_line_for_a_tenant_that_no_store_has_is_not_read(file):
    for tenant in (b"a" * 257, b"\xff"):
        file.write_bytes(digest("t").encode() + b" " + tenant + b" write\n")
        file.chmod(0o600)
        with pytest.raises(holdfast.errors.BadArgument, match="line 1"):
            TokenFile(str(file))


def test_a_token_is_added_after_a_last_line_without_its_end(file, tokens):
    file.write_text(file.read_text().rstrip())
    third = new_token(file, "three", "read")
    known = TokenFile(str(file))
    for token, tenant in zip((*tokens, third), ("one", "two", "three"), strict=True):
        assert known.identity(token).tenant == tenant


def test_an_emptied_file_lets_nobody_in(file, tokens):
    known = TokenFile(str(file))
    file.write_text("")
    assert [known.identity(each) for each in tokens] == [None, None]
    again = new_token(file, "one", "write")
    assert known.identity(again).tenant == "one"
    assert [known.identity(each) for each in tokens] == [None, None]


def test_beside_a_line_that_cant_be_read_the_others_count(file, tokens, caplog):
    known = TokenFile(str(file))
    first, second = file.read_text().splitlines()
    third = "hf_third"
    broken = f"{digest(third)} three raed"
    file.write_text(f"{first}\n{broken}\n")
    with caplog.at_level(logging.WARNING, "holdfast.server"):
        for _ in range(3):
            assert known.identity(tokens[0]).tenant == "one"
            assert known.identity(tokens[1]) is None, "its line was taken out"
            assert known.identity(third) is None
    [told] = caplog.messages
    assert "line 2" in told and digest(third) not in told
    file.write_text(f"{first}\n{second}\n{broken.replace('raed', 'read')}\n")
    assert [known.identity(each).tenant for each in (*tokens, third)] == ["one", "two", "three"]


def _taken_away(file):
    file.rename(file.with_suffix(".away"))


def _writable_by_others(file):
    file.chmod(0o666)


def _another_kind(file):
    file.rename(file.with_suffix(".away"))
    file.mkdir()


@pytest.mark.parametrize("spoil", [_taken_away, _writable_by_others, _another_kind])
def test_the_moment_is_over_for_those_who_come_after_a_quiet_night(file, tokens, spoil):
    world = HandWorld()
    known = TokenFile(str(file), world=world)
    assert known.identity(tokens[0]).tenant == "one"
    spoil(file)
    # Nobody looks until now.
    world.advance(seconds=8 * 3600)
    assert known.identity(tokens[0]) is None


@pytest.mark.parametrize("spoil", [_taken_away, _writable_by_others, _another_kind])
def test_a_file_that_cant_be_read_lets_nobody_in_after_a_moment(file, tokens, caplog, spoil):
    world = HandWorld()
    known = TokenFile(str(file), world=world)
    spoil(file)
    with caplog.at_level(logging.WARNING, "holdfast.server"):
        assert known.identity(tokens[0]).tenant == "one", "an editor may be saving it"
        world.advance(seconds=AWAY_S)
        for _ in range(3):
            assert [known.identity(each) for each in tokens] == [None, None]
    assert len(caplog.messages) == 1
    # It is back as it was.
    if file.is_dir():
        file.rmdir()
    if (away := file.with_suffix(".away")).exists():
        away.rename(file)
    file.chmod(0o600)
    assert [known.identity(each).tenant for each in tokens] == ["one", "two"]
    # The next time, the moment begins anew.
    spoil(file)
    assert known.identity(tokens[0]).tenant == "one"
