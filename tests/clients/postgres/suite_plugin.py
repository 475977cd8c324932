"""A plugin of pytest: what SQLAlchemy's suite may ask of us. That is all it asks of PostgreSQL, but for what docs/sql.md says is
not served at all; otherwise whole classes of tests would fail for a temporary table that one of them wants."""

import pytest

#: Requirements of the suite that are not met.
CLOSED = [
    # Tables last.
    "temporary_tables", "temp_table_names", "temp_table_reflection", "temporary_views", "temp_table_reflect_indexes",
    # An index has no columns beside its key; views are computed; nobody prepares transactions.
    "reflect_indexes_with_include_columns", "index_reflects_included_columns", "materialized_views", "two_phase_transactions",
    "two_phase_recovery",
]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    # Not before: the suite's own plugin has to come first.
    from sqlalchemy.dialects.postgresql import provision
    from sqlalchemy.testing import exclusions
    from test.requirements import DefaultRequirements

    # Extensions of PostgreSQL, of which only its own tests of types speak.
    provision._extensions.clear()
    for name in CLOSED:
        setattr(DefaultRequirements, name, property(lambda self: exclusions.closed()))
