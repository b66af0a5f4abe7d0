"""How often a model is run, and how many steps a run has."""

from hypothesis import settings


def short_form(examples: int, steps: int) -> settings:
    """So many in `make test`, and fewer in a quick run."""
    profile = settings()
    return settings(
        max_examples=min(examples, profile.max_examples),
        stateful_step_count=min(steps, profile.stateful_step_count),
    )
