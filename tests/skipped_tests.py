"""A pytest plugin: the last line says how many tests did not run and why. With STRICT=1, these tests are a failure."""

import os
from collections import Counter

import pytest

# With STRICT=1, too, a test may be skipped for one of these reasons.
ALLOWED = (
    "ATTN_COURSE_DATA names no folder",
    "openpyxl is not installed",
    "only the repository has the solutions",
    "the test is about the CPU",
    "Triton is not installed",
    "Triton needs a GPU or TRITON_INTERPRET=1",
)


def reasons(reporter: pytest.TerminalReporter) -> Counter[str]:
    """Count the skipped tests by their reason."""
    texts = (report.longrepr[2] for report in reporter.stats.get("skipped", []))  # (path, line, reason)
    return Counter(text.removeprefix("Skipped: ") for text in texts)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput") or session.exitstatus:
        return
    skipped = reasons(reporter)
    forbidden = [reason for reason in skipped if not reason.startswith(ALLOWED)]
    nothing_ran = bool(skipped) and not reporter.stats.get("passed")
    if nothing_ran or (os.environ.get("STRICT") and forbidden):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and (skipped := reasons(reporter)):
        listed = "; ".join(f"{count:,} because {reason}" for reason, count in skipped.most_common())
        reporter.write_line(f"{skipped.total():,} tests did not run: {listed}.")
