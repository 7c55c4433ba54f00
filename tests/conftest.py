"""Settings of the tests."""

import sys

import pytest
from hypothesis import settings

# A busy machine is no failure. Hypothesis has a profile of its own for continuous integration; leave that one alone.
settings.register_profile("course", deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("course")


@pytest.fixture(autouse=True)
def _the_same_numbers_each_time():
    """A test that draws tensors without a seed draws the same ones each time: it notices a mistake always or never."""
    if "torch" in sys.modules:  # whoever draws has imported it
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def processes():
    """Four processes that compute together, started when a test first needs them and kept: starting takes long."""
    from attn_course.processes import Processes

    with Processes(4) as started:
        yield started
