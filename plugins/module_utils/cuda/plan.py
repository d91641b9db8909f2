# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the installation of CUDA toolkits on a host. The plan of a converged host contains no changes."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import toolkit_compatibility
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.variables import CudaRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import version as driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    nvidia_repository,
    record_of_role,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import RoleTransaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

PROFILE_FILE = owned.TOOLKIT_PROFILE
# Debian's toolkit depends on the driver's library, by one of these names.
_DRIVER_LIBRARIES = ("libcuda1", "libnvidia-tesla-cuda1", "libnvidia-tesla-535-cuda1")


@dataclasses.dataclass
class Toolkit:
    """A toolkit, and how to verify it: whether at all, whether to run the program, and options for nvcc."""

    version: str | None
    directory: str
    nvcc: str
    verify: bool = False
    run: bool = False
    options: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class CudaPlan:
    """What the role does on a host, and why."""

    source: str | None = None
    toolkits: list[Toolkit] = dataclasses.field(default_factory=list)
    # Directory of the toolkit on PATH.
    default: str | None = None
    # The options of module package_transaction, None if it has nothing to do.
    transaction: RoleTransaction | None = None
    # The change of the file that sets PATH, with `path`, `state` and `content`.
    profile: dict[str, str] | None = None
    # Directories of toolkits that have not passed verification.
    untried: list[str] = dataclasses.field(default_factory=list)

    reasons: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    # What the role does, and whether it does anything.
    steps: list[Step] = dataclasses.field(default_factory=list)
    acts: bool = False


def files(request: CudaRequest) -> list[str]:
    """Return the paths that the plan depends on: those of the compilers."""
    directories = [f"/usr/local/cuda-{version}" for version in request.versions]
    return [f"{directory}/bin/nvcc" for directory in [*directories, request.path]]


def plan(
    host: Host,
    request: CudaRequest,
    distributions: dict[str, t.Any],
    branches: dict[str, int],
) -> CudaPlan:
    """Return the plan: what the role does on this host, and why.

    `distributions` has the packages and versions of the distributions' toolkits, and `branches` the driver branch of
    each toolkit version.
    """
    result = CudaPlan(request.source)
    work = RoleTransaction()
    _SOURCES[request.source](result, work, host, request, distributions)
    if work.is_needed(host, record_of_role.TOOLKIT):
        work.keep = list(driver_membership.SELECTORS)
        result.transaction = work
    if not result.problems:
        _environment(result, host, request)
        _driver(result, host, request, branches)
    _untried(result, host)
    result.steps = _steps(result)
    result.acts = bool(result.steps)
    if result.acts and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))
    return result


def _steps(result: CudaPlan) -> list[Step]:
    profile_file = result.profile and [steps.written(PROFILE_FILE, result.profile["content"] or None)]
    return [
        *(result.transaction.steps() if result.transaction else []),
        *(profile_file or []),
        *steps.listed("verification", "verify the toolkits in {}", result.untried),
    ]


# --- sources --------------------------------------------------------------------------------------------------------


def _preinstalled(
    result: CudaPlan,
    _work: RoleTransaction,
    host: Host,
    request: CudaRequest,
    _distributions: t.Any,
) -> None:
    if request.versions or request.default_version:
        result.problems.append(
            "cuda_toolkit_source=preinstalled uses the toolkit in cuda_toolkit_path, so cuda_toolkit_versions and "
            "cuda_toolkit_default_version have no effect. Remove both variables, and set cuda_toolkit_path to the "
            "toolkit's directory, such as /usr/local/cuda-12.6."
        )
        return
    version = re.search(r"cuda-(\d+\.\d+)$", request.path)
    _toolkit(result, version.group(1) if version else None, request.path)
    result.reasons.append(f"the toolkit in {request.path} is used")
    result.default = request.path
    nvcc = f"{request.path}/bin/nvcc"
    if request.environment and _profile(host, request.path) is not None and not host["files"][nvcc]["exists"]:
        result.problems.append(
            f"cuda_toolkit_source=preinstalled requires {nvcc}, which does not exist. Set cuda_toolkit_path to the "
            "toolkit's directory, or set another cuda_toolkit_source."
        )


def _distribution(
    result: CudaPlan,
    work: RoleTransaction,
    host: Host,
    request: CudaRequest,
    distributions: dict[str, t.Any],
) -> None:
    name, known = host["os"]["name"], distributions.get(host["os"]["key"] or "")
    if known is None:
        result.problems.append(
            f"cuda_toolkit_source=distribution does not support {name} (supported: "
            f"{', '.join(sorted(distributions))}). "
            'Set cuda_toolkit_source=nvidia and the versions to install, for example cuda_toolkit_versions: ["12.6"]. '
            "Or install a toolkit yourself and set cuda_toolkit_source=preinstalled."
        )
        return
    for variable, version in [("versions", item) for item in request.versions] + [
        ("default_version", request.default_version or known["version"])
    ]:
        if version != known["version"]:
            result.problems.append(
                f"cuda_toolkit_{variable}={version} is not available: {name} only has {known['version']}. Set "
                f"{known['version']}, remove the variable, or set cuda_toolkit_source=nvidia."
            )
    _toolkit(result, known["version"], "/usr")
    work.install = [package for package in known["packages"] if not is_installed(host, package)]
    result.reasons.append(f"CUDA {known['version']} from {name}")
    if work.install and not any(is_installed(host, library) for library in _DRIVER_LIBRARIES):
        driver = nvidia_driver(host)["library"]
        result.problems.append(
            f"The toolkit of {name} depends on the driver library libcuda1, "
            + (
                f"but driver {driver} was not installed from packages. Set cuda_toolkit_source=nvidia; its toolkits do "
                "not depend on driver packages."
                if driver
                else "but this role never installs a driver. Apply role nvidia_driver first, or set "
                "cuda_toolkit_source=nvidia."
            )
        )
    missing = (host["apt"] or {}).get("missing_components") or []
    if work.install and missing:
        result.problems.append(
            f"The toolkit is in components of the archive that are not enabled: {', '.join(missing)}. Enable them in "
            "apt's sources, for example with archive_components of module gpufleet.hosts.package_transaction."
        )


def _nvidia(
    result: CudaPlan,
    work: RoleTransaction,
    host: Host,
    request: CudaRequest,
    _distributions: t.Any,
) -> None:
    versions = sorted(request.versions, key=natural_key)
    if not versions:
        result.problems.append(
            "cuda_toolkit_versions is empty, but cuda_toolkit_source=nvidia requires it. Set the versions to install, "
            'for example cuda_toolkit_versions: ["12.6", "13.0"].'
        )
        return
    default = request.default_version or versions[-1]
    if default not in versions:
        result.problems.append(
            f"cuda_toolkit_default_version={default} is not in cuda_toolkit_versions ({', '.join(versions)}). Set one "
            "of these versions, or remove the variable to use the newest version."
        )
        return
    for version in versions:
        directory, package = f"/usr/local/cuda-{version}", package_of(version)
        _toolkit(result, version, directory)
        if is_installed(host, package):
            result.reasons.append(f"CUDA {version}: {package} is installed")
            continue
        if host["files"][f"{directory}/bin/nvcc"]["exists"]:
            result.reasons.append(f"CUDA {version}: the existing toolkit in {directory} is kept")
        else:
            work.install.append(package)
            result.reasons.append(f"CUDA {version}: {package} from NVIDIA's repository")
    result.default = f"/usr/local/cuda-{default}"
    if work.install or nvidia_repository.is_used_by(host, record_of_role.TOOLKIT):
        _repository(result, work, host, request)


_SOURCES = {"preinstalled": _preinstalled, "distribution": _distribution, "nvidia": _nvidia}


def package_of(version: str) -> str:
    """Return the name of NVIDIA's toolkit package. It does not depend on a driver."""
    return f"cuda-toolkit-{version.replace('.', '-')}"


def _toolkit(result: CudaPlan, version: str | None, directory: str) -> None:
    result.toolkits.append(Toolkit(version, directory, nvcc=f"{directory}/bin/nvcc"))


def _repository(result: CudaPlan, work: RoleTransaction, host: Host, request: CudaRequest) -> None:
    """Plan the configuration of NVIDIA's repository. It is only required if packages are missing."""
    system = host["os"]
    data = nvidia_repository.of_platform(system["key"])
    arch = data["nvidia"]["arches"].get(system["arch"]) if data else None
    if data is None or arch is None:
        if work.install:
            what = f"{system['name']} ({system['arch']})" if data else system["name"]
            result.problems.append(
                f"cuda_toolkit_source=nvidia does not support {what}: NVIDIA has no known repository for it. "
                "Install a toolkit yourself, then set cuda_toolkit_source=preinstalled."
            )
        return
    repository = nvidia_repository.describe(data["nvidia"]["repository"], {"arch": arch}, vars(request))
    # Without a setting, a mirror that the host already uses stays as it is, with its login, proxy and key.
    mirror = None if request.mirror else nvidia_repository.mirror_on_host(host, repository)
    if mirror:
        repository = {**repository, "url": mirror}
        result.reasons.append(f"the mirror {mirror} is used because this host already has it")
    used_by_driver = nvidia_repository.is_used_by(host, record_of_role.DRIVER)
    kept = mirror is not None or bool(nvidia_repository.entries_of(host, repository))
    removed: list[str] = []
    if work.install and not mirror:
        if not kept and used_by_driver and nvidia_repository.is_ours_elsewhere(host, repository):
            file = nvidia_repository.entry(repository)["path"]
            result.problems.append(
                "Role nvidia_driver uses NVIDIA's repository with a URL other than "
                f"{repository['url']}. "
                + ("Remove cuda_toolkit_mirror to use that URL." if request.mirror else f"Correct the URL in {file}.")
            )
        clash = nvidia_repository.clash(host, repository)
        result.problems += [clash] if clash else []
        removed, work.purge = nvidia_repository.superseded(host, repository)
    # Do not change the proxy and the key that the driver uses.
    outdated = nvidia_repository.is_outdated(host, repository, record_of_role.TOOLKIT)
    adds = bool(work.install and not kept) or (outdated and not mirror and not used_by_driver)
    has_own_entry = adds or nvidia_repository.is_ours(host, repository)
    if adds:
        work.repositories = [nvidia_repository.definition(repository)]
    if work.install and has_own_entry:
        work.uses_repositories = [owned.REPOSITORY_ID]
    work.files = [{"path": path, "state": "absent"} for path in removed]
    if repository["type"] == "apt":
        content = _preference(host, data) if has_own_entry and not used_by_driver else None
        _file(work.files, host, nvidia_repository.APT_PREFERENCE_FILE, content)
    # With the definition, the module writes these files, too.
    if not mirror and not adds:
        for path, text in nvidia_repository.access_files(host, repository, record_of_role.TOOLKIT).items():
            _file(work.files, host, path, text)


def _preference(host: Host, data: dict[str, t.Any]) -> str | None:
    """Return the apt preference that excludes the driver packages of NVIDIA's repository.

    It prevents apt from upgrading a driver from another source. Return None if the host has no such driver, or if role
    nvidia_driver manages the preferences.
    """
    if (host["files"].get(owned.DRIVER_APT_PREFERENCES) or {}).get("exists"):
        return None
    if driver_membership.is_from_nvidia(host, data["nvidia"]):
        return None
    packages = host["packages"].items()
    if not any(driver_membership.is_part_of_driver(name, package["version"]) for name, package in packages):
        return None
    return (
        "# Written by role gpufleet.hosts.cuda_toolkit.\n"
        "# The installed driver is not from NVIDIA's repository. Do not upgrade its packages from there.\n"
        f"{nvidia_repository.apt_last(data['driver_of_distribution'])}"
    )


# --- environment and driver -----------------------------------------------------------------------------------------


def _environment(result: CudaPlan, host: Host, request: CudaRequest) -> None:
    # The programs of the distribution's toolkit are in /usr/bin, so it has no default directory.
    result.profile = _profile(host, result.default if request.environment else None)


def _profile(host: Host, directory: str | None) -> dict[str, t.Any] | None:
    files: list[dict[str, t.Any]] = []
    _file(files, host, PROFILE_FILE, profile(f"{directory}/bin") if directory else None)
    return files[0] if files else None


def _file(files: list[dict[str, t.Any]], host: Host, path: str, content: str | None) -> None:
    if not nvidia_repository.is_written(host, path, content):
        files.append(nvidia_repository.package_file(path, content))


def profile(directory: str) -> str:
    """Return the text of the file that adds a toolkit's programs to PATH."""
    return (
        "# Written by role gpufleet.hosts.cuda_toolkit.\n"
        f'case ":$PATH:" in\n*:{directory}:*) ;;\n*) PATH="{directory}:$PATH" ;;\nesac\n'
    )


def _driver(result: CudaPlan, host: Host, request: CudaRequest, branches: dict[str, int]) -> None:
    """Compare the toolkits with the driver, and set how to verify them."""
    driver = driver_version.version_in_use(host)
    only_compiles = request.verify in ("none", "compile")
    run = not only_compiles and (request.verify == "run" or nvidia_driver(host)["loaded"] is not None)
    if request.verify == "run" and nvidia_driver(host)["loaded"] is None:
        result.problems.append(
            "cuda_toolkit_verify=run requires a loaded driver, but no driver is loaded. Apply role nvidia_driver "
            "first, or set cuda_toolkit_verify to auto."
        )
    for toolkit in result.toolkits:
        version = toolkit.version
        support = toolkit_compatibility.driver_support(driver, version, branches) if driver and version else "fully"
        unsupported = (
            toolkit_compatibility.unsupported_gpus(version, nvidia_group(host)["device_ids"]) if version else {}
        )
        # CUDA uses the fastest GPU, which may be an unsupported one.
        runs = run and (not unsupported or request.verify == "run")
        toolkit.verify, toolkit.run = request.verify != "none", runs
        # A driver cannot compile PTX of a newer CUDA version, so compile code for the GPUs' own architecture.
        toolkit.options = ["-arch=native"] if runs and support == "minor" else []
        if unsupported and len(unsupported) == len(nvidia_group(host)["device_ids"]):
            # The driver version is irrelevant in this case.
            _no_supported_gpu(result, version, unsupported, only_compiles)
            continue
        if unsupported:
            result.warnings.append(
                f"CUDA {version} does not support {', '.join(unsupported)}. CUDA programs run only on the other GPUs."
                + (" The verification only compiles a program." if run and not runs else "")
            )
        if support == "no":
            text = (
                f"Driver {driver} does not support CUDA {version}, which requires driver "
                f"{toolkit_compatibility.first_branch(version)} or newer"
            )
            if only_compiles:
                result.warnings.append(f"{text}.")
            else:
                result.problems.append(
                    f"{text}. Upgrade the driver (nvidia_driver_branch), use an older toolkit, or set "
                    "cuda_toolkit_verify=compile on a host that only compiles programs."
                )
        elif support == "minor":
            result.warnings.append(
                f"Driver {driver} is older than CUDA {version}. With minor version compatibility, programs cannot use "
                "features that are newer than the driver, and must be compiled for the GPUs' own architecture (nvcc "
                "-arch=native)."
            )


def _no_supported_gpu(result: CudaPlan, version: str, unsupported: dict[str, int], only_compiles: bool) -> None:
    text = f"CUDA {version} does not support the GPUs of this host: {', '.join(unsupported)}"
    if only_compiles:
        result.warnings.append(f"{text}.")
        return
    result.problems.append(
        f"{text}. Use a toolkit of version {min(unsupported.values())}.x, or set cuda_toolkit_verify=compile on a host "
        "that only compiles programs."
    )


def _untried(result: CudaPlan, host: Host) -> None:
    """Plan the verification of installed toolkits that have not passed it yet. Only root can read the record."""
    known = record_of_role.read(host, record_of_role.TOOLKIT)
    verified = (observed_files.content(host, owned.TOOLKIT_VERIFIED) or "").splitlines()
    if known["packages"] or known["uncertain"] or known["pending"]:
        result.untried = [
            toolkit.directory for toolkit in result.toolkits if toolkit.verify and toolkit.directory not in verified
        ]
