"""Python's own library, held in memory: programs import from there, so they need no file at all.

The interpreter may stand in a folder that the program's user cannot enter; then `import csv` would fail for a right
program. So the zygote takes the compiled modules into memory while it may still read, and loads the extension modules,
which the dynamic linker wants as files. Runs in the zygote and in programs; must not know about either.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import sys
import sysconfig
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Loaded before programs start: nearly every program has some of them.
_USUAL = (
    "abc array bisect calendar cmath collections collections.abc copy csv dataclasses datetime decimal enum fractions "
    "functools hashlib heapq inspect io itertools json keyword math numbers operator pprint queue random re statistics "
    "string struct textwrap threading time traceback types typing unicodedata weakref contextlib"
).split()
#: Folders of the library that no program needs.
_LEFT_OUT = frozenset(
    "test tests idlelib lib2to3 tkinter turtledemo ensurepip site-packages dist-packages __pycache__ config".split()
)
_NOT_LOADED = ("_test", "_xx", "xx", "_tkinter", "_dbm", "_gdbm", "readline", "nis", "ossaudiodev", "_crypt")
_BYTECODE_HEADER = 16


class Memory(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads modules that were taken into memory."""

    def __init__(self) -> None:
        self._code: dict[str, bytes] = {}
        self._packages: set[str] = set()

    def __len__(self) -> int:
        return len(self._code)

    def take(self, folder: Path, prefix: str = "") -> None:
        """Take the modules of a folder, and of the packages in it."""
        for path in sorted(folder.iterdir()):
            if path.suffix == ".py":
                package = path.stem == "__init__"
                name = prefix.removesuffix(".") if package else prefix + path.stem
                code = _compiled(path) if name else None
                if code is not None:
                    self._code[name] = code
                    self._packages.update([name] if package else [])
            elif path.is_dir() and path.name not in _LEFT_OUT and (path / "__init__.py").is_file():
                self.take(path, f"{prefix}{path.name}.")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._code:
            return None
        package = fullname in self._packages
        spec = importlib.machinery.ModuleSpec(fullname, self, origin="memory", is_package=package)
        if package:
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(marshal.loads(self._code[module.__name__]), module.__dict__)  # Python's own code, read by the zygote


def _compiled(path: Path) -> bytes | None:
    """The marshalled code of a module: from its .pyc where that is up to date. None: it cannot be had."""
    try:
        bytecode = Path(importlib.util.cache_from_source(str(path))).read_bytes()
        state = path.stat()
        expected = (int(state.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") + (state.st_size & 0xFFFFFFFF).to_bytes(
            4, "little"
        )
        if bytecode[:4] == importlib.util.MAGIC_NUMBER and bytecode[4:16] == bytes(4) + expected:
            return bytecode[_BYTECODE_HEADER:]
    except (OSError, NotImplementedError):
        pass
    try:
        return marshal.dumps(compile(path.read_bytes(), str(path), "exec", dont_inherit=True))
    except (OSError, SyntaxError, ValueError):  # templates and broken examples lie about in packages
        return None


def load(packages: Sequence[str] = ()) -> Memory:
    """Take the library into memory, and load extension modules and the usual modules.

    packages: others to have, installed in sys.path. Raises ImportError for one that is not there.
    """
    standard = Path(sysconfig.get_path("stdlib"))
    memory = Memory()
    memory.take(standard)
    for name in (*_extensions(standard), *_USUAL):
        with contextlib.suppress(ImportError):  # Python is built with some of them missing
            importlib.import_module(name)
    for name in packages:
        for folder in getattr(importlib.import_module(name), "__path__", ()):
            memory.take(Path(folder), f"{name}.")
    return memory


def _extensions(standard: Path) -> Iterator[str]:
    folder = Path(sysconfig.get_config_var("DESTSHARED") or standard / "lib-dynload")
    for path in sorted(folder.glob("*.so")):
        name = path.name.partition(".")[0]
        if not name.startswith(_NOT_LOADED):
            yield name


def only(memory: Memory) -> None:
    """From now on this process imports from memory only."""
    sys.path[:] = []
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter, memory]
    sys.path_hooks[:] = []
