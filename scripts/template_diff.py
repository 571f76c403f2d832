#!/usr/bin/python3
"""Compares the template interpreter with the Jinja2 library (Debian package python3-jinja2).

    template_diff.py record                      writes jinja2's results into tests/data/templates/*.json
    template_diff.py random N [--seed S] --test BINARY
                                                 makes N random templates, records jinja2's results in a scratch
                                                 folder and runs BINARY (tokenizer_test) on them

The library is set up as Hugging Face sets it up for chat templates. Data files hold one case a line: `template` and
`variables` are written by hand, `out` or `error` (the name of the exception) is recorded. NAME.jinja is a whole template,
NAME.json its cases.
"""
import argparse
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.sandbox

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "templates"
NOW = 1700000000  # what strftime_now() takes for the present, here and in the test


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.fromtimestamp(NOW).strftime(form)
    return env


ENV = environment()


def outcome(template, variables):
    try:
        # A copy, for jinja2's own indent filter extends a list in place.
        return {"out": ENV.from_string(template).render(**copy.deepcopy(variables))}
    except Exception as error:  # whatever the library raises is the expectation
        return {"error": type(error).__name__}


def write_cases(path, cases):
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    path.write_text("[\n" + lines + "\n]\n", encoding="utf-8")


def record():
    n = 0
    for path in sorted(DATA.glob("*.json")):
        whole = path.with_suffix(".jinja")
        cases = json.loads(path.read_text(encoding="utf-8"))
        for case in cases:
            source = whole.read_text(encoding="utf-8") if whole.exists() else case["template"]
            result = outcome(source, case.get("variables", {}))
            for key in ("out", "error"):
                case.pop(key, None)
            case.update(result)
            n += 1
        write_cases(path, cases)
    print(f"{n} cases recorded")


class Generator:
    """Random small templates whose printed results do not depend on memory addresses or hash order."""

    NAMES = ["made", "text", "wide", "empty", "number", "negative", "real", "flag", "nothing", "missing", "items", "words", "nested",
             "mapping", "messages"]
    VARIABLES = {
        "text": "Hello, wide World", "wide": "é日本 naïve ÀB", "empty": "", "number": 7, "negative": -3, "real": 2.5, "flag": True, "nothing": None,
        "items": [3, 1, 2, 1], "words": ["beta", "Alpha", "gamma", ""], "nested": [[1, "a"], [2, "b"], []],
        "mapping": {"b": 1, "a": "x", "c": [1, {"k": None}], "B": 0.5},
        "messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi\nthere <é> 'q' \"d\""},
                     {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"x": [1, 2]}}]}],
    }
    STRINGS = ["a", "", " x ", "l", "o, w", "Hello", "e\\nf", "{}", "%s", "é", "7", "2.5", "-1", "aXbXc", "the end"]
    FILTERS = [
        "upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list", "string", "int", "float", "abs",
        "round", "sort", "unique|list", "reverse|list", "sum", "min", "max", "join", "join('-')", "tojson", "items|list",
        "dictsort", "default('d')", "default('d', true)", "replace('l', 'LL')", "replace('', '.')", "indent", "indent(2, true)",
        "truncate(8)", "truncate(9, true, '..', 0)", "batch(2)|list", "batch(3, 'z')|list", "slice(2)|list", "select|list",
        "reject|list", "select('string')|list", "reject('none')|list", "map('string')|list", "map('upper')|list",
        "map(attribute='role')|list", "map(attribute='role', default='?')|list", "selectattr('role')|list|length",
        "selectattr('role', 'equalto', 'user')|list|length", "rejectattr('content')|list|length", "groupby('role')|length",
        "wordcount", "urlencode", "center(12)", "tojson(indent=1)", "tojson(sort_keys=true)", "sort(reverse=true)",
        "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "string|length", "list|length", "items|first",
        "round(1)", "round(0, 'floor')", "round(1, 'ceil')", "int(9)", "float(0.5)", "int(0, 16)", "trim('H d')", "format(1, 'x')",
        "sort(attribute='role')|length", "unique(case_sensitive=true)|list", "d('q')", "count", "map('length')|list",
        "select('odd')|list", "select('in', [1, 'a'])|list", "map('int')|list", "map(attribute=0)|list", "attr('x')"]
    TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping",
             "iterable", "sequence", "callable", "odd", "even", "divisibleby 3", "divisibleby(2)", "lower", "upper", "in [1, 'a', 7]",
             "eq 7", "ne 'a'", "lt 5", "le 7", "gt 'a'", "ge 2", "equalto 7", "sameas none", "sameas true", "escaped",
             "in 'Hello'", "== 7", "filter", "test"]
    BLOCK_FILTERS = ["upper", "trim", "replace('e', '3')", "indent", "length", "upper|trim", "replace('a', '')|title"]
    METHODS = [
        "upper()", "lower()", "title()", "capitalize()", "swapcase()", "strip()", "lstrip()", "rstrip('d ')", "strip('Hd')", "split()",
        "split(',')", "split('l', 1)", "rsplit('l', 1)", "rsplit()", "split(None, 1)", "rsplit(maxsplit=1)", "splitlines()",
        "splitlines(true)", "startswith('He')", "endswith('d')", "startswith(('x', 'He'))", "startswith('l', 2)", "find('l')", "rfind('l')",
        "find('zz')", "find('', 3)", "index('o')", "count('l')", "count('')", "count('l', 3, -1)", "replace('l', 'L')",
        "replace('l', 'L', 1)", "join(['a', 'b'])", "join(words)", "format(1, 2)", "isdigit()", "isalpha()", "isupper()", "islower()",
        "isspace()", "isalnum()", "istitle()", "removeprefix('He')", "removesuffix('World')", "partition(',')", "rpartition('o')",
        "zfill(20)", "center(24, '*')", "ljust(20)", "rjust(20, '.')", "get('a')", "get('zz', 5)", "items()|list", "keys()|list",
        "values()|list", "get(1)", "index(1)", "count(1)", "copy()", "nope()", "append(1)", "isnumeric()", "isdecimal()", "isascii()"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, options):
        return self.random.choice(options)

    def literal(self):
        return self.pick([
            lambda: str(self.random.randint(-3, 12)), lambda: self.pick(["0.5", "2.0", "1e3", "1.25e-7", "3.14159", "1e16", "100.0"]),
            lambda: "'" + self.pick(self.STRINGS) + "'", lambda: self.pick(["true", "false", "none"]),
            lambda: "[" + ", ".join(self.expression(2) for _ in range(self.random.randint(0, 3))) + "]",
            lambda: "(" + "".join(self.expression(2) + ", " for _ in range(self.random.randint(1, 3))) + ")",
            lambda: "{" + ", ".join(f"'{self.pick('abc')}': {self.expression(2)}" for _ in range(self.random.randint(0, 2))) + "}",
            lambda: f"range({self.random.randint(-1, 6)})", lambda: f"range({self.random.randint(0, 9)}, {self.random.randint(0, 9)}, {self.pick([1, 2, -1, -3])})"])()

    TYPED = {  # expressions that mostly succeed: name of a type, ways to make one; capitals stand for sub-expressions
        "S": ["text", "wide", "'%s'", "S|upper", "S|trim", "S.strip()", "S ~ N", "S + S", "S[1:]", "S[::-1]", "S[:-1]", "S|replace('l', S)", "S * 2",
              "L|join(S)", "N|string", "L|tojson", "M|tojson(indent=2)", "S.split(S)|first", "S|default(S)", "(S if B else S)", "S|title",
              "S.format(S)", "'%s' % N", "S|indent(3, true)", "M|string", "L|string", "F|string", "S|truncate(9)", "S.replace('e', S)",
              "S.join(['p', 'q'])", "messages[1].content", "S|capitalize", "S.rsplit('l', 1)[0]", "S.removeprefix('He')", "S|center(9)",
              "M|dictsort|string", "L|map('string')|join(',')", "'{:>8}'.format(N)", "'%05.1f' % F", "S|urlencode", "S.partition('o')|string"],
        "N": ["number", "negative", "3", "0", "S|length", "L|length", "N + N", "N - N", "N * N", "N // 3", "N % 4", "N ** 2", "L|sum", "S|int", "F|int",
              "-N", "S.find('o')", "S.count('l')", "(N if B else N)", "L|first", "M|length", "N|abs", "L|max", "S|wordcount", "F|round|int"],
        "F": ["real", "0.1", "N / 4", "F + N", "F * F", "F|round(1)", "N|float", "S|float", "F // 0.7", "F % 0.7", "4096.5", "F|abs", "N * 1e-5"],
        "B": ["flag", "S == S", "N < N", "S in S", "N in L", "not B", "B and B", "B or B", "S is string", "N is odd", "missing is defined",
              "L is sequence", "S.startswith(S)", "M is mapping", "S|length > N", "N <= N < N", "L == L", "S is lower", "S < S", "'a' in M"],
        "L": ["items", "[N, N]", "[]", "L + L", "L|sort", "L|reverse|list", "L[1:]", "L[::-1]", "range(4)|list", "L|unique|list",
              "L|select('odd')|list", "L|map('abs')|list", "(L if B else L)", "[N]*2", "L|rejectattr('x')|list", "S|list|map('length')|list"],
        "M": ["mapping", "{}", "{'k': N, 's': S}", "{'l': L, 'f': F, 'b': B}", "{'m': {'x': none}, S: N}", "messages[0]", "dict(M, z=N)"],
    }

    def typed(self, kind, depth=0):
        ways = self.TYPED[kind]
        way = self.pick(ways[:3]) if depth > 4 else self.pick(ways)
        made = ""
        quoted = False
        for i, c in enumerate(way):
            quoted = quoted != (c == "'")
            alone = (i == 0 or not way[i - 1].isalnum()) and (i + 1 == len(way) or not way[i + 1].isalnum())
            if c in self.TYPED and alone and not quoted:
                made += "(" + self.typed(c, depth + 1) + ")" if depth < 6 else {"S": "text", "M": "{}", "L": "items", "B": "true", "F": "0.5", "N": "2"}[c]
            else:
                made += c
        return made.replace("'%s'", "'" + self.pick(self.STRINGS) + "'", 1) if made == "'%s'" else made

    def expression(self, depth=0):
        if self.random.random() < 0.75:
            return self.typed(self.pick("SSSNFBLM"), depth)
        if depth > 3 or self.random.random() < 0.2:
            return self.pick(self.NAMES) if self.random.random() < 0.6 else self.literal()
        sub = lambda: self.expression(depth + 1)
        return self.pick([
            self.literal, lambda: f"{sub()}|{self.pick(self.FILTERS)}", lambda: f"({sub()})|{self.pick(self.FILTERS)}",
            lambda: f"({sub()}).{self.pick(self.METHODS)}", lambda: f"text.{self.pick(self.METHODS)}",
            lambda: f"mapping.{self.pick(self.METHODS)}", lambda: f"('{self.pick(self.STRINGS)}').{self.pick(self.METHODS)}",
            lambda: f"{sub()} is {self.pick(['', 'not '])}{self.pick(self.TESTS)}",
            lambda: f"({sub()} {self.pick(['+', '-', '*', '/', '//', '%', '~', '+', '~'])} {sub()})",
            lambda: f"({sub()} {self.pick(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {sub()})",
            lambda: f"({sub()} {self.pick(['and', 'or'])} {sub()})", lambda: f"not {sub()}", lambda: f"-({sub()})",
            lambda: f"({sub()} if {sub()} else {sub()})", lambda: f"({sub()} if {sub()})",
            lambda: f"({sub()})[{self.random.randint(-3, 3)}]", lambda: f"({sub()})['{self.pick(['a', 'role', 'content', 'zz'])}']",
            lambda: f"({self.typed(self.pick('SL'), 3)})[{self.pick(['', '1', '-2', '0'])}:{self.pick(['', '2', '-1', '9'])}{self.pick(['', ':-1', ':2', ':'])}]",
            lambda: f"({sub()}).{self.pick(['a', 'role', 'content', 'b', 'x'])}", lambda: f"({self.literal()} < {sub()} <= {self.literal()})",
            lambda: f"messages[{self.random.randint(0, 3)}].{self.pick(['role', 'content', 'tool_calls', 'zz'])}",
            lambda: f"'{self.pick(['%s', '%d', '%5.1f|', '%r', '%-6s|', '%x', '%(a)s', '%s-%s', '%%', '%05d', '%+d', '%e', '%g', '%.3s'])}' % {sub()}",
            lambda: f"'{self.pick(['{}', '{0}{0}', '{:>5}', '{:.2f}', '{!r}', '{a}', '{0[a]}', '{:,}', '{:^9}|', '{:05d}', '{:x}', '{{}}'])}'.format({sub()})"])()

    def block(self, depth=0):
        if depth > 2 or self.random.random() < 0.35:
            return self.pick([lambda: "{{ " + self.expression(1) + " }}", lambda: "{{- " + self.expression(2) + " -}}",
                              lambda: self.pick(["text ", "\n", "  \n  ", " ", "x\n", "{# note #}", "{#- note -#}", "\n  {# n #}\n"])])()
        body = lambda: "".join(self.block(depth + 1) for _ in range(self.random.randint(1, 3)))
        o = lambda: self.pick(["{%", "{%-", "{%+", "{%"])
        c = lambda: self.pick(["%}", "-%}", "%}", "%}\n"])
        return self.pick([
            lambda: f"{o()} if {self.expression(2)} {c()}{body()}{o()} elif {self.expression(2)} {c()}{body()}{o()} else {c()}{body()}{o()} endif {c()}",
            lambda: f"{o()} for item in {self.pick(['items', 'words', 'messages', 'mapping', 'text[:4]', 'nested', 'range(4)'])} {c()}{{{{ loop.{self.pick(['index', 'index0', 'revindex', 'revindex0', 'first', 'last', 'length', 'previtem', 'nextitem', 'depth', 'depth0', 'cycle(1, 2, 3)', 'changed(item)'])} }}}}{body()}{o()} else {c()}none{o()} endfor {c()}",
            lambda: f"{o()} for item in {self.expression(2)} if item is {self.pick(self.TESTS)} {c()}{{{{ item }}}}{self.pick(['', '{% break %}', '{% continue %}', '{% if loop.index > 1 %}{% break %}{% endif %}'])}{body()}{o()} endfor {c()}",
            lambda: f"{o()} for a, b in {self.pick(['mapping.items()', 'mapping|items', 'nested', 'mapping|dictsort', 'nested[:2]'])} {c()}{{{{ a }}}}={{{{ b }}}};{o()} endfor {c()}",
            lambda: f"{o()} set made = {self.expression(2)} {c()}{{{{ made }}}}", lambda: f"{o()} set block {c()}{body()}{o()} endset {c()}{{{{ block }}}}",
            lambda: f"{o()} set ns = namespace(v={self.expression(2)}) {c()}{o()} for item in items {c()}{o()} set ns.v = ns.v ~ item {c()}{o()} endfor {c()}{{{{ ns.v }}}}",
            lambda: f"{o()} macro m(one, two={self.expression(3)}) {c()}{body()}{{{{ one }}}}/{{{{ two }}}}{o()} endmacro {c()}{{{{ m({self.expression(3)}) }}}}{{{{ m(two=1) }}}}",
            lambda: f"{o()} macro w() {c()}<{{{{ caller({self.expression(3)}) }}}}>{o()} endmacro {c()}{o()} call(given) w() {c()}{body()}{o()} endcall {c()}",
            lambda: f"{o()} filter {self.pick(self.BLOCK_FILTERS)} {c()}{body()}{o()} endfilter {c()}",
            lambda: f"{o()} with local = {self.expression(2)} {c()}{{{{ local }}}}{body()}{o()} endwith {c()}",
            lambda: f"{o()} raw {self.pick(['%}', '-%}'])} {{{{ x }}}} \n {o()} endraw {c()}", lambda: f"{o()} generation {c()}{body()}{o()} endgeneration {c()}"])()

    def template(self):
        return "".join(self.block() for _ in range(self.random.randint(1, 4)))


def run_random(n, seed, binary):
    generator = Generator(seed)
    cases = []
    skipped = 0
    while len(cases) < n:
        template = generator.template() if len(cases) % 2 else "{{ " + generator.expression() + " }}"
        case = {"template": template, "variables": Generator.VARIABLES, **outcome(template, Generator.VARIABLES)}
        # Addresses and the names of Python's own types mean nothing elsewhere.
        shown = case.get("out", "")
        if any(mark in shown for mark in (" at 0x", "built-in", "<function", "Undefined", "dict_", "<jinja2", "object")):
            skipped += 1
            continue
        cases.append(case)
    with tempfile.TemporaryDirectory() as folder:
        write_cases(pathlib.Path(folder) / "random.json", cases)
        failures = sum("error" in case for case in cases)
        print(f"seed {seed}: {n} random templates, {failures} of them errors, {skipped} skipped", flush=True)
        env = dict(os.environ, TESSERA_TEMPLATE_CORPUS=folder)
        return subprocess.run([binary, "--gtest_filter=JinjaCorpus.*", "--gtest_brief=1"], env=env).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record")
    rand = commands.add_parser("random")
    rand.add_argument("n", type=int)
    rand.add_argument("--seed", type=int, default=1)
    rand.add_argument("--test", required=True, help="the built tokenizer_test")
    args = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    if args.command == "record":
        record()
        return 0
    return run_random(args.n, args.seed, args.test)


if __name__ == "__main__":
    sys.exit(main())
