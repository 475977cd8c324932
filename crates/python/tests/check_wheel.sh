#!/bin/sh
# Builds the wheel, installs it in a new virtual environment, and opens a database with it. Takes minutes: it compiles
# everything with the profile `dist`. Usage: crates/python/tests/check_wheel.sh [maturin options]
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/build"
"$place/build/bin/pip" install --quiet "maturin>=1.9.4,<2"
(cd "$root/crates/python" && "$place/build/bin/maturin" build --out "$place/wheels" "$@")
python3 -m venv "$place/use"
"$place/use/bin/pip" install --quiet --no-index "$place"/wheels/ropewalk-*.whl
cd "$place"
"$place/use/bin/python" - <<'PYTHON'
import ropewalk

with ropewalk.open("db") as db:
    db.events("shop").append({"type": "Placed"})
with ropewalk.open("db", create=False) as db:
    assert db.events("shop").count() == 1
    assert db.sql("SELECT 1 AS one").scalar() == 1
print("the wheel works")
PYTHON
