"""Our part of llguidance against its own: the names of Python that the stubs have, and GBNF by the
converter that its package holds. LLGUIDANCE_WHEEL is the package's folder."""

import os
import pathlib
import subprocess
import sys

import pytest

WHEEL = pathlib.Path(os.environ["LLGUIDANCE_WHEEL"])
SOURCE = pathlib.Path(os.environ["LMTP_SOURCE_DIR"])
GRAMMAR_CHECK = pathlib.Path(os.environ["LMTP_BIN_DIR"]) / "grammar-check"
sys.path.insert(0, str(WHEEL))

from llguidance import LLMatcher, LLTokenizer  # noqa: E402
from llguidance.gbnf_to_lark import gbnf_to_lark  # noqa: E402

LIST = r"""
# A list of words.
root ::= item+
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
"""
JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
CHESS = r"""
root   ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move   ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn   ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"""
CALLS = r"""
root ::= call (", " call){0,2}
call ::= fnName "(" args? ")"
fnName ::= "sin" | "cos" | "max-of"
args ::= arg ("," arg)*
arg ::= call | Num-ber
Num-ber ::= [0-9] [0-9]?
"""
CASES = [
    (LIST, ["- a\n", "- a b\n- ü€\n", "", "a\n", "- \n", "- a"]),
    (JSON, ['{"a":1}', '{"a": [1, -2.5e+3, "x\\n\\u00e9"], "b": {}}', '{"a": true }', "{}", "[]",
            '{"a":}', '{"a":01}', '{"a":"\n"}', '{\n  "a": null}', "{ }", '{"a":1,}']),
    (CHESS, ["1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n", "1. O-O O-O-O\n2. exd5+ a8=Q#\n", "1. e9 e5\n",
             "2. e4 e5\n"]),
    (CALLS, ["sin(1)", "max-of(cos(2),33), sin()", "sin", "sin(333)", "tan(1)",
             "sin(),cos()"]),
]  # fmt: skip
TOKENIZER = LLTokenizer("byte")


def is_taken(lark, text):
    matcher = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(lark), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    data = list(text.encode())
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


@pytest.mark.parametrize(("grammar", "texts"), CASES)
def test_gbnf_is_that_of_the_package(grammar, texts):
    ours = subprocess.run([GRAMMAR_CHECK, "lark"], input=grammar, stdout=subprocess.PIPE, text=True,
                          check=True).stdout  # fmt: skip
    theirs = gbnf_to_lark(grammar)
    taken = [is_taken(ours, text) for text in texts]
    assert taken == [is_taken(theirs, text) for text in texts]
    assert {True, False} == set(taken)


def test_the_stubs_have_the_names_that_the_library_lacks():
    library = WHEEL / "llguidance" / "_lib.abi3.so"
    listed = subprocess.run(["nm", "-D", "--undefined-only", library], stdout=subprocess.PIPE,
                            text=True, check=True).stdout  # fmt: skip
    names = [line.split()[-1] for line in listed.splitlines()]
    ours = (SOURCE / "src" / "constraint" / "python_symbols.txt").read_text().split()
    assert sorted(name for name in names if "@" not in name) == ours
