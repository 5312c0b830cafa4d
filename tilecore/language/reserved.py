"""Words that the languages of generated code keep for themselves."""

from __future__ import annotations

RESERVED: frozenset[str] = frozenset({
    "main", "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char",
    "class", "const", "continue", "default", "delete", "do", "double", "else", "enum", "explicit",
    "export", "extern", "false", "float", "for", "friend", "goto", "half", "if", "inline", "int",
    "long", "namespace", "new", "not", "operator", "or", "private", "protected", "public",
    "register", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template",
    "this", "throw", "true", "try", "typedef", "typename", "union", "unsigned", "using", "virtual",
    "void", "volatile", "while", "xor",
})  # fmt: skip
"""No kernel, buffer or variable is called so, whichever backend is chosen later."""
