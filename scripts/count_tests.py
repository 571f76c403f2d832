#!/usr/bin/env python3
"""Counts single test cases after a ctest run: `PASSED FAILED SKIPPED` on stdout, what failed on stderr.

  count_tests.py BUILD_FOLDER JUNIT_FILE XML_FOLDER
  count_tests.py --unittest LOG     the same of a log of Python's unittest
  count_tests.py --self-test

JUNIT_FILE: ctest's --output-junit, one entry per test program. XML_FOLDER: what GTEST_OUTPUT=xml:FOLDER/ collected, the
cases of each program. A program that failed without a failed case (it crashed, leaked or never wrote its cases) counts
as one failure; a program that is no gtest counts as one test. A case that was skipped or disabled counts as skipped.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml


def program_outcomes(junit):
    """{ctest name: "passed" | "failed" | "skipped"}"""
    outcomes = {}
    for case in xml.parse(junit).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.get("status") == "disabled" or (skipped is not None and "SKIP_" in skipped.get("message", "")):
            outcomes[case.get("name")] = "skipped"  # on purpose: DISABLED, SKIP_RETURN_CODE, SKIP_REGULAR_EXPRESSION
        elif case.get("status") == "run" and case.find("failure") is None:
            outcomes[case.get("name")] = "passed"
        else:
            outcomes[case.get("name")] = "failed"   # also "notrun": no executable, or a fixture failed
    return outcomes


def count_cases(path):
    """([passed, failed, skipped], names of failed cases) of one gtest report; None when it was cut short."""
    try:
        root = xml.parse(path).getroot()
    except xml.ParseError:
        return None
    counts, failed = [0, 0, 0], []
    for case in root.iter("testcase"):
        if case.find("failure") is not None:
            counts[1] += 1
            failed.append(f"{case.get('classname')}.{case.get('name')}")
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            counts[2] += 1
        else:
            counts[0] += 1
    return counts, failed


def count(outcomes, programs, xml_folder):
    """[passed, failed, skipped] and messages. programs: {ctest name: stem of its executable}."""
    total, messages = [0, 0, 0], []
    for stem in sorted(set(programs.values())):
        names = [name for name, program in programs.items() if program == stem]
        reports = [count_cases(path) for path in sorted(xml_folder.glob(f"{stem}*.xml"))
                   if re.fullmatch(re.escape(stem) + r"(_\d+)?", path.stem)]
        reports = [report for report in reports if report]
        for counts, failed in reports:
            total = [a + b for a, b in zip(total, counts)]
            messages += failed
        n_red_reports = sum(counts[1] > 0 for counts, _ in reports)
        red = [name for name in names if outcomes.get(name, "failed") == "failed"]
        if len(red) > n_red_reports:
            total[1] += len(red) - n_red_reports
            messages.append(f"{', '.join(red)}: the program failed beyond its failed cases (crash, leak, timeout?)")
        if not reports:
            total[0] += sum(outcomes.get(name) == "passed" for name in names)
            total[2] += sum(outcomes.get(name) == "skipped" for name in names)
    return total, messages


def count_unittest(log):
    """[passed, failed, skipped] of what unittest printed; one failure when it never came to its summary."""
    ran = re.findall(r"^Ran (\d+) tests? in ", log, re.MULTILINE)
    verdict = re.findall(r"^(?:OK|FAILED)(?: \((.*)\))?$", log, re.MULTILINE)
    if not ran or not verdict:
        return [0, 1, 0]
    named = dict(part.split("=") for part in verdict[-1].split(", ") if part)
    failed = sum(int(named.get(key, 0)) for key in ("failures", "errors", "unexpected successes"))
    skipped = int(named.get("skipped", 0))
    return [max(0, int(ran[-1]) - failed - skipped), failed, skipped]


def self_test():
    def gtest(cases):
        return "<testsuites><testsuite name='S'>" + "".join(
            f"<testcase name='{name}' classname='S' status='{'notrun' if kind == 'disabled' else 'run'}'>"
            + {"failed": "<failure message=''/>", "skipped": "<skipped message=''/>"}.get(kind, "") + "</testcase>"
            for name, kind in cases) + "</testsuite></testsuites>"

    ok, bad = [("a", "passed"), ("b", "skipped"), ("c", "disabled")], [("a", "failed"), ("b", "passed")]
    samples = [  # outcomes of programs by name, their reports, expected counts
        ({"base": "passed"}, {"base_test": gtest(ok)}, [1, 0, 2]),
        ({"base": "failed"}, {"base_test": gtest(bad)}, [1, 1, 0]),
        ({"base": "failed"}, {"base_test": gtest(ok)}, [1, 1, 2]),       # a leak at exit
        ({"base": "failed"}, {}, [0, 1, 0]),                            # a crash
        ({"base": "failed"}, {"base_test": gtest(ok)[:40]}, [0, 1, 0]),  # a crash while writing
        ({"script": "passed"}, {}, [1, 0, 0]),
        ({"base": "passed", "gone": "skipped"}, {"base_test": gtest(ok)}, [1, 0, 3]),
        ({}, {}, [0, 1, 0]),                                            # ctest never got to it
    ]
    failed = 0
    for outcomes, reports, expected in samples:
        with tempfile.TemporaryDirectory() as folder:
            for stem, text in reports.items():
                (pathlib.Path(folder) / f"{stem}.xml").write_text(text, encoding="utf-8")
            programs = {name: f"{name}_test" for name in outcomes or {"lost": 0}}
            found, _ = count(outcomes, programs, pathlib.Path(folder))
            if found != expected:
                failed += 1
                print(f"{outcomes} with {reports}: expected {expected}, found {found}")
    with tempfile.TemporaryDirectory() as folder:
        junit = pathlib.Path(folder) / "junit.xml"
        junit.write_text(
            "<testsuite><testcase name='a' status='run'/><testcase name='b' status='fail'><failure message=''/></testcase>"
            "<testcase name='c' status='notrun'><skipped message='Unable to find executable'/></testcase>"
            "<testcase name='d' status='notrun'><skipped message='SKIP_RETURN_CODE=77'/></testcase>"
            "<testcase name='e' status='disabled'/></testsuite>", encoding="utf-8")
        found = program_outcomes(junit)
        expected = {"a": "passed", "b": "failed", "c": "failed", "d": "skipped", "e": "skipped"}
        if found != expected:
            failed += 1
            print(f"ctest's report: expected {expected}, found {found}")
    logs = [("..\nRan 2 tests in 0.1s\n\nOK\n", [2, 0, 0]), ("Ran 1 test in 3s\n\nOK (skipped=1)\n", [0, 0, 1]),
            ("Ran 9 tests in 3s\n\nFAILED (failures=2, errors=1, skipped=1)\n", [5, 3, 1]),
            ("Traceback\n", [0, 1, 0]), ("Ran 4 tests in 1s\n", [0, 1, 0])]
    for log, expected in logs:
        if count_unittest(log) != expected:
            failed += 1
            print(f"{log!r}: expected {expected}, found {count_unittest(log)}")
    print(f"count_tests self-test: {len(samples) + 1 + len(logs) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:2] == ["--unittest"]:
        print(*count_unittest(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8", errors="replace")))
        return 0
    build, junit, xml_folder = map(pathlib.Path, sys.argv[1:])
    listing = json.loads(subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                                        capture_output=True, text=True).stdout)
    programs = {test["name"]: pathlib.Path((test.get("command") or [test["name"]])[0]).name
                for test in listing["tests"]}
    total, messages = count(program_outcomes(junit) if junit.exists() else {}, programs, xml_folder)
    for message in messages:
        print(f"  failed: {message}", file=sys.stderr)
    print(*total)
    return 0


if __name__ == "__main__":
    sys.exit(main())
