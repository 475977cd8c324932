"""Puts the package together from its Python code and the module that the build of the workspace has made.

    python3 crates/python/tests/package.py PLACE [LIBRARY]

`PLACE` then has `ropewalk`, with the embedded database, and the tests of the client. Nothing is compiled.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
#: Name of the library as cargo makes it.
NAME = {"darwin": "libropewalk_python.dylib", "win32": "ropewalk_python.dll"}.get(
    sys.platform, "libropewalk_python.so"
)


def assemble(place: Path, library: Path | None = None) -> Path:
    """Fills the directory `place`, which is emptied first; `library` is by default that of a debug build. Returns `place`.

    Raises `FileNotFoundError` if there is no library.
    """
    library = library or TARGET / "debug" / NAME
    if not library.exists():
        raise FileNotFoundError(f"there is no {library}: cargo build -p ropewalk-python")
    shutil.rmtree(place, ignore_errors=True)
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "_core.*.so")
    shutil.copytree(ROOT / "clients" / "python", place, ignore=ignored)
    suffix = "pyd" if sys.platform == "win32" else "abi3.so"
    shutil.copyfile(library, place / "ropewalk" / f"_core.{suffix}")
    return place


if __name__ == "__main__":
    print(assemble(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
