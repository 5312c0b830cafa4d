"""Tokens of the text form, and a stream of them with the usual questions."""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from typing import TypeVar

from tilecore.errors import Loc, ParseError

_Enum = TypeVar("_Enum", bound=enum.Enum)
_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r]+|\#[^\n]*)
    | (?P<newline>\n)
    | (?P<number>\d+(\.\d+)?([eE][+-]?\d+)?)
    | (?P<name>[A-Za-z_]\w*(\.\w+)*)
    | (?P<quoted>`[^`\n]+`)
    | (?P<string>"([^"\\\n]|\\.)*")
    | (?P<sign>:\+|->|<<|>>|<=|>=|==|!=|//|[-+*/%&|^~<>=(){}\[\],;:])
    """,
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        kind: name, quoted (a name in backticks, given without them), number, string (decoded),
            sign, newline or end.
        text: what it says.
        line: 1-based line.
        column: 1-based column.
    """

    kind: str
    text: str
    line: int
    column: int

    def __str__(self) -> str:
        if self.kind in ("newline", "end"):
            return "the end of the " + ("line" if self.kind == "newline" else "text")
        return repr(self.text)


def tokenize(text: str, filename: str) -> list[Token]:
    """Split `text`; line breaks inside parentheses and brackets, and blank lines, are dropped.

    Raises:
        ParseError: a character that begins no token, or a broken string.
    """
    tokens: list[Token] = []
    line, line_start, position, depth = 1, 0, 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        column = position - line_start + 1
        if match is None:
            reason = f"unexpected character at column {column}"
            raise ParseError(reason, got=repr(text[position]), loc=Loc(filename, line))
        kind, value = str(match.lastgroup), match.group()
        position = match.end()
        if kind == "newline":
            if depth == 0 and tokens and tokens[-1].kind != "newline":
                tokens.append(Token(kind, value, line, column))
            line, line_start = line + 1, position
        elif kind != "space":
            depth += (value in ("(", "[")) - (value in (")", "]")) if kind == "sign" else 0
            tokens.append(Token(kind, _decode(kind, value, filename, line), line, column))
    tokens.append(Token("end", "", line, position - line_start + 1))
    return tokens


def _decode(kind: str, value: str, filename: str, line: int) -> str:
    if kind == "quoted":
        return value[1:-1]
    if kind == "string":
        try:
            return str(json.loads(value))
        except ValueError:
            reason = "a string with an unknown escape"
            raise ParseError(reason, got=value, loc=Loc(filename, line)) from None
    return value


class TokenStream:
    """A list of tokens and a position in it."""

    def __init__(self, text: str, filename: str) -> None:
        self.filename = filename
        self.tokens = tokenize(text, filename)
        self.position = 0

    @property
    def token(self) -> Token:
        """The token that comes next."""
        return self.tokens[self.position]

    @property
    def loc(self) -> Loc:
        """The place of the next token."""
        return Loc(self.filename, self.token.line)

    def error(self, reason: str, expected: object = None, token: Token | None = None) -> ParseError:
        """A `ParseError` about `token`, or about the next one."""
        token = token or self.token
        reason = f"{reason} at column {token.column}"
        return ParseError(reason, expected=expected, got=token, loc=Loc(self.filename, token.line))

    def next(self) -> Token:
        """Take the next token, whatever it is."""
        token = self.token
        if token.kind != "end":
            self.position += 1
        return token

    def at(self, text: str) -> bool:
        """True when the next token is this sign or bare word."""
        return self.token.kind in ("sign", "name") and self.token.text == text

    def accept(self, text: str) -> bool:
        """Take the next token if it is this sign or bare word."""
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        """Take this sign or bare word.

        Raises:
            ParseError: something else comes next.
        """
        if not self.at(text):
            raise self.error("unexpected text", expected=repr(text))
        return self.next()

    def expect_kind(self, *kinds: str) -> Token:
        """Take a token of one of these kinds.

        Raises:
            ParseError: something else comes next.
        """
        if self.token.kind not in kinds:
            raise self.error("unexpected text", expected=f"a {' or '.join(kinds)}")
        return self.next()

    def word(self) -> str:
        """Take a bare word."""
        return self.expect_kind("name").text

    def member(self, kind: type[_Enum]) -> _Enum:
        """Take a bare word that is the value of a member of an enumeration."""
        token = self.expect_kind("name")
        for item in kind:
            if item.value == token.text:
                return item
        raise self.error("unexpected word", " or ".join(str(k.value) for k in kind), token)

    def integer(self) -> int:
        """Take a whole number with an optional minus sign."""
        negative = self.accept("-")
        token = self.expect_kind("number")
        if not token.text.isdigit():
            raise self.error("a number that is not whole", expected="an integer", token=token)
        return -int(token.text) if negative else int(token.text)

    def skip_newlines(self) -> None:
        """Step over line breaks."""
        while self.token.kind == "newline":
            self.position += 1

    def end_statement(self) -> None:
        """Take the line break that ends a statement; a closing brace ends one too."""
        if self.token.kind == "newline":
            self.skip_newlines()
        elif not self.at("}") and self.token.kind != "end":
            raise self.error("unexpected text", expected="the end of the line")
