"""The package as others get it: a wheel and an sdist, in an empty environment, used outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

from rlvr.compose import packaged_names

pytestmark = pytest.mark.timeout(600)

#: In the environment there is only the light core.
OUTSIDE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=OUTSIDE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory, repository) -> Path:
    """A copy of what the package is built from, so that building leaves nothing in the checkout."""
    folder = tmp_path_factory.mktemp("source") / "rlvr"
    folder.mkdir()
    parts = ["rlvr", "actors", "conf", "launch", "pyproject.toml", "LICENSE", "README.md"]
    run("cp", "-a", *[repository / part for part in parts], folder, cwd=repository)
    return folder


@pytest.fixture(scope="module")
def sdist(tmp_path_factory, source) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(out)!r})"
    run(sys.executable, "-c", code, cwd=source)
    [archive] = out.glob("*.tar.gz")
    return archive


def wheel(of: Path, out: Path) -> Path:
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", out, of, cwd=out)
    [archive] = out.glob("*.whl")
    return archive


@pytest.fixture(scope="module")
def built(tmp_path_factory, source) -> Path:
    return wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory, built) -> Path:
    """An empty virtual environment with the wheel and what its metadata asks for. Returns its bin folder."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "-q", built, cwd=folder)
    return folder / "bin"


def names(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as file:
        return set(file.namelist())


def test_the_wheel_holds_every_module_and_configuration_once_under_the_package(built, source):
    held = names(built)
    for folder in ("rlvr", "actors", "conf", "launch"):
        for path in (source / folder).rglob("*"):
            if path.suffix in (".py", ".yaml") and not path.is_symlink():
                name = path.relative_to(source).as_posix()
                assert (name if folder == "rlvr" else f"rlvr/{name}") in held, name
    top = {name.split("/")[0] for name in held}
    assert {name for name in top if not name.endswith(".dist-info")} == {"rlvr"}
    assert "rlvr/py.typed" in held


def test_the_metadata_is_complete(built):
    with zipfile.ZipFile(built) as file:
        [path] = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(file.read(path).decode())
        entry_points = file.read(path.replace("METADATA", "entry_points.txt")).decode()
        licences = [name for name in file.namelist() if name.endswith("/LICENSE")]
    assert metadata["Name"] == "rlvr"
    assert metadata["License-Expression"] == "Apache-2.0" and licences
    assert metadata["Summary"] and metadata["Keywords"] and metadata.get_payload()
    assert {part.strip() for part in metadata["Requires-Python"].split(",")} == {">=3.11", "<3.13"}
    assert "rlvr = rlvr.launch.cli:main" in entry_points
    assert "rlvr_weight_transfer = rlvr.engine.weight_transfer:register" in entry_points


def test_a_wheel_built_from_the_sdist_is_the_same(sdist, built, tmp_path):
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    [unpacked] = [path for path in tmp_path.iterdir() if path.is_dir()]
    (tmp_path / "out").mkdir()
    assert names(wheel(unpacked, tmp_path / "out")) == names(built)


def test_outside_the_checkout_the_command_line_works_without_the_stack(environment, tmp_path):
    python = environment / "python"
    listing = run(python, "-m", "rlvr.launch", "config", cwd=tmp_path)
    assert "learner.lr: float = 1e-05" in listing
    assert run(environment / "rlvr", "config", cwd=tmp_path) == listing
    for name in packaged_names():
        assert yaml.safe_load(run(environment / "rlvr", "config", f"conf={name}", cwd=tmp_path))["model"]["path"]
    (tmp_path / "mine.yaml").write_text("extends: quickstart\nrun.steps: 3\n")
    resolved = run(environment / "rlvr", "config", "conf=./mine.yaml", cwd=tmp_path)
    assert yaml.safe_load(resolved)["run"]["steps"] == 3


def test_a_user_s_own_folders_do_not_collide(environment, tmp_path):
    for name in ("conf", "launch", "actors"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the folder of the user was imported')\n")
    assert "learner.lr" in run(environment / "python", "-m", "rlvr.launch", "config", cwd=tmp_path)
    code = "import importlib.util as u; assert u.find_spec('rlvr.actors'); assert u.find_spec('actors') is None"
    (tmp_path / "empty").mkdir()
    run(environment / "python", "-c", code, cwd=tmp_path / "empty")


def test_a_reward_can_be_tested_with_the_light_core_alone(environment, tmp_path):
    code = (
        "import sys, importlib, pkgutil\n"
        "for name in ('rlvr.rewards', 'rlvr.tasks', 'rlvr.records'):\n"
        "    package = importlib.import_module(name)\n"
        "    for item in pkgutil.walk_packages(getattr(package, '__path__', []), name + '.'):\n"
        "        importlib.import_module(item.name)\n"
    )
    run(environment / "python", "-c", code, cwd=tmp_path)


def test_a_run_without_the_stack_says_what_is_missing_and_how_to_get_it(environment, tmp_path):
    done = subprocess.run(
        [environment / "rlvr", "conf=quickstart"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert all(name in done.stderr for name in ("torch", "ray", "vllm", "deepspeed", "make install")), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
