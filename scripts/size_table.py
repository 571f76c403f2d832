#!/usr/bin/env python3
"""Prints files and functions that have grown long, and fails on files over 1,000 lines.

  size_table.py [ROOT]      files over 600 lines and functions over 60, longest first
  size_table.py --self-test sees planted long ones found

Functions are found by matching braces after comments and strings are blanked: good enough for a table, not a compiler.
"""
import pathlib
import re
import sys
import tempfile

FILE_LINES, FILE_LINES_MAX, FUNCTION_LINES = 600, 1000, 60
FOLDERS = ("src", "include", "tools", "bench", "tests", "fuzz", "examples", "scripts")
SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh", ".comp", ".cpp", ".py", ".sh"}
BRACED = SUFFIXES - {".py", ".sh"}

BLANKED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)
TYPE_OR_NAMESPACE = re.compile(r"^(template\s*<.*>\s*)?(inline\s+|typedef\s+|export\s+)*"
                               r"(namespace|class|struct|union|enum|extern)\b(?!.*\)\s*(const|noexcept|override)?\s*$)",
                               re.DOTALL)
NAME = re.compile(r"([A-Za-z_~][\w:~]*|operator\s*[^\s\w]+)\s*$")


def blank(text):
    """text with comments and literals replaced by spaces, line breaks and preprocessor continuations kept."""
    text = BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.MULTILINE)


def functions(text):
    """(name, first line, number of lines) of each function body in C++ source."""
    text = blank(text)
    found = []
    head_begin = 0     # where the text that may announce the next brace begins
    scopes = []        # one entry per open brace: None, or (name, first line) for a function
    inside = 0         # functions open
    parens = 0
    for at, c in enumerate(text):
        if c in "()":
            parens += 1 if c == "(" else -1
        elif c == "{":
            head = text[head_begin:at]
            entry = None
            member_init = bool(re.search(r"\)\s*(noexcept\s*)?:", head)) and re.match(r"[\w>]", text[at - 1])
            if inside == 0 and parens == 0 and not member_init:
                entry = function_head(head, text, head_begin)
                if entry is None:
                    head_begin = at + 1
            inside += entry is not None
            scopes.append(entry)
        elif c == "}" and scopes:
            entry = scopes.pop()
            if entry:
                inside -= 1
                found.append((entry[0], entry[1], text.count("\n", 0, at) + 2 - entry[1]))
            if inside == 0 and not (scopes and re.match(r"\s*[,{]", text[at + 1:at + 40])):
                head_begin = at + 1
        elif c == ";" and inside == 0 and parens == 0:
            head_begin = at + 1
    return found


def function_head(head, text, head_begin):
    """(name, first line) when head announces a function body, else None."""
    stripped = head.strip()
    stripped = re.sub(r"^(public|private|protected)\s*:\s*", "", stripped)
    if "(" not in stripped or TYPE_OR_NAMESPACE.match(stripped):
        return None
    before, _, _ = stripped.partition("(")
    if re.search(r"[^=!<>]=\s*$|=\s*\[", stripped) or re.search(r"(?<!operator)=(?!=)", before):
        return None
    name = NAME.search(before.strip())
    first = head_begin + (len(head) - len(head.lstrip()))
    return (name[1] if name else "?", text.count("\n", 0, first) + 1)


def survey(root):
    """([(lines, file)], [(lines, file, first line, function)]) of everything below root, longest first."""
    files, long_functions = [], []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in SUFFIXES or not path.is_file() or name.startswith("tests/data/"):
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            files.append((text.count("\n"), name))
            if path.suffix in BRACED:
                long_functions += [(n, name, line, what) for what, line, n in functions(text) if n > FUNCTION_LINES]
    return sorted(files, reverse=True), sorted(long_functions, reverse=True)


def report(root):
    files, long_functions = survey(root)
    for n, name in files:
        if n > FILE_LINES:
            print(f"{n:5} lines  {name}{'  TOO LONG' if n > FILE_LINES_MAX else ''}")
    for n, name, line, what in long_functions:
        print(f"{n:5} lines  {name}:{line}  {what}()")
    n_too_long = sum(n > FILE_LINES_MAX for n, _ in files)
    print(f"size_table: {len(files)} files, {sum(n for n, _ in files)} lines; {sum(n > FILE_LINES for n, _ in files)} "
          f"files over {FILE_LINES}, {n_too_long} over {FILE_LINES_MAX}, {len(long_functions)} functions over "
          f"{FUNCTION_LINES}")
    return 1 if n_too_long or not files else 0


SAMPLE = """namespace a {
enum class E { kA, kB };
constexpr int kTable[] = {f(1), 2};
struct S {
  S() : x_{1}, y_(2) {
    call("}{");  // }
  }
  int get() const { return x_; }
  int x_ = 0;
};
#define M(x) \\
  do { x } while (0)
template <typename T>
Result<T> long_one(const T& t,
                   int n) {
  auto f = [&](int i) {
    return R"x({{{)x" + i;
  };
  if (n) {
    f('{');
  }
  return f(n);
}
void S::operator()(int i) noexcept { use(i); }
}
"""


def self_test():
    failed = []
    expected = [("S", 5, 3), ("get", 8, 1), ("long_one", 13, 11), ("S::operator", 24, 1)]
    if functions(SAMPLE) != expected:
        failed.append(f"functions of the sample: expected {expected}, found {functions(SAMPLE)}")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "src").mkdir()
        (root / "src/f.cc").write_text("void f() {\n" + "  g();\n" * 70 + "}\n", encoding="utf-8")
        if [(n, line, what) for n, _, line, what in survey(root)[1]] != [(72, 1, "f")]:
            failed.append(f"a function of 72 lines: found {survey(root)[1]}")
        if report(root) != 0:
            failed.append("a long function alone must not fail")
        (root / "src/g.cc").write_text("\n" * 1001, encoding="utf-8")
        if report(root) != 1:
            failed.append("a file of 1,001 lines must fail")
    for line in failed:
        print(line)
    print(f"size_table self-test: {4 - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    return report(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)


if __name__ == "__main__":
    sys.exit(main())
