"""Settings of Superset for the test: the database comes from the environment."""

import os

SECRET_KEY = "hemp, sisal, manila, jute, coir and cotton"
SQLALCHEMY_DATABASE_URI = os.environ["SUPERSET_DATABASE"]
# Without HTTPS there are no cookies for HTTPS only.
TALISMAN_ENABLED = False
WTF_CSRF_ENABLED = False
