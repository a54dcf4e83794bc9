#!/usr/bin/env python3
"""Suspension is visible in the source (rule 2 of docs/coroutines.md): a function that may suspend its caller carries
`coroutine_fn`, and only such functions call such functions.

A parser at the level of regular expressions: comments, strings and preprocessor lines are blanked, definitions are what stands
before a brace at depth 0. Static functions need the marker too. A macro whose body calls a marked function counts as marked, and so does a
function pointer member declared as `int coroutine_fn (*name)(...)`, unless another struct has an unmarked one of that name.
Names are resolved through the headers a file includes, as the compiler does it.
Also found: a definition and its declaration that disagree, and a marked function that is given to the loop as a callback, where there is
no coroutine to suspend. `--self-test` runs the checker over known good and bad text.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from _tree import TOP, files, finish, where

KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "do", "else", "case", "_Alignof", "__typeof__", "typeof",
            "defined", "__attribute__", "_Static_assert", "_Generic"}
# What calls its function arguments outside of any coroutine: on the loop, or on a thread of the pool.
CALLBACK_TAKERS = {"timer_start", "loop_defer", "loop_on_signal", "stream_watch", "stream_passive", "listen_tcp", "listen_unix",
                   "listen_fd", "offload", "stream_set_ready", "call_on_gone", "map_each", "json_each", "coro_each"}

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
MACRO = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(?:\([^)]*\))?(.*)", re.DOTALL)
CALL = re.compile(r"(?<![\w.])(?<!->)(\w+)\s*\(")
MEMBER_CALL = re.compile(r"(?:->|\.)\s*(\w+)\s*\(")
MARKED = re.compile(r"\bcoroutine_fn\s+\**\s*(\w+)\s*\(")
MARKED_MEMBER = re.compile(r"\bcoroutine_fn\s*\**\s*\(\s*\*\s*(\w+)\s*\)\s*\(")
ANY_MEMBER = re.compile(r"\(\s*\*\s*(\w+)\s*\)\s*\(")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
BRACE_OR_END = re.compile(r"[{};]")


def blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match.group(0))


@dataclass
class Function:
    name: str
    line: int
    static: bool
    marked: bool
    body: str
    body_line: int


@dataclass
class Source:
    path: Path
    code: str = ""
    includes: list[str] = field(default_factory=list)
    macros: dict[str, str] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    declared: dict[str, tuple[bool, int]] = field(default_factory=dict)  # prototypes: marked?, line


def header_name(header: str) -> str | None:
    """The name of the function that a header text (all before the brace or semicolon) declares."""
    header = re.sub(r"__attribute__\s*\(\(.*?\)\)|_cleanup_\w*\s*(\(\w+\))?|__extension__", " ", header, flags=re.DOTALL)
    if "=" in header or re.match(r"\s*(typedef|struct\s+\w+\s*$|enum|union\s+\w+\s*$)", header):
        return None
    match = re.search(r"(\w+)\s*\(", header)
    if not match or match.group(1) in KEYWORDS or match.start() == len(header) - len(header.lstrip()):
        return None
    # "ret (*member)(" is a pointer, no function
    if re.match(r"\s*\*", header[match.end():]) or not header.rstrip().endswith(")"):
        return None
    return match.group(1)


def end_of_block(code: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if match.group(0) == "{" else -1
        if depth == 0:
            return match.end()
    return len(code)


def parse(path: Path, raw: str) -> Source:
    source = Source(path, includes=INCLUDE.findall(raw))
    text = NOISE.sub(blank, raw)
    for match in DIRECTIVE.finditer(text):
        macro = MACRO.match(match.group(0))
        if macro:
            source.macros[macro.group(1)] = macro.group(2)
    code = source.code = DIRECTIVE.sub(blank, text)
    at = segment = 0
    while match := BRACE_OR_END.search(code, at):
        header = code[segment:match.start()]
        at = match.end()
        name = header_name(header) if match.group(0) != "}" else None
        line = code.count("\n", 0, segment + len(header) - len(header.lstrip())) + 1
        marked = "coroutine_fn" in header.split("(")[0]
        if match.group(0) == "{":
            at = end_of_block(code, match.start())
            if name:
                source.functions.append(Function(name, line, bool(re.search(r"\bstatic\b", header)), marked,
                                                 code[match.start():at], code.count("\n", 0, match.start()) + 1))
                if re.search(r"\bstatic\b", header):
                    source.declared.pop(name, None)
        elif name:
            source.declared[name] = (marked, line)
        segment = at
    return source


def arguments(body: str, start: int) -> str:
    """The text between the parenthesis that ends before start and its partner."""
    depth = 1
    for match in re.compile(r"[()]").finditer(body, start):
        depth += 1 if match.group(0) == "(" else -1
        if depth == 0:
            return body[start:match.start()]
    return body[start:]


class Marks:
    """What may suspend, as each file sees it."""

    def __init__(self, sources: list[Source]):
        self.by_name = {str(source.path.relative_to(TOP / "src")): source for source in sources}
        self.seen: dict[Path, dict[str, bool]] = {}
        self.members: set[str] = set()
        unmarked_members: set[str] = set()
        for source in sources:
            members = set(MARKED_MEMBER.findall(source.code))
            self.members |= members
            unmarked_members |= set(ANY_MEMBER.findall(source.code)) - members
        self.members -= unmarked_members
        for source in sources:
            self.seen[source.path] = self.visible(source)

    def visible(self, source: Source) -> dict[str, bool]:
        names: dict[str, bool] = {}
        macros: dict[str, str] = {}
        todo, done = [source], set()
        while todo:
            file = todo.pop()
            if file.path in done:
                continue
            done.add(file.path)
            macros.update(file.macros)
            for name, (marked, _) in file.declared.items():
                names[name] = names.get(name, False) or marked
            for function in file.functions:
                if file is source or function.static:
                    names[function.name] = function.marked or (not function.static and names.get(function.name, False))
            todo += [self.by_name[name] for name in file.includes if name in self.by_name]
        for function in source.functions:
            if function.static:
                names[function.name] = function.marked
        grown = True
        while grown:
            grown = False
            for name, body in macros.items():
                if not names.get(name) and any(names.get(call) for call in CALL.findall(body)):
                    names[name] = grown = True
        return names

    def suspends(self, path: Path, name: str) -> bool:
        return self.seen[path].get(name, False)


def check_body(source: Source, function: Function, marks: Marks, problems: list[str]) -> None:
    for match in CALL.finditer(function.body):
        name = match.group(1)
        line = function.body_line + function.body.count("\n", 0, match.start())
        if not function.marked and marks.suspends(source.path, name):
            problems.append(f"{where(source.path, line)}: {function.name}() calls {name}(), which may suspend, and is not marked "
                            "coroutine_fn")
        if name in CALLBACK_TAKERS:
            given = arguments(function.body, match.end())
            for word in re.findall(r"(?<![\w.>])(\w+)\b(?!\s*\()", given):
                if marks.suspends(source.path, word) and word != function.name:
                    problems.append(f"{where(source.path, line)}: {word}() may suspend, and {name}() calls it outside of any coroutine")
    if not function.marked:
        for match in MEMBER_CALL.finditer(function.body):
            if match.group(1) in marks.members:
                line = function.body_line + function.body.count("\n", 0, match.start())
                problems.append(f"{where(source.path, line)}: {function.name}() calls ->{match.group(1)}(), which may suspend, and is "
                                "not marked coroutine_fn")


def check_agreement(source: Source, marks: Marks, problems: list[str]) -> None:
    headers = [marks.by_name[name] for name in source.includes if name in marks.by_name]
    for function in source.functions:
        for header in headers:
            if function.static or function.name not in header.declared:
                continue
            marked, line = header.declared[function.name]
            if marked != function.marked:
                problems.append(f"{where(source.path, function.line)}: {function.name}() is {'' if function.marked else 'not '}marked "
                                f"coroutine_fn, its declaration at {where(header.path, line)} is{'' if marked else ' not'}")


def check(texts: dict[Path, str]) -> list[str]:
    problems: list[str] = []
    sources = [parse(path, text) for path, text in texts.items()]
    marks = Marks(sources)
    for source in sources:
        check_agreement(source, marks, problems)
        for function in source.functions:
            check_body(source, function, marks, problems)
    return problems


SELF_HEADER = """
#pragma once
int coroutine_fn nap(int ms); /* may suspend */
struct ops {
        int coroutine_fn (*slow)(void *arg);
        int (*fast)(void *arg);
};
#define NAP_TWICE(ms) (nap(ms), nap(ms))
void timer_start(int ms, void (*fn)(void *arg), void *arg);
static inline int quick(void) { return 1; }
"""
# body of a.c -> number of findings
SELF_CASES = [
    ("int coroutine_fn nap(int ms)\n{\n        return ms;\n}", 0),
    ("int nap(int ms)\n{\n        return ms;\n}", 1),
    ("static void coroutine_fn good(void)\n{\n        nap(1);\n}", 0),
    ("static void bad(void)\n{\n        if (1) {\n                nap(1);\n        }\n}", 1),
    ("static void bad(void)\n{\n        int x = NAP_TWICE(1);\n}", 1),
    ("static void bad(struct ops *o)\n{\n        o->slow(0);\n        o->fast(0);\n}", 1),
    ("static void coroutine_fn good(struct ops *o)\n{\n        o->slow(0);\n}", 0),
    ("static void good(void)\n{\n        /* nap(1); */ puts(\"nap(1)\");\n#if 0\n#define X nap(1)\n#endif\n        x.nap(1);\n}", 0),
    ("static int nap(int x)\n{\n        return x;\n}\nstatic void good(void)\n{\n        nap(1);\n}", 0),
    ("static void coroutine_fn a(void *p)\n{\n}\nstatic void bad(void)\n{\n        timer_start(1, a, 0);\n}", 1),
    ("static void a(void *p)\n{\n}\nstatic void good(void)\n{\n        timer_start(quick(), a, 0);\n}", 0),
    ("static const struct x t[] = { { nap } };\nstatic int *\nbad(int a,\n    int b)\n{\n        return nap(1);\n}", 1),
    ("static int __attribute__((noinline)) bad(void)\n{\n        return nap(1);\n}", 1),
    ("static void coroutine_fn helper(void);\nstatic void bad(void)\n{\n        helper();\n}", 1),
]


def self_test() -> list[str]:
    problems = []
    for number, (body, expected) in enumerate(SELF_CASES):
        texts = {TOP / "src/x/a.h": SELF_HEADER, TOP / "src/x/a.c": f'#include "x/a.h"\n{body}\n',
                 TOP / "src/x/stranger.c": "static void stranger(void)\n{\n        nap(1); /* includes no header: another nap */\n}\n"}
        found = check(texts)
        if len(found) != expected:
            problems.append(f"self-test {number}: {len(found)} findings, not {expected}: {found}")
    return problems


if __name__ == "__main__":
    finish(self_test() if "--self-test" in sys.argv else
           self_test() + check({path: path.read_text() for path in files("src/**/*.c", "src/**/*.h")}))
