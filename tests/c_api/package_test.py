#!/usr/bin/env python3
"""What `cmake --install` brings is whole: the program runs, a C project finds the library with find_package, and C and C++
programs with pkg-config, from a prefix that was moved.

  package_test.py BUILD_FOLDER CMAKE C_COMPILER CXX_COMPILER SANITIZERS
"""
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"
MODEL = HERE.parent / "data" / "tiny" / "tiny-llama.gguf"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def run(*command, **options):
    """Standard output of a command that must succeed."""
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, errors="replace", **options)
    if done.returncode != 0:
        sys.exit(f"exit status {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def expect(condition, what):
    print(f"{'ok' if condition else 'NOT SO'}: {what}")
    if not condition:
        sys.exit(1)


def install(build, cmake, work):
    """The prefix, moved after installing."""
    run(cmake, "--install", build, "--prefix", work / "first")
    (work / "first").rename(work / "prefix")
    return work / "prefix"


def main():
    build, cmake, cc, cxx, sanitizers = sys.argv[1:]
    work = pathlib.Path(build) / "package_test"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    prefix = install(build, cmake, work)
    flags = [f"-fsanitize={sanitizers}"] if sanitizers else []

    version = run(prefix / "bin" / "tessera", "--version").split()[1]
    headers = sorted(path.name for path in (prefix / "include").rglob("*") if path.is_file())
    expect(headers == ["tessera.h", "tessera.hpp"], f"the program runs, and the headers are {headers}")

    pages = {"share/man/man1/tessera.1": ["--man"], "share/bash-completion/completions/tessera": ["--completion", "bash"],
             "share/zsh/site-functions/_tessera": ["--completion", "zsh"],
             "share/fish/vendor_completions.d/tessera.fish": ["--completion", "fish"]}
    for page, flags_of_page in pages.items():
        expect((prefix / page).read_text(encoding="utf-8") == run(prefix / "bin" / "tessera", "help", *flags_of_page),
               f"{page} is what the program says")

    # C alone, with CMake.
    env = {**os.environ, "CFLAGS": " ".join(flags), "CMAKE_PREFIX_PATH": str(prefix)}
    run(cmake, "-S", HERE / "scratch", "-B", work / "scratch", "-G", "Ninja", f"-DCMAKE_C_COMPILER={cc}",
        f"-DEXAMPLES={EXAMPLES}", env=env)
    run(cmake, "--build", work / "scratch")
    run(work / "scratch" / "simple_chat", MODEL, "hi", "8")
    expect(True, "a C project finds the package with CMake, and its program runs")

    # C and C++ with pkg-config.
    pkgconfig = next(prefix.rglob("tessera.pc")).parent
    env = {**os.environ, "PKG_CONFIG_PATH": str(pkgconfig)}
    expect(run("pkg-config", "--modversion", "tessera", env=env).strip() == version, f"pkg-config knows version {version}")
    libraries = run("pkg-config", "--cflags", "--libs", "tessera", env=env).split()
    expect(f"-I{prefix}/include" in [os.path.normpath(word) if word[0] == "/" else "-I" + os.path.normpath(word[2:])
                                     if word.startswith("-I") else word for word in libraries], "its paths follow the prefix")
    for compiler, standard, source in ((cc, "c99", EXAMPLES / "simple_chat.c"), (cxx, "c++17", EXAMPLES / "simple_chat_cpp.cc"),
                                       (cxx, "c++17", HERE / "scratch" / "clash.cc")):
        program = work / source.stem
        run(compiler, f"-std={standard}", *WARNINGS, *flags, source, *libraries, "-o", program)
        output = run(program, MODEL, "hi", "8")
        expect(source.stem != "clash" or output == '{"architecture":"llama"}\n', f"{source.name} built with pkg-config runs")
    shutil.rmtree(work)  # is kept where something failed; with sanitizers it takes 900 MB


if __name__ == "__main__":
    main()
