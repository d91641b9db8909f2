# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a signed package repository with stand-ins for NVIDIA's driver and toolkits, on the host that will use it.

    make_repository.py --layout debian12 --version 580.82.07 --version 580.95.05 --toolkit 12.6 --out /srv/vendor/cuda

The repository has the directory layout, package names and dependencies of NVIDIA's repository, so that the role works
with it unchanged. The content of the packages is different: the kernel modules contain only a version, and the
simulator replaces the libraries. Therefore, a build takes seconds. The compiler of a toolkit is a script that compiles
a CUDA program for the CPU with the host's g++.

Requires gcc, gpg, and the tools of the package format: dpkg-deb and apt-ftparchive, or rpmbuild and createrepo_c.
Prints the fingerprint of the key. With --digest, prints the SHA-256 digest of the key file without the lines that begin
with Version.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

STAND_IN = "Stand-in for the vendor's package of this name, made by the sandbox of gpufleet.hosts. It drives nothing."
MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
LICENCES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-cfg", "libnvidia-ptxjitcompiler")
# The driver's modules need this version, which NVIDIA's repositories, or EPEL, have.
DKMS = "3.2.2-1"
SUSE_KERNEL = "6.4.0-150600.21"
# The simulator's program, which the packages of drivers contain. The units of the container toolkit need it.
NVIDIA_SMI = Path("/usr/lib/gpusim/nvidia-smi")
# Debian's headers with the release of another kernel, and the scripts that kernel packages run, such as that of DKMS.
HEADERS = """\
rm -rf {tree}
headers=$(ls -d /usr/src/linux-headers-*-amd64 | head -n 1)
cp -a "$headers" {tree}
for file in generated/utsrelease.h config/kernel.release; do
    sed -i "s/${{headers#/usr/src/linux-headers-}}/{release}/" {tree}/include/$file
done
[ ! -d /etc/kernel/header_postinst.d ] || run-parts --arg={release} /etc/kernel/header_postinst.d
"""


class Package:
    """A package: its name, dependencies, files, and scripts for installation and removal."""

    def __init__(self, name: str, version: str, depends: tuple[str, ...] = (), conflicts: tuple[str, ...] = ()) -> None:
        self.name = name
        self.version = version
        self.depends = depends
        self.conflicts = conflicts
        self.provides: tuple[str, ...] = ()
        # Only for dpkg.
        self.replaces: tuple[str, ...] = ()
        self.breaks: tuple[str, ...] = ()
        self.recommends: tuple[str, ...] = ()
        self.pre_depends: tuple[str, ...] = ()
        # Only for rpm.
        self.obsoletes: tuple[str, ...] = ()
        self.after_transaction = ""
        # Paths of configuration files.
        self.settings: tuple[str, ...] = ()
        self.files: dict[str, str] = {}
        # Files of this host by their path in the package, and empty directories.
        self.copies: dict[str, Path] = {}
        self.directories: tuple[str, ...] = ()
        self.libraries: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.modules: dict[str, dict[str, str]] = {}
        self.before_install = ""
        self.after_install = ""
        self.before_removal = ""
        self.after_removal = ""


def add_headers(package: Package, release: str) -> None:
    """Let a package install the headers of a simulated kernel, with which DKMS can build modules."""
    tree = f"/usr/src/kernel-{release}"
    package.links[f"/usr/lib/modules/{release}/build"] = tree
    package.after_install = HEADERS.format(release=release, tree=tree)
    package.after_removal = f"rm -rf {tree}\n"


def module_source(name: str, version: str, licence: str) -> str:
    """Return a kernel module that has a version but no function. Like the real modules, others depend on nvidia."""
    symbol = "int gpufleet_stand_in;\nEXPORT_SYMBOL_GPL(gpufleet_stand_in);\n" if name == "nvidia" else ""
    use = "" if name == "nvidia" else "extern int gpufleet_stand_in;\nint *gpufleet_%s = &gpufleet_stand_in;\n"
    use = use % name.replace("-", "_") if use else use
    # Only a module with a license that the kernel knows can use symbols that are exported for GPL modules.
    symbol, use = (symbol, use) if "GPL" in licence else ("", "")
    return (
        "#include <linux/module.h>\n#include <linux/init.h>\n"
        f'{symbol}{use}MODULE_LICENSE("{licence}");\nMODULE_VERSION("{version}");\n'
        "static int __init start(void) { return 0; }\nstatic void __exit stop(void) { }\n"
        "module_init(start);\nmodule_exit(stop);\n"
    )


def kernel_package(name: str, version: str, full: str, flavor: str, conflicts: tuple[str, ...]) -> Package:
    """Return the package with the sources of the kernel modules, built by DKMS when it is installed."""
    package = Package(name, full, (f"dkms (>= {DKMS.partition('-')[0]})",), conflicts)
    source = f"/usr/src/nvidia-{version}"
    conf = [f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"']
    for index, module in enumerate(MODULES):
        package.files[f"{source}/{module}.c"] = module_source(module, version, LICENCES[flavor])
        conf.append(f'BUILT_MODULE_NAME[{index}]="{module}"\nDEST_MODULE_LOCATION[{index}]="/updates/dkms"')
    conf.append('MAKE[0]="make -j$(nproc) -C $kernel_source_dir M=$dkms_tree/$module/$module_version/build modules"')
    package.files[f"{source}/dkms.conf"] = "\n".join(conf) + "\n"
    package.files[f"{source}/Makefile"] = "".join(f"obj-m += {module}.o\n" for module in MODULES)
    package.after_install = (
        f"dkms add nvidia/{version} >/dev/null || true\n"
        "for kernel in /lib/modules/*/build; do\n"
        '    [ -e "$kernel/Makefile" ] || continue\n'
        f'    dkms install --force nvidia/{version} -k "$(basename "$(dirname "$kernel")")"\n'
        "done\n"
    )
    package.before_removal = f"dkms remove nvidia/{version} --all || true\n"
    return package


def library_files(package: Package, names: tuple[str, ...], version: str, directory: str) -> None:
    """Add libraries to a package. The simulator replaces them after each run of the package manager."""
    for name in names:
        package.libraries[f"{directory}/{name}.so.{version}"] = f"{name}.so.1"
        package.links[f"{directory}/{name}.so.1"] = f"{name}.so.{version}"
    # dpkg runs the simulator through its configuration. rpm needs a script.
    package.after_install += (
        "ldconfig\n[ ! -x /usr/lib/gpusim/gpusim ] || /usr/lib/gpusim/gpusim graft --quiet || true\n"
    )


def service_package(name: str, full: str, unit: str, does: str) -> Package:
    """Return a package with a daemon that runs one action and then waits."""
    package = Package(name, full)
    package.files[f"/usr/lib/systemd/system/{unit}"] = (
        f"[Unit]\nDescription={name} (stand-in)\n\n[Service]\nExecStart=/bin/sleep infinity\nExecStartPost={does}\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    return package


def fabric_packages(version: str, full: str, kind: str = "deb") -> list[Package]:
    """Return the packages of the fabric manager and its library. Their names changed in branch 580."""
    branch = version.partition(".")[0]
    older = {"deb": f"nvidia-fabricmanager-{branch}", "rpm": "nvidia-fabric-manager"}[kind]
    names = (older, f"libnvidia-nscq-{branch}") if int(branch) < 580 else ("nvidia-fabricmanager", "libnvidia-nscq")
    library = Package(names[1], full)
    library_files(library, ("libnvidia-nscq",), version, "/usr/lib")
    joins = "/usr/lib/gpusim/gpusim fabric completed"
    return [service_package(names[0], full, "nvidia-fabricmanager.service", joins), library]


def debian(version: str) -> list[Package]:
    """Return NVIDIA's driver packages for Debian. Before branch 560, they are split like Debian's own packages."""
    full = f"{version}-1"
    tools = ("nvidia-smi", "nvidia-driver-cuda")
    if int(version.partition(".")[0]) >= 560:
        tools = ("nvidia-driver-cuda", "nvidia-smi")
    directory = "/usr/lib/x86_64-linux-gnu"
    libraries = {"libcuda1": ("libcuda", "libnvidia-ptxjitcompiler"), "libnvidia-ml1": ("libnvidia-ml",)}
    packages = [
        kernel_package("nvidia-kernel-open-dkms", version, full, "open", ("nvidia-kernel-dkms",)),
        kernel_package("nvidia-kernel-dkms", version, full, "proprietary", ("nvidia-kernel-open-dkms",)),
        Package(tools[0], full, (f"libcuda1 (= {full})", f"libnvidia-ml1 (= {full})"), tools[1:]),
        *fabric_packages(version, full),
    ]
    packages[2].copies["/usr/bin/nvidia-smi"] = NVIDIA_SMI
    for name, files in {**libraries, "libnvidia-cfg1": ("libnvidia-cfg",)}.items():
        package = Package(name, full)
        library_files(package, files, version, directory)
        packages.append(package)
    return packages


def ubuntu(version: str) -> list[Package]:
    """Return NVIDIA's driver packages for Ubuntu. Since 590, their names do not contain the branch."""
    branch = version.partition(".")[0]
    mark = f"-{branch}" if int(branch) < 590 else ""
    full = f"{version}-0ubuntu1"
    directory = "/usr/lib/x86_64-linux-gnu"
    packages = [
        kernel_package(f"nvidia-dkms{mark}-open", version, full, "open", (f"nvidia-dkms{mark}",)),
        kernel_package(f"nvidia-dkms{mark}", version, full, "proprietary", (f"nvidia-dkms{mark}-open",)),
        Package(f"nvidia-utils{mark}", full, (f"libnvidia-compute{mark} (= {full})",)),
        Package(f"nvidia-compute-utils{mark}", full, (f"libnvidia-compute{mark} (= {full})",)),
        *fabric_packages(version, full),
    ]
    for name, files in (("libnvidia-compute", LIBRARIES[:2] + LIBRARIES[3:]), ("libnvidia-cfg1", LIBRARIES[2:3])):
        package = Package(f"{name}{mark}", full)
        library_files(package, files, version, directory)
        packages.append(package)
    return packages


def enterprise_linux(version: str) -> list[Package]:
    """Return NVIDIA's driver packages for Enterprise Linux and Amazon Linux."""
    full = f"3:{version}-1"
    kernel = {"open": "kmod-nvidia-open-dkms", "proprietary": "kmod-nvidia-latest-dkms"}
    packages = [
        kernel_package(name, version, full, flavor, tuple(other for other in kernel.values() if other != name))
        for flavor, name in kernel.items()
    ]
    for package in packages:
        # DKMS on a simulated host is a Debian package, which rpm does not know.
        package.depends = (f"nvidia-kmod-common = {full}",)
    libraries = Package("nvidia-driver-cuda-libs", full)
    library_files(libraries, ("libcuda", "libnvidia-ptxjitcompiler"), version, "/usr/lib64")
    management = Package("libnvidia-ml", full)
    library_files(management, ("libnvidia-ml",), version, "/usr/lib64")
    configuration = Package("libnvidia-cfg", full)
    library_files(configuration, ("libnvidia-cfg",), version, "/usr/lib64")
    same = (f"nvidia-driver-cuda-libs = {full}", f"libnvidia-ml = {full}")
    packages += [libraries, management, configuration, Package("nvidia-driver-cuda", full, same)]
    packages += [Package(name, full) for name in ("nvidia-kmod-common", "nvidia-modprobe", "nvidia-persistenced")]
    return [*packages, *fabric_packages(version, full, "rpm")]


def prebuilt_modules(package: Package, kernel: str, version: str, flavor: str, directory: str) -> None:
    """Add prebuilt modules for a kernel to a package."""
    for module in MODULES:
        package.modules[f"/lib/modules/{kernel}/{directory}/{module}.ko"] = {
            "name": module.replace("-", "_"),
            "version": version,
            "license": LICENCES[flavor],
            # The main module is loaded at boot because of this alias. The others need it.
            **({"alias": "pci:v000010DEd*sv*sd*bc03sc02i00*"} if module == "nvidia" else {"depends": "nvidia"}),
            "vermagic": f"{kernel} SMP preempt mod_unload modversions ",
        }
    package.after_install = package.after_removal = f"depmod -a {kernel}\n"


def prebuilt_package(name: str, version: str, flavor: str, others: tuple[str, ...]) -> Package:
    """Return a package with prebuilt kernel modules of the distribution, for the running kernel."""
    kernel = platform.release()
    package = Package(name, f"{version}_k{kernel.partition('-')[0]}_150700.51-0", (), others)
    prebuilt_modules(package, kernel, version, flavor, "updates")
    return package


def suse(version: str) -> list[Package]:
    """Return the driver packages of NVIDIA's repository for SUSE, and the open modules that SUSE builds and signs.

    Before branch 575, the proprietary modules are prebuilt. From 575 on, NVIDIA's modules are for DKMS.
    """
    full, branch = f"{version}-0", int(version.partition(".")[0])
    common = f"nvidia-common-G06 = {full}"
    signed, prebuilt = "nvidia-open-driver-G06-signed-cuda-kmp-default", "nvidia-driver-G06-kmp-default"
    sources = {"open": "nvidia-open-driver-G06", "proprietary": "nvidia-driver-G06"}
    packages = [prebuilt_package(signed, version, "open", (prebuilt, *sources.values()))]
    if branch < 575:
        packages.append(prebuilt_package(prebuilt, version, "proprietary", (signed,)))
    else:
        for flavor, name in sources.items():
            others = (signed, *(other for other in sources.values() if other != name))
            package = kernel_package(name, version, full, flavor, others)
            package.depends = ("dkms",)
            packages.append(package)
    apart = {"libnvidia-cfg": ("libnvidia-cfg",), "libnvidia-ml": ("libnvidia-ml",)} if branch >= 580 else {}
    packages += [Package("nvidia-common-G06", full, (f"nvidia-modprobe >= {version}",))]
    compute = Package("nvidia-compute-G06", full, (common, f"nvidia-persistenced >= {version}"))
    library_files(compute, tuple(name for name in LIBRARIES if name not in apart), version, "/usr/lib64")
    for name, files in apart.items():
        package = Package(name, full)
        library_files(package, files, version, "/usr/lib64")
        packages.append(package)
    packages += [Package(name, full) for name in ("nvidia-modprobe", "nvidia-persistenced")]
    packages += [Package("libnvidia-gpucomp", full)] if branch >= 575 else []
    utilities = Package("nvidia-compute-utils-G06", full, (f"nvidia-compute-G06 = {full}",))
    return [*packages, compute, utilities, *fabric_packages(version, full, "rpm")]


NVCC = r"""#!/bin/sh
# Stand-in for the vendor's compiler. It compiles CUDA kernels as CPU functions with the host's g++.
#   nvcc [OPTION...] -o FILE SOURCE
set -eu
out=a.out source=
while [ $# -gt 0 ]; do
    case "$1" in
        --version) echo 'Cuda compilation tools, release @VERSION@ (stand-in)'; exit ;;
        -o) out=$2; shift ;;
        -*) ;;
        *) source=$1 ;;
    esac
    shift
done
{
    cat <<'HEADER'
#include <cstdlib>
#include <cstring>
#define __global__ static
enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
template <class T> static cudaError_t cudaMalloc(T **to, size_t size) { *to = (T *)malloc(size); return cudaSuccess; }
static cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind) {
    memcpy(to, from, size);
    return cudaSuccess;
}
static cudaError_t cudaGetLastError() { return cudaSuccess; }
static const char *cudaGetErrorString(cudaError_t) { return "stand-in"; }
HEADER
    sed 's/<<<[^>]*>>>//' "$source"
} | g++ -x c++ -o "$out" -
"""


def toolkit(version: str, needs: tuple[str, ...], compiler: tuple[str, ...]) -> list[Package]:
    """Return a toolkit: a metapackage, the compiler, and the package that creates a link to the toolkit."""
    name, directory, full = version.replace(".", "-"), f"/usr/local/cuda-{version}", f"{version}.1-1"
    meta = Package(f"cuda-toolkit-{name}", full, (f"cuda-nvcc-{name}", f"cuda-toolkit-{name}-config-common", *needs))
    nvcc = Package(f"cuda-nvcc-{name}", full, compiler)
    nvcc.files[f"{directory}/bin/nvcc"] = NVCC.replace("@VERSION@", version)
    config = Package(f"cuda-toolkit-{name}-config-common", full)
    config.files[f"{directory}/version.json"] = f'{{"cuda": {{"version": "{version}.1"}}}}\n'
    number = version.replace(".", "")
    link = f"update-alternatives --quiet --install /usr/local/cuda cuda {directory} {number}\n"
    config.after_install = link
    config.before_removal = f"update-alternatives --quiet --remove cuda {directory}\n"
    return [meta, nvcc, config]


def elsewhere(_version: str) -> list[Package]:
    """Return packages of other repositories: the shell, the versionlock plugin, DKMS of EPEL, and SUSE's headers."""
    shell = Package("bash", "5.2-1")
    shell.provides = ("/bin/sh",)
    # dnf on a simulated host already has the plugin, but rpm does not know it.
    locks = Package("python3-dnf-plugin-versionlock", "4.0.21-1")
    devel = Package("kernel-default-devel", f"{SUSE_KERNEL}.1")
    add_headers(devel, f"{SUSE_KERNEL}-default")
    return [Package("dkms", DKMS), Package("epel-release", "9-9"), devel, locks, shell]


def repack_dkms(out: Path) -> None:
    """Add the DKMS package of NVIDIA's repositories for apt: the host's own, with a newer version."""
    with tempfile.TemporaryDirectory() as scratch:
        run("apt-get", "--quiet", "download", "dkms", cwd=Path(scratch))
        tree = Path(scratch) / "tree"
        run("dpkg-deb", "--raw-extract", str(next(Path(scratch).glob("dkms_*.deb"))), str(tree))
        control = tree / "DEBIAN/control"
        text = re.sub(r"(?m)^Version: .*$", f"Version: 1:{DKMS}", control.read_text(encoding="utf-8"))
        control.write_text(text, encoding="utf-8")
        run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(out))


def write_tree(package: Package, root: Path) -> None:
    """Write the files of a package below a directory."""
    readme = f"/usr/share/doc/{package.name}/README.stand-in"
    for path, content in {**package.files, readme: STAND_IN + "\n"}.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
        if "/bin/" in path or "/cli-plugins/" in path:
            target.chmod(0o755)
    for path in package.directories:
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path, source in package.copies.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    for path, soname in package.libraries.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        run("gcc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-o", str(target), "-x", "c", "/dev/null")
    for path, information in package.modules.items():
        write_module(root / path.lstrip("/"), information)
    for path, target in package.links.items():
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def write_module(target: Path, information: dict[str, str]) -> None:
    """Write an object file that has only the metadata of a kernel module and the symbols that depmod reads."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source = "".join(
        f'static const char field{index}[] __attribute__((section(".modinfo"), used)) = "{key}={value}";\n'
        for index, (key, value) in enumerate(information.items())
    )
    if information.get("depends"):
        source += (
            "void nvidia_register_module(void);\nvoid (*needed)(void) __attribute__((used)) = nvidia_register_module;\n"
        )
    else:
        section = '__attribute__((section("__ksymtab_strings"), used))'
        source += f'static const char exported[] {section} = "nvidia_register_module";\n'
    argv = ["gcc", "-c", "-fno-pic", "-o", str(target), "-x", "c", "-"]
    subprocess.run(argv, input=source, text=True, check=True)


def build_deb(package: Package, out: Path, scratch: Path) -> None:
    """Build a package for dpkg."""
    tree = scratch / f"{package.name}_{package.version}"
    write_tree(package, tree)
    control = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": "amd64",
        "Maintainer": "gpufleet maintainers <maintainers@users.noreply.github.com>",
        "Pre-Depends": ", ".join(package.pre_depends),
        "Depends": ", ".join(package.depends),
        "Recommends": ", ".join(package.recommends),
        "Provides": ", ".join(package.provides),
        "Conflicts": ", ".join(package.conflicts),
        "Breaks": ", ".join(package.breaks),
        "Replaces": ", ".join(package.replaces),
        "Description": f"{package.name} (stand-in)\n {STAND_IN}",
    }
    directory = tree / "DEBIAN"
    directory.mkdir()
    lines = [f"{name}: {value}\n" for name, value in control.items() if value]
    (directory / "control").write_text("".join(lines), encoding="utf-8")
    if package.settings:
        (directory / "conffiles").write_text("".join(f"{path}\n" for path in package.settings), encoding="utf-8")
    scripts = {
        "preinst": package.before_install,
        "postinst": package.after_install,
        "prerm": package.before_removal,
        "postrm": package.after_removal,
    }
    for name, script in scripts.items():
        if script:
            (directory / name).write_text(f"#!/bin/sh\nset -e\n{script}", encoding="utf-8")
            (directory / name).chmod(0o755)
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(out))


def build_rpm(package: Package, out: Path, scratch: Path) -> None:
    """Build a package for rpm."""
    tree = scratch / f"{package.name}-{package.version.replace(':', '_')}"
    write_tree(package, tree)
    epoch, _colon, rest = package.version.rpartition(":")
    version, _dash, release = rest.partition("-")
    spec = scratch / f"{tree.name}.spec"
    header = [
        f"Name: {package.name}",
        f"Epoch: {epoch or 0}",
        f"Version: {version}",
        f"Release: {release}",
        "License: GPL-3.0-or-later",
        f"Summary: {package.name} (stand-in)",
        *(f"Requires: {name}" for name in package.depends),
        *(f"Provides: {name}" for name in package.provides),
        *(f"Conflicts: {name}" for name in package.conflicts),
        *(f"Obsoletes: {name}" for name in package.obsoletes),
        "AutoReqProv: no",
        "%define _build_id_links none",
        "%define __strip /bin/true",
        # Some packages have programs of 100 MB. Neither compress nor check them.
        "%define _binary_payload w0.gzdio",
        "%define __os_install_post %{nil}",
        f"%description\n{STAND_IN}",
        f"%install\nmkdir -p %{{buildroot}}\ncp -a {tree}/. %{{buildroot}}/",
        *([f"%pre\n{package.before_install}"] if package.before_install else []),
        *([f"%post\n{package.after_install}"] if package.after_install else []),
        *([f"%preun\n{package.before_removal}"] if package.before_removal else []),
        *([f"%postun\n{package.after_removal}"] if package.after_removal else []),
        *([f"%posttrans\n{package.after_transaction}"] if package.after_transaction else []),
        "%files",
        *sorted(
            {
                f"%dir {place}"
                for path in package.files
                for place in Path(path).parents
                if len(place.parts) > 3 and str(place).startswith("/usr/local/")
            }
        ),
        *(f"%dir {path}" for path in package.directories),
        *(f"%config(noreplace) {path}" for path in package.settings),
        *sorted(
            {*package.files, *package.copies, *package.libraries, *package.links, *package.modules}
            - {*package.settings}
        ),
        f"/usr/share/doc/{package.name}/README.stand-in",
    ]
    spec.write_text("\n".join(header) + "\n", encoding="utf-8")
    run("rpmbuild", "-bb", "--quiet", "--define", f"_rpmdir {out}", "--define", "_rpmfilename %{NAME}-%{VERSION}.rpm",
        "--define", f"_topdir {scratch}/rpmbuild", str(spec))  # fmt: skip


def run(*argv: str, cwd: Path | None = None) -> str:
    """Run a program and return what it prints."""
    done = subprocess.run(argv, cwd=cwd, check=False, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(argv)} failed with exit status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout


def key(home: Path) -> str:
    """Return the fingerprint of the signing key. Create the key if it does not exist."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    gpg = ("gpg", "--homedir", str(home), "--batch", "--quiet")
    listing = run(*gpg, "--list-keys", "--with-colons")
    if "fpr:" not in listing:
        run(*gpg, "--passphrase", "", "--quick-gen-key", "gpufleet sandbox (stand-in)", "rsa2048", "sign", "never")
        listing = run(*gpg, "--list-keys", "--with-colons")
    return next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))


def sign_apt(out: Path, home: Path) -> None:
    """Write and sign apt's indexes."""
    (out / "Packages").write_text(run("apt-ftparchive", "packages", ".", cwd=out), encoding="utf-8")
    (out / "InRelease").unlink(missing_ok=True)
    (out / "Release").unlink(missing_ok=True)
    release = run("apt-ftparchive", "-o", "APT::FTPArchive::Release::Origin=NVIDIA", "release", ".", cwd=out)
    (out / "Release").write_text(release, encoding="utf-8")
    run("gpg", "--homedir", str(home), "--batch", "--quiet", "--clearsign", "--output", str(out / "InRelease"),
        str(out / "Release"))  # fmt: skip


def sign_suite(out: Path, suite: str, origin: str, components: list[str], home: Path, *, pool: str = "pool") -> None:
    """Write and sign the indexes of a suite. The packages of a component are in POOL/COMPONENT."""
    for component in components:
        place = out / "dists" / suite / component / "binary-amd64"
        place.mkdir(parents=True)
        (place / "Packages").write_text(
            run("apt-ftparchive", "packages", f"{pool}/{component}", cwd=out), encoding="utf-8"
        )
    fields = {"Origin": origin, "Suite": suite, "Codename": suite, "Components": " ".join(components)}
    described = [word for name, value in fields.items() for word in ("-o", f"APT::FTPArchive::Release::{name}={value}")]
    release = run("apt-ftparchive", *described, "-o", "APT::FTPArchive::Release::Architectures=amd64", "release",
                  f"dists/{suite}", cwd=out)  # fmt: skip
    path = out / "dists" / suite / "Release"
    path.write_text(release, encoding="utf-8")
    gpg = ("gpg", "--homedir", str(home), "--batch", "--quiet")
    run(*gpg, "--clearsign", "--output", str(path.with_name("InRelease")), str(path))
    (out / "key.asc").write_text(run(*gpg, "--armor", "--export"), encoding="utf-8")


def sign_rpms(out: Path, home: Path) -> None:
    """Sign the packages in a directory."""
    defined = {"__gpg": "/usr/bin/gpg", "_gpg_path": str(home), "_gpg_name": "gpufleet sandbox"}
    macros = [word for name, value in defined.items() for word in ("--define", f"{name} {value}")]
    run("rpmsign", *macros, "--addsign", *(str(path) for path in sorted(out.glob("*.rpm"))))


def built(name: str, packages: list[Package], kind: str, home: Path) -> Path:
    """Return a directory with built and signed packages. Several layouts share it, so they are built only once."""
    directory = home.parent / "built" / name
    if not directory.exists():
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "out"
            out.mkdir()
            for package in packages:
                (build_deb if kind == "deb" else build_rpm)(package, out, Path(scratch))
            if name == "dkms":
                repack_dkms(out)
            if kind == "rpm":
                sign_rpms(out, home)
            shutil.copytree(out, directory)
    return directory


def modules_of(out: Path, versions: list[str]) -> None:
    """Add the module streams of the vendor's repository for Enterprise Linux 8 and 9, and for Amazon Linux."""
    documents = []
    for branch in sorted({version.partition(".")[0] for version in versions}):
        for suffix in ("open", "dkms"):
            names = [path.stem for path in out.glob("*.rpm") if f"-{branch}." in path.stem]
            artifacts = "".join(
                f"      - {name.rpartition('-')[0]}-3:{name.rpartition('-')[2]}-1.{ARCH}\n" for name in sorted(names)
            )
            documents.append(
                "---\ndocument: modulemd\nversion: 2\ndata:\n  name: nvidia-driver\n"
                f"  stream: {branch}-{suffix}\n  version: 1\n  context: sandbox\n  arch: {ARCH}\n"
                "  summary: stand-in\n  description: stand-in\n  license:\n    module: [GPL-3.0-or-later]\n"
                f"  artifacts:\n    rpms:\n{artifacts}...\n"
            )
    path = out / "modules.yaml"
    path.write_text("".join(documents), encoding="utf-8")
    run("modifyrepo_c", "--mdtype=modules", str(path), str(out / "repodata"))


ARCH = platform.machine()
# The GnuPG version in the vendor's key files. The digests do not include this line.
VERSION = "GnuPG v2.0.22 (GNU/Linux)"
# By name of the vendor's directory: the packages in it, the package format, and the name of the key file.
LAYOUTS = {
    "debian12": (debian, "deb", "3bf863cc.pub"),
    "debian13": (debian, "deb", "8793F200.pub"),
    "ubuntu2204": (ubuntu, "deb", "3bf863cc.pub"),
    "ubuntu2404": (ubuntu, "deb", "3bf863cc.pub"),
    "ubuntu2604": (ubuntu, "deb", "60DF8A40.pub"),
    "base": (elsewhere, "rpm", "RPM-GPG-KEY-base"),
    "rhel8": (enterprise_linux, "rpm", "D42D0685.pub"),
    "rhel9": (enterprise_linux, "rpm", "D42D0685.pub"),
    "rhel10": (enterprise_linux, "rpm", "CDF6BA43.pub"),
    "amzn2023": (enterprise_linux, "rpm", "D42D0685.pub"),
    "sles15": (suse, "rpm", "D42D0685.pub"),
}


def write(options: argparse.Namespace, out: Path) -> str:
    """Build missing packages, write the signed repository, and return the fingerprint or the digest of the key."""
    packages_of, kind, key_name = LAYOUTS[options.layout]
    fingerprint = key(options.gnupg)
    wanted = {f"{packages_of.__name__}-{version}": packages_of(version) for version in options.version}
    compiler = ("g++",) if kind == "deb" else ()  # on rpm hosts, g++ is a Debian package, which rpm does not know
    if kind == "deb" and options.version:
        wanted["dkms"] = []
    for version in options.toolkit:
        wanted[f"toolkit-{version}-{kind}"] = toolkit(version, (), compiler)
    for version in options.greedy_toolkit:
        wanted[f"greedy-toolkit-{version}-{kind}"] = toolkit(version, ("nvidia-driver-cuda",), compiler)
    for name, packages in wanted.items():
        shutil.copytree(built(name, packages, kind, options.gnupg), out, dirs_exist_ok=True)
    exported = run("gpg", "--homedir", str(options.gnupg), "--batch", "--armor", "--export", fingerprint)
    begin = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"
    (out / key_name).write_text(exported.replace(begin, f"{begin}Version: {VERSION}\n"), encoding="utf-8")
    if kind == "deb":
        sign_apt(out, options.gnupg)
    else:
        run("createrepo_c", "--quiet", str(out))
        if options.layout in ("rhel8", "rhel9", "amzn2023"):
            modules_of(out, options.version)
        metadata = str(out / "repodata/repomd.xml")
        run("gpg", "--homedir", str(options.gnupg), "--batch", "--yes", "--armor", "--detach-sign", metadata)
    run("gpgconf", "--homedir", str(options.gnupg), "--kill", "gpg-agent")
    return f"sha256:{hashlib.sha256(exported.encode()).hexdigest()}" if options.digest else fingerprint


def main() -> None:
    """Create the repository, and print the fingerprint or the digest of the key."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", choices=sorted(LAYOUTS), required=True)
    parser.add_argument("--version", action="append", default=[], help="a driver version")
    parser.add_argument("--toolkit", action="append", default=[], help="a toolkit version")
    parser.add_argument(
        "--greedy-toolkit", action="append", default=[], help="a toolkit version that also depends on the driver"
    )
    parser.add_argument(
        "--digest", action="store_true", help="print the digest of the key file instead of the fingerprint"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gnupg", type=Path, default=Path("/srv/vendor/gnupg"))
    parser.add_argument("--kept", type=Path, help="directory that hosts share: see kept.py")
    options = parser.parse_args()
    out = options.out / options.layout / ARCH
    if options.kept:
        import kept  # noqa: PLC0415  # most scenarios copy only this file to their hosts

        options.gnupg, fingerprint = kept.keyring(options.kept, options.gnupg.parent / "shared", key)
        versions = [*options.version, *options.toolkit, *options.greedy_toolkit]
        words = [
            *("--version", *options.version, "--toolkit", *options.toolkit),
            *("--greedy-toolkit", *options.greedy_toolkit, "--digest", str(options.digest)),
            *(fingerprint, platform.release()),
        ]
        inputs = kept.digest(words, [Path(__file__), Path(kept.__file__), NVIDIA_SMI])
        name = f"nvidia-{options.layout}-{'-'.join(versions)}"
        print(kept.repository(options.kept, name, inputs, out, lambda place: write(options, place)))
    else:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        print(write(options, out))


if __name__ == "__main__":
    main()
