# SPDX-License-Identifier: GPL-2.0
"""pyverbs-results.py FILE [ARGUMENT]...: rdma-core's run_tests.py with these arguments, in the folder of
the tests. Tests that FILE has already are left out. FILE gets a line for each test when it begins,
"begin NAME", and one when it has ended, "end NAME RESULT": ok, FAIL, ERROR, or skipped and the
reason; and "total N" first. So a test after whose beginning the process crashed is known."""

import os
import runpy
import sys
import unittest

path = sys.argv[1]
begun = set()
is_first = not os.path.exists(path)
if not is_first:
    with open(path, encoding="utf-8") as file:
        begun = {line.split()[1] for line in file if line.startswith("begin ")}
out = open(path, "a", buffering=1, encoding="utf-8")
run = unittest.TextTestRunner.run


def name(test):
    """As in the documentation: without the folder."""
    return test.id().removeprefix("tests.")


def cases(suite):
    """The tests of a suite, and of those in it."""
    for test in suite:
        yield from cases(test) if isinstance(test, unittest.TestSuite) else [test]


def run_rest(runner, suite):
    """In place of TextTestRunner.run(): the tests that have not begun."""
    rest = unittest.TestSuite(test for test in cases(suite) if name(test) not in begun)
    # A test that has ended is freed, and with it the objects that it did not close.
    suite._tests.clear()
    if is_first:
        print("total", rest.countTestCases(), file=out)
    return run(runner, rest)


class Result(unittest.TextTestResult):
    """Writes the lines of the file, beside what it prints."""

    verdict = None

    def startTest(self, test):
        print("begin", name(test), file=out)
        self.verdict = "ok"
        super().startTest(test)

    def stopTest(self, test):
        print("end", name(test), self.verdict, file=out)
        super().stopTest(test)

    def addSkip(self, test, reason):
        self.verdict = "skipped " + " ".join(reason.split())
        super().addSkip(test, reason)

    def addFailure(self, test, err):
        self.verdict = "FAIL"
        super().addFailure(test, err)
        self.explain(test, err)

    def addError(self, test, err):
        self.verdict = "ERROR"
        super().addError(test, err)
        self.explain(test, err)

    def explain(self, test, err):
        """At once, because unittest does it at the end, which a crash prevents."""
        self.stream.writeln(f"why {name(test)}: {err[0].__name__}: {' '.join(str(err[1]).split())}")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.verdict = "FAIL"
        super().addSubTest(test, subtest, err)

    def addUnexpectedSuccess(self, test):
        self.verdict = "FAIL"
        super().addUnexpectedSuccess(test)


unittest.TextTestRunner.resultclass = Result
unittest.TextTestRunner.run = run_rest
sys.argv = ["run_tests.py", *sys.argv[2:]]
runpy.run_path(os.path.abspath("run_tests.py"), run_name="__main__")
