"""Settings of the tests."""

from hypothesis import settings

# A busy machine is no failure. Hypothesis has a profile of its own for continuous integration; leave that one alone.
settings.register_profile("course", deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("course")
