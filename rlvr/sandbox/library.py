"""Python's own library, held in memory: programs import from there, so they need no file at all.

The interpreter may stand in a folder that the program's user cannot enter; then `import csv` would fail for a right
program. So the zygote takes the compiled modules into memory while it may still read, and loads the extension modules,
which the dynamic linker wants as files. Runs in the zygote and in programs; must not know about either.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import mmap
import os
import sys
import sysconfig
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Loaded before programs start: nearly every program has some of them.
_USUAL = (
    "abc", "array", "bisect", "calendar", "cmath", "collections.abc", "contextlib", "copy", "csv", "dataclasses",
    "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "io", "itertools", "json",
    "keyword", "math", "numbers", "operator", "pprint", "queue", "random", "re", "statistics", "string", "struct",
    "textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata", "weakref",
)  # fmt: skip
#: Folders of the library that no program needs.
_LEFT_OUT = {
    "test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "site-packages", "dist-packages",
    "__pycache__",
}  # fmt: skip
#: Extension modules for what there is none of here: screens, networks, accounts; and those that few programs have and
#: all would pay for. hashlib does without OpenSSL.
_NOT_LOADED = (
    "_test", "_xx", "xx", "_tkinter", "_dbm", "_gdbm", "readline", "nis", "ossaudiodev", "_crypt", "_curses", "_ssl",
    "_hashlib", "_codecs_", "_multibyte", "spwd", "syslog", "termios", "audioop", "_lsprof", "_posixshmem",
    "_multiprocessing", "fcntl", "grp", "_scproxy", "_ctypes_test", "_sqlite3",
)  # fmt: skip
_BYTECODE_HEADER = 16


class Memory(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads modules that were taken into memory."""

    def __init__(self) -> None:
        descriptor = os.memfd_create("library", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._file = os.fdopen(descriptor, "wb")
        self._places: dict[str, tuple[int, int]] = {}
        self._packages: set[str] = set()
        self._all: mmap.mmap | None = None

    def __len__(self) -> int:
        return len(self._places)

    def take(self, folder: Path, prefix: str = "") -> None:
        """Take the modules of a folder, and of the packages in it."""
        for path in sorted(folder.iterdir()):
            if path.suffix == ".py":
                package = path.stem == "__init__"
                name = prefix.removesuffix(".") if package else prefix + path.stem
                code = _compiled(path) if name else None
                if code is not None:
                    self._places[name] = (self._file.tell(), self._file.tell() + len(code))
                    self._file.write(code)
                    self._packages.update([name] if package else [])
            elif path.is_dir() and path.name not in _LEFT_OUT and (path / "__init__.py").is_file():
                self.take(path, f"{prefix}{path.name}.")

    def seal(self) -> None:
        """Put all into memory that is shared with programs, not copied, and that nobody can change any more."""
        with self._file as file:
            file.flush()
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
            self._all = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._places:
            return None
        package = fullname in self._packages
        spec = importlib.machinery.ModuleSpec(fullname, self, origin="memory", is_package=package)
        if package:
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        if self._all is None:
            raise ImportError("the library is not sealed yet", name=module.__name__)
        begin, end = self._places[module.__name__]
        exec(marshal.loads(memoryview(self._all)[begin:end]), module.__dict__)  # Python's own code, unchanged


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
    memory.seal()
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
