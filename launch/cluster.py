"""Starting Ray for a run, or joining a cluster that is there. Knows nothing of what the actors do."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rlvr.config import ClusterConfig
from rlvr.errors import InfrastructureError, UserError

OBJECT_STORE_BYTES = 256 * 2**20
"""Groups are small and weights travel through shared memory, so Ray's default (30 % of memory) is a waste."""


@dataclass(frozen=True)
class RayCluster:
    """A cluster that this process is connected to."""

    dashboard: str
    """Address of the dashboard, "" without one."""
    session: Path
    """Ray's folder on this machine; holds the actors' logs."""


def start(cluster: ClusterConfig, namespace: str) -> RayCluster:
    """Start or join Ray.

    A cluster started here listens on loopback, ends with this process, and kills the process groups of
    actors that die, so that an engine's children never outlive it.
    """
    # Read by the raylet, so before it starts. Ray spells it like this.
    os.environ["RAY_process_group_cleanup_enabled"] = "true"  # noqa: SIM112
    # Ray would start actors at niceness 15: whatever else the machine does then comes first, twenty to one.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # actors without GPUs: leave the variable alone
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)  # it warns that authentication is on
    import ray

    common = {"namespace": namespace, "log_to_driver": False, "logging_level": logging.WARNING}
    try:
        if cluster.address:
            context = ray.init(address=cluster.address, **common)
        else:
            context = ray.init(
                address="local",
                num_cpus=os.cpu_count(),
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=cluster.dashboard,
                dashboard_host=cluster.dashboard_host,
                dashboard_port=cluster.dashboard_port or None,  # None: Ray looks for a free one itself
                _node_ip_address="127.0.0.1",
                **common,
            )
    except ConnectionError as error:
        raise UserError(f"no Ray cluster at cluster.address={cluster.address!r}: {error}") from error
    except ValueError as error:
        raise UserError(f"Ray refuses cluster.*: {error}") from error
    except Exception as error:  # Ray raises no class of its own when one of its processes does not come up
        raise InfrastructureError(f"Ray did not start on this machine: {error}") from error
    url = context.dashboard_url
    dashboard = f"http://{url}" if cluster.dashboard and url else ""
    return RayCluster(dashboard, Path(context.address_info["session_dir"]))


def keep_logs(session: Path, destination: Path) -> list[Path]:
    """Copy what the actors on this machine wrote into `destination`, one file per actor and stream.

    `ray logs` answers only while the cluster runs, and Ray's own folder goes with the next tidy-up of /tmp.
    """
    kept = []
    for path in sorted((session / "logs").glob("worker-*-*.*")):
        if actor := _actor_class(path):
            destination.mkdir(parents=True, exist_ok=True)
            target = destination / f"{actor}-{path.stem.rsplit('-', 1)[-1]}{path.suffix}"
            shutil.copyfile(path, target)
            kept.append(target)
    return kept


def _actor_class(log: Path) -> str:
    """The class of the actor that wrote a worker's log, "" where it never held one."""
    with log.open(errors="replace") as lines:
        for line, _ in zip(lines, range(20), strict=False):
            if line.startswith(":actor_name:"):
                return line.removeprefix(":actor_name:").strip()
    return ""


def stop() -> None:
    """Leave Ray; ends the cluster if `start` started it. Harmless when it never started."""
    import ray

    if ray.is_initialized():
        ray.shutdown()
