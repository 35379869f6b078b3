r"""Finding the final answer of a completion: where it says, in a marked way, what its answer is.

Markers are strong (`#### 72`, `\boxed{72}`, `\fbox{72}`, `<answer>72</answer>`) or phrases ("the answer is 72",
"Answer: 72", and in Spanish "la respuesta es 72", "Respuesta final: 72"). Only what follows the last closed think
block counts, and what follows the last header of a new response ("### Response"), which a rambling model writes.
Every step is linear in the length of the completion. Must not know what a right answer is, nor how a number is
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

#: Marker, and what must be in the text, in lower case, for a search to be worth while: one or the other.
_SIGNS = (
    ("####", "####", "####"),
    ("boxed", "\\boxed", "\\fbox"),
    ("tag", "</answer>", "</answer>"),
    ("phrase", "answer", "respuesta"),
)
MARKERS = tuple(name for name, _, _ in _SIGNS)
#: Nobody states a final answer more often than this.
MAX_STATEMENTS = 100
#: An answer without brackets is looked for over so many characters; a longer one is no number anyway.
_MAX_REACH = 1100


class Candidate(NamedTuple):
    """A place where the completion states its final answer."""

    text: str
    start: int
    end: int
    """Span of the whole statement in the completion; `end` is where its text stops."""
    marker: str
    """#### | boxed | tag | phrase."""
    open_ended: bool
    """It ran into the end of the completion: if the length limit ended it, the answer may lack its last digits."""

    @property
    def strong(self) -> bool:
        """Whether the marker is one that nobody writes by accident."""
        return self.marker != "phrase"


_THINK_TAG = re.compile(r"<(/?)(?:think|thinking)>", re.IGNORECASE)
_NEW_RESPONSE = re.compile(r"(?<!#)#{2,3} ?(?:Response|Assistant)\b:?", re.IGNORECASE)
HASHES = re.compile(r"(?<!#)####(?!#)")
_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[{}\\]|[{}]")
TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.IGNORECASE | re.DOTALL)
PHRASE = re.compile(
    r"\b(?:answer\b(?:[^.\n:=0-9<#\\]{0,40}?\b(?:is|was|(?:should|would|will|must) be|equals)\b|[ *_]{0,4}(?:=|(?=:)))"
    r"|respuesta\b(?:[^.\n:=0-9<#\\]{0,40}?\b(?:es|era|sería|será|(?:debe|debería|tiene que) ser)\b"
    r"|(?: final| correcta)?[ *_]{0,4}(?:=|(?=:))))"
    r"[ *_]{0,4}:?|(?:\*\*|^#{1,3})\s*(?:(?:the )?final answer|(?:la )?respuesta final)[ ]*(?:\*\*|$)",
    re.IGNORECASE | re.MULTILINE,
)
#: Between a marker and its answer: spaces, emphasis, the opening of displayed mathematics.
_LEAD = re.compile(r"(?:[\s*_]|\\\[|\\\(|\$\$(?=\s))*")
#: Where the text of an answer without brackets stops at the latest.
_STOP = re.compile(r"\n|####|\\boxed|\\fbox|</?answer>|<\|")
#: Where the sentence of the answer ends, or its explanation begins.
_SENTENCE_END = re.compile(
    r"[.!](?=[\s*_$]*(?:\s|$))|[,;]?\s(?:because|since|which|so|porque|pues|ya que|así que)\b", re.IGNORECASE
)
#: A number alone on the rest of its line: most answers, so nothing else is looked for.
_BARE_NUMBER = re.compile(r"(-?\$?[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+)?)[ \t]*(?=\n|\Z)")
#: A statement that goes on with another possibility: "7, or maybe 8".
_HEDGE = re.compile(
    r"[\s*_.,;$)}\]\\(-]*(?:\\text\{\s*)?"
    r"(?:or|alternatively|maybe|perhaps|possibly|[ou]|quizás?|tal vez)\b[^\n]{0,40}[0-9]",
    re.IGNORECASE,
)


#: A statement that is taken back: "72 is not the answer", "72 es incorrecto".
_DENIAL = re.compile(
    r"\b(?:(?:is|was|are|would be|es|era|son)\s+(?:not|wrong|incorrect|false|incorrect[oa]|fals[oa])"
    r"|(?:is|was|are)n['\u2019]t|no (?:es|era|son))\b",
    re.IGNORECASE,
)
_DENIED_NEXT = re.compile(r"[ *_$)}\]]*" + _DENIAL.pattern, re.IGNORECASE)


#: An answer has a letter or a digit.
_SAYS = re.compile(r"[^\W_]")
_start = attrgetter("start")


#: An answer that is begun: where it is closed too, it is a statement of its own.
_BEGUN = re.compile(r"(?:<answer>|\\(?:boxed|fbox)\s*\{)[^<}]*[^\s<}]", re.IGNORECASE)
#: What follows a box and belongs to it: \boxed{7}{8}, \boxed{7}2, \boxed{7}^2.
_GOES_ON = re.compile(r"\s*\{|[0-9^_]|\.[0-9]")


def final_region(completion: str) -> int | None:
    """Where the text that counts begins. None while a think block is open: there is no final text yet."""
    begin, thinking = 0, False
    if "<" in completion:
        for tag in _THINK_TAG.finditer(completion):
            thinking = not tag[1]
            if tag[1]:
                begin = tag.end()
    if thinking:
        return None
    if "##" in completion:
        for header in _NEW_RESPONSE.finditer(completion, begin):
            begin = header.end()
    return begin


def candidates(completion: str, begin: int = 0) -> list[Candidate]:
    """Statements of a final answer at or after `begin`, in order of appearance.

    At most MAX_STATEMENTS + 1 of each marker: more is spam, and need not be read to be known as such.
    """
    lowered = completion.lower()
    found: list[Candidate] = []
    for name, sign, other in _SIGNS:
        if sign in lowered or other in lowered:
            found += islice(statements(completion, name, begin), MAX_STATEMENTS + 1)
    found = [candidate for candidate in found if candidate.text]
    if len(found) > 1:
        found.sort(key=_start)
    return found


def statements(completion: str, marker: str, begin: int = 0) -> Iterator[Candidate]:
    """The statements with one of MARKERS, in order."""
    if marker == "boxed":
        return _boxes(completion, begin)
    if marker == "tag":
        return _tags(completion, begin)
    return _after(completion, HASHES if marker == "####" else PHRASE, begin, marker)


def hedged(completion: str, candidate: Candidate) -> bool:
    """Whether the statement goes on with another possibility, or goes on at all where it ought to end."""
    if candidate.marker == "boxed" and _GOES_ON.match(completion, candidate.end):
        return True
    return _HEDGE.match(completion, candidate.end) is not None


def denied(completion: str, candidate: Candidate) -> bool:
    """Whether the statement is taken back as soon as it is made."""
    within = " " in candidate.text and _DENIAL.search(candidate.text) is not None
    return within or _DENIED_NEXT.match(completion, candidate.end) is not None


def begun_after(completion: str, end: int) -> bool:
    """Whether a box or answer tag is begun after the last statement, with something in it, and not closed."""
    return _BEGUN.search(completion, end) is not None


def _after(text: str, marker: re.Pattern[str], begin: int, name: str) -> Iterator[Candidate]:
    """Answers that follow a marker up to the end of the line or sentence, on its line or the next written one."""
    for match in marker.finditer(text, begin):
        lead = _LEAD.match(text, match.end())
        start = lead.end() if lead else match.end()
        bare = _BARE_NUMBER.match(text, start)
        if bare:
            yield Candidate(bare[1], match.start(), bare.end(), name, open_ended=bare.end() == len(text))
            continue
        reach = min(start + _MAX_REACH, len(text))
        stop = _STOP.search(text, start, reach)
        end = stop.start() if stop else reach
        sentence = _SENTENCE_END.search(text, start, end)
        if sentence:
            end = sentence.start()
        answer = text[start:end].strip()
        if _SAYS.search(answer):
            yield Candidate(answer, match.start(), end, name, open_ended=end == len(text))


def _tags(text: str, begin: int) -> Iterator[Candidate]:
    for tag in TAG.finditer(text, begin):
        yield Candidate(tag[1].strip(), tag.start(), tag.end(), "tag", False)


def _boxes(text: str, begin: int) -> Iterator[Candidate]:
    r"""The contents of closed \boxed{} and \fbox{}; of nested ones, the outermost that is closed."""
    opened: list[int | None] = []  # start of the box that a brace opens; None for any other brace
    inside: list[int] = []
    closed: list[tuple[int, int, int]] = []  # start of the command, of the contents, of the closing brace
    for token in _BRACE.finditer(text, begin):
        if token[0].endswith("{") and len(token[0]) > 2:
            opened.append(token.start())
            inside.append(token.end())
        elif token[0] == "{":
            opened.append(None)
        elif token[0] == "}" and opened:
            start = opened.pop()
            if start is not None:
                contents = inside.pop()
                while closed and closed[-1][0] > start:
                    closed.pop()
                closed.append((start, contents, token.start()))
    for start, contents, end in closed:
        yield Candidate(text[contents:end].strip(), start, end + 1, "boxed", False)
