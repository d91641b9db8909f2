# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create signed repositories with container engines that run, on the host that will use them.

    make_engine_repository.py --platform el-9 --out /srv/vendor/engines

OUT/linux has the layout of Docker's repository (https://download.docker.com/linux). OUT/base/PLATFORM has the packages
of the distribution: for apt those of the engines, for rpm also those that the engines need. Names and relations come
from archives/docker-*.yml and archives/engines-*.yml.

The programs are Debian's: dockerd and containerd of Debian 13, which also run on Debian 12, and all others of the
host's own release. Docker's plugins are scripts that only describe themselves. Packages have the versions of these
programs, not those of the archives. For a second version, the version in the programs is replaced by another one of the
same length. Other files are those of the real packages: paths, units, settings, and scripts that start services with
apt but not with rpm.

Requires a network for Debian's archive, gpg, and the tools of the package format: dpkg-deb and apt-ftparchive, or
rpmbuild and createrepo_c. Prints the fingerprint of the key.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from pathlib import Path

import archives
import kept
import make_repository as stand_ins

# The version of Debian's programs, and older ones of the same length.
DOCKER = ("26.1.4", "26.1.5")
CONTAINERD = ("1.7.23", "1.7.24")
_PROGRAM = {"docker": "{}+dfsg1", "containerd": "{}~ds1"}
# Packages from Debian 13. Their dependencies are in Debian 12, too.
NEWER = ("docker.io", "docker-cli", "containerd")
# Packages with all files of Debian's packages.
TREES = {
    "docker-ce-rootless-extras": ("rootlesskit",),
    "podman": ("podman",),
    "podman-docker": ("podman-docker",),
    "conmon": ("conmon",),
    "crun": ("crun",),
    "netavark": ("netavark",),
    "aardvark-dns": ("aardvark-dns",),
    "catatonit": ("catatonit",),
    "podman-catatonit": ("catatonit",),
    "containernetworking-plugins": ("containernetworking-plugins",),
    "golang-github-containers-common": ("golang-github-containers-common",),
    "golang-github-containers-image": ("golang-github-containers-image",),
    "containers-common": ("golang-github-containers-common", "golang-github-containers-image"),
    "libcontainers-common": ("golang-github-containers-common", "golang-github-containers-image"),
}
_LEFT_OUT = re.compile(
    r"^/usr/share/(doc|man|lintian|locale)/|^/(usr/)?lib/systemd/user/|\.a$|/completions/|/site-functions/"
)
_PLUGINS = "/usr/libexec/docker/cli-plugins"
# Files of the other packages: path in the package, Debian's package and its path there.
_CLIENT = {"/usr/bin/docker": ("docker-cli", "/usr/bin/docker")}
_DAEMON = {
    "/usr/bin/dockerd": ("docker.io", "/usr/sbin/dockerd"),
    "/usr/bin/docker-proxy": ("docker.io", "/usr/sbin/docker-proxy"),
}
_RUNC = {"/usr/bin/runc": ("runc", "/usr/sbin/runc")}
_CONTAINERD = {
    f"/usr/bin/{name}": ("containerd", f"/usr/bin/{name}") for name in ("containerd", "containerd-shim-runc-v2", "ctr")
}
_INIT = ("tini", "/usr/bin/tini-static")
PROGRAMS: dict[str, dict[str, tuple[str, str]]] = {
    "docker-ce": {**_DAEMON, "/usr/libexec/docker/docker-init": _INIT},
    "docker-ce-cli": _CLIENT,
    "containerd.io": {**_CONTAINERD, **_RUNC},
    "docker-buildx-plugin": {},
    "docker-compose-plugin": {},
    "docker.io": {**_DAEMON, **_CLIENT, "/usr/bin/docker-init": _INIT},
    "docker": {**_DAEMON, **_CLIENT, "/usr/bin/docker-init": _INIT},
    "containerd": _CONTAINERD,
    "runc": _RUNC,
}
# Amazon's unit: tests/unit/plugins/module_utils/daemon_config/test_dockerd_flags.py. SUSE's unit and daemon.json:
# bmwiedemann/openSUSE, packages/d/docker, docker.service (20394f6) and docker-daemon.json (c6f9d06). inferred: its path
# of runc.
COMMANDS = {
    "docker-ce": "/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock",
    "docker.io": "/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock",
    "amazon": "/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock $OPTIONS $DOCKER_STORAGE_OPTIONS "
    "$DOCKER_ADD_RUNTIMES",
    "sles": "/usr/bin/dockerd --add-runtime oci=/usr/bin/runc $DOCKER_NETWORK_OPTIONS $DOCKER_OPTS",
}
SETTINGS = {
    "containerd.io": {"/etc/containerd/config.toml": 'disabled_plugins = ["cri"]\n\n#root = "/var/lib/containerd"\n'},
    "amazon": {
        "/etc/sysconfig/docker": 'DAEMON_MAXFILES=1048576\nOPTIONS="--default-ulimit nofile=32768:65536"\n',
        "/etc/sysconfig/docker-storage": "DOCKER_STORAGE_OPTIONS=\n",
    },
    "sles": {
        "/etc/sysconfig/docker": 'DOCKER_OPTS=""\nDOCKER_NETWORK_OPTIONS=""\n',
        "/etc/docker/daemon.json": '{\n  "log-level": "warn",\n  "log-driver": "json-file",\n  "log-opts": {\n'
        '    "max-size": "10m",\n    "max-file": "5"\n  },\n  "selinux-enabled": true\n}\n',
    },
}
# Docker's client asks its plugins for a description. The real ones have 130 MB.
PLUGIN = """\
#!/bin/sh
[ "$1" = docker-cli-plugin-metadata ] || { echo 'This is a stand-in.' >&2; exit 1; }
echo '{"SchemaVersion": "0.1.0", "Vendor": "gpufleet", "Version": "stand-in", "ShortDescription": "stand-in"}'
"""
GROUP = "getent group docker >/dev/null || groupadd --system docker\n"
ARCH = stand_ins.ARCH


# --- Debian's programs ------------------------------------------------------------------------------------------------


class Payload:
    """Debian's packages, unpacked below a directory."""

    def __init__(self, place: Path) -> None:
        """Use a directory that may have packages from an earlier run."""
        self.place = place
        targets = stand_ins.run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
        found = [line.split() for line in targets.splitlines()]
        self.archive, self.release = next(pair for pair in found if pair[1] in ("bookworm", "trixie"))

    def tree(self, name: str) -> Path:
        """Return the directory with the files of one of Debian's packages."""
        tree = self.place / name
        if not tree.exists():
            with tempfile.TemporaryDirectory() as scratch:
                newer = self._newer(Path(scratch)) if name in NEWER and self.release == "bookworm" else []
                down = Path(scratch) / "download"
                down.mkdir()
                stand_ins.run("apt-get", "--quiet", *newer, "download", name, cwd=down)
                tree.parent.mkdir(parents=True, exist_ok=True)
                unpacked = Path(scratch) / "tree"
                stand_ins.run("dpkg-deb", "--extract", str(next(down.glob("*.deb"))), str(unpacked))
                shutil.move(unpacked, tree)
        return tree

    def _newer(self, scratch: Path) -> list[str]:
        """Return options with which apt uses the archive of Debian 13, at the same address."""
        root = self.place / "apt"
        options = [f"--option=Dir={root}", f"--option=Dir::State::status={root}/status", "--option=Dir::Bin::methods="
                   "/usr/lib/apt/methods", "--option=Acquire::Languages=none"]  # fmt: skip
        if not (root / "status").exists():
            for path in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/cache/apt"):
                (root / path).mkdir(parents=True)
            keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
            source = f"deb [signed-by={keys}] {self.archive} trixie main\n"
            (root / "etc/apt/sources.list").write_text(source, encoding="utf-8")
            (root / "status").touch()
            stand_ins.run("apt-get", "--quiet", *options, "update")
        return options

    def program(self, package: str, path: str, versions: dict[str, str]) -> Path:
        """Return a file of a package, with another version in it if `versions` has one for the program."""
        source = self.tree(package) / path.lstrip("/")
        kind = "containerd" if package == "containerd" else "docker" if package.startswith("docker") else ""
        newest = {"docker": DOCKER[-1], "containerd": CONTAINERD[-1]}.get(kind)
        wanted = versions.get(kind, newest)
        if wanted == newest:
            return source.resolve()
        target = self.place / "patched" / f"{package}-{wanted}" / source.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            old, new = (_PROGRAM[kind].format(version).encode() for version in (newest, wanted))
            if len(old) != len(new):
                raise SystemExit(f"{wanted} and {newest} differ in length. Choose a version of the same length.")
            target.write_bytes(source.read_bytes().replace(old, new))
            target.chmod(0o755)
        return target


# --- packages ---------------------------------------------------------------------------------------------------------


def package(known: archives.Package, payload: Payload, family: str, versions: dict[str, str]) -> stand_ins.Package:
    """Return a package with the relations of the archive and Debian's programs."""
    built = stand_ins.Package(known.name, known.version, known.depends, known.conflicts)
    for name in ("provides", "replaces", "breaks", "recommends", "pre_depends", "obsoletes"):
        setattr(built, name, getattr(known, name))
    is_rpm = family in ("el", "amazon", "sles")
    for path, (name, origin) in PROGRAMS.get(known.name, {}).items():
        built.copies[path] = payload.program(name, origin, versions)
    for name in TREES.get(known.name, ()):
        add_tree(built, payload.tree(name), is_rpm=is_rpm)
    if known.name in ("docker-buildx-plugin", "docker-compose-plugin"):
        built.files[f"{_PLUGINS}/{known.name.removesuffix('-plugin')}"] = PLUGIN
    if is_rpm and known.name == "bash":
        built.provides = (*built.provides, "/bin/bash")
    own = known.name if known.name in SETTINGS else family if known.name == "docker" else ""
    built.files.update(SETTINGS.get(own, {}))
    built.settings = (*built.settings, *SETTINGS.get(own, {}))
    add_services(built, payload, family)
    return built


def add_tree(built: stand_ins.Package, tree: Path, *, is_rpm: bool) -> None:
    """Add the files and links of an unpacked package."""
    for file in sorted(tree.rglob("*")):
        path = f"/{file.relative_to(tree)}"
        if (file.is_dir() and not file.is_symlink()) or _LEFT_OUT.search(path):
            continue
        path = f"/usr{path}" if is_rpm and path.startswith("/lib/") else path
        if file.is_symlink():
            built.links[path] = str(file.readlink())
            continue
        built.copies[path] = file
        if path.startswith("/etc/"):
            built.settings = (*built.settings, path)


def add_services(built: stand_ins.Package, payload: Payload, family: str) -> None:
    """Add the units of a daemon, and the scripts of its package."""
    is_rpm = family in ("el", "amazon", "sles")
    place = "/usr/lib/systemd/system" if is_rpm else "/lib/systemd/system"
    units: list[str] = []
    if built.name in ("docker-ce", "docker.io", "docker"):
        units = ["docker.service", "docker.socket"]
        built.directories = ("/etc/docker",)
        service = (payload.tree("docker.io") / "usr/lib/systemd/system/docker.service").read_text(encoding="utf-8")
        command = COMMANDS[built.name if built.name in COMMANDS else family]
        files = {
            "docker-ce": "",
            "amazon": "EnvironmentFile=-/etc/sysconfig/docker\nEnvironmentFile=-/etc/sysconfig/docker-storage\n"
            "EnvironmentFile=-/run/docker/runtimes.env\nExecStartPre=/bin/mkdir -p /run/docker\n",
            "sles": "EnvironmentFile=/etc/sysconfig/docker\n",
        }
        environment = files.get(
            family if built.name == "docker" else built.name, "EnvironmentFile=-/etc/default/docker\n"
        )
        service = re.sub(r"EnvironmentFile=.*\n", lambda _found: environment, service)
        service = re.sub(r"ExecStart=.*\n", lambda _found: f"ExecStart={command}\n", service)
        if "fd://" not in command:
            # This daemon opens its socket itself.
            units.remove("docker.socket")
            service = service.replace("Requires=docker.socket\n", "").replace(" docker.socket", "")
        else:
            socket = payload.tree("docker.io") / "usr/lib/systemd/system/docker.socket"
            built.files[f"{place}/docker.socket"] = socket.read_text(encoding="utf-8")
        built.files[f"{place}/docker.service"] = service
    elif built.name in ("containerd.io", "containerd"):
        units = ["containerd.service"]
        service = payload.tree("containerd") / "usr/lib/systemd/system/containerd.service"
        built.files[f"{place}/containerd.service"] = service.read_text(encoding="utf-8")
    if built.name in ("docker-ce", "docker-ce-cli", "docker.io", "docker"):
        built.after_install = GROUP
    if units:
        add_scripts(built, units, is_rpm=is_rpm)


def add_scripts(built: stand_ins.Package, units: list[str], *, is_rpm: bool) -> None:
    """Add the scripts for units. dpkg's enable and start them. rpm's only restart running ones."""
    names = " ".join(units)
    if is_rpm:
        built.after_install += "systemctl daemon-reload || true\n"
        built.before_removal = f'[ "$1" -gt 0 ] || systemctl --no-reload disable --now {names} || true\n'
        built.after_removal = (
            f'systemctl daemon-reload || true\n[ "$1" -eq 0 ] || systemctl try-restart {units[0]} || true\n'
        )
        return
    built.after_install += (
        f"deb-systemd-helper unmask {names} >/dev/null || true\ndeb-systemd-helper enable {names} >/dev/null || true\n"
        "if [ -d /run/systemd/system ]; then\n    systemctl --system daemon-reload >/dev/null || true\n"
        f"    deb-systemd-invoke restart {names} >/dev/null || true\nfi\n"
    )
    built.before_removal = (
        f'[ "$1" != remove ] || [ ! -d /run/systemd/system ] || deb-systemd-invoke stop {names} >/dev/null || true\n'
    )
    built.after_removal = (
        "[ ! -d /run/systemd/system ] || systemctl --system daemon-reload >/dev/null || true\n"
        f'[ "$1" != purge ] || deb-systemd-helper purge {names} >/dev/null || true\n'
    )


# --- archives with the versions of the programs -----------------------------------------------------------------------


def docker_archives(platform: str) -> list[tuple[dict[str, str], archives.Archive]]:
    """Return Docker's archive for each version, with the relations of the release of Docker that is closest to it."""
    kind = "rpm" if platform.startswith("el-") else "deb"
    data = archives.read(f"docker-{kind}")
    first = "el-8" if kind == "rpm" else "debian-12"
    (row,) = [row for row in data["variants"][first]["releases"] if row["engine"] == "27.5.1"]
    tail = "-3.1" if kind == "rpm" else "-1"
    found = []
    for docker, containerd in zip(DOCKER, CONTAINERD):
        more = {"engine": docker, "runtime": f"{containerd}{tail}", "buildx": "0.13.1", "compose": "2.26.1"}
        data["variants"][platform]["releases"] = [{**row, **more}]
        found.append(({"docker": docker, "containerd": containerd}, archives.expand(data, platform)))
    return found


def base_archives(platform: str) -> list[tuple[dict[str, str], archives.Archive]]:
    """Return the distribution's archive, with the versions of the programs."""
    family = platform.partition("-")[0]
    data = archives.read(f"engines-{family}")
    values = data["variants"][platform]
    newest = {"docker": DOCKER[-1], "containerd": CONTAINERD[-1]}
    if family == "amazon":
        # Amazon has version 25. The daemon is newer and handles CDI differently, so the package has its version.
        values["docker"] = [{"docker_": f"{DOCKER[-1]}-1.amzn2023.0.1"}]
    elif family == "sles":
        values["docker"] = [{"docker_": f"{DOCKER[-1]}_ce-150000.1.1", "upstream": f"{DOCKER[-1]}_ce"}]
    elif family == "ubuntu":
        values["docker"] = [{"pocket": "", "docker_": f"{DOCKER[-1]}-0ubuntu1~{platform.partition('-')[2]}.1"}]
        values.update(containerd_=f"{CONTAINERD[-1]}-0ubuntu1", runc_="1.1.15-0ubuntu1", podman_="4.3.1+ds1-9ubuntu1")
    elif family == "el":
        values["podman_"] = re.sub(r"4\.6\.1|5\.6\.0", "4.3.1", values["podman_"])
        values.update({name: values[name].replace("4.6.1", "4.3.1") for name in ("plugins", "catatonit")})
    return [(newest, archives.expand(data, platform))]


def with_program(archive: archives.Archive) -> list[archives.Package]:
    """Return the packages of an archive for apt that have files. The host has the others from Debian."""
    return [one for one in archive.offered if one.name in PROGRAMS or one.name in TREES]


# --- repositories -----------------------------------------------------------------------------------------------------


def write(platform: str, out: Path, home: Path) -> None:
    """Write Docker's repository, unless it has none for the platform, and that of the distribution."""
    family, _dash, release = platform.partition("-")
    payload = Payload(home.parent / "payload")
    kind = "deb" if family in ("debian", "ubuntu") else "rpm"

    def built(title: str, found: list[tuple[dict[str, str], archives.Archive]]) -> Path:
        place = Path(tempfile.mkdtemp(prefix="engines-", dir=home.parent))
        for versions, archive in found:
            chosen = with_program(archive) if kind == "deb" else archive.offered
            packages = [package(one, payload, family, versions) for one in chosen]
            name = f"engines-{title}-{platform}-{'-'.join(versions.values())}"
            shutil.copytree(stand_ins.built(name, packages, kind, home), place, dirs_exist_ok=True)
        return place

    if family in ("debian", "ubuntu", "el"):
        folder = out / "linux" / ("rhel" if family == "el" else family)
        folder.mkdir(parents=True, exist_ok=True)
        packages = built("docker", docker_archives(platform))
        if kind == "deb":
            suite = archives.read("docker-deb")["variants"][platform]["codename"]
            shutil.rmtree(folder / "dists" / suite, ignore_errors=True)
            shutil.move(packages, folder / "dists" / suite / "pool/stable/amd64")
            stand_ins.sign_suite(folder, suite, "Docker", ["stable"], home, pool=f"dists/{suite}/pool")
        else:
            repository = folder / release / ARCH / "stable"
            shutil.rmtree(repository, ignore_errors=True)
            shutil.move(packages, repository / "Packages")
            stand_ins.run("createrepo_c", "--quiet", str(repository))
        key = stand_ins.run("gpg", "--homedir", str(home), "--batch", "--armor", "--export")
        (folder / "gpg").write_text(key, encoding="utf-8")
    if family == "debian":
        return
    base = out / "base" / platform
    shutil.rmtree(base, ignore_errors=True)
    packages = built("base", base_archives(platform))
    if kind == "deb":
        suite = archives.read("engines-ubuntu")["variants"][platform]["codename"]
        shutil.move(packages, base / "pool/universe")
        stand_ins.sign_suite(base, suite, "Ubuntu", ["universe"], home)
    else:
        shutil.move(packages, base)
        stand_ins.run("createrepo_c", "--quiet", str(base))


def main() -> None:
    """Write the repositories of a platform, and print the fingerprint of the key."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gnupg", type=Path, default=Path("/srv/vendor/gnupg"))
    parser.add_argument("--kept", type=Path, help=kept.HELP)
    options = parser.parse_args()

    def complete(out: Path) -> str:
        fingerprint = stand_ins.key(options.gnupg)
        write(options.platform, out, options.gnupg)
        stand_ins.run("gpgconf", "--homedir", str(options.gnupg), "--kill", "gpg-agent")
        return fingerprint

    if options.kept:
        options.gnupg, fingerprint = kept.keyring(options.kept, options.gnupg.parent / "shared", stand_ins.key)
        programs = [Path(module.__file__) for module in (stand_ins, archives, kept)]
        files = [Path(__file__), *programs, *archives.DIRECTORY.glob("*.yml")]
        # The programs are those of the host's release.
        inputs = kept.digest([Payload(options.gnupg.parent / "payload").release, fingerprint], files)
        print(kept.repository(options.kept, f"engines-{options.platform}", inputs, options.out, complete))
    else:
        print(complete(options.out))


if __name__ == "__main__":
    main()
