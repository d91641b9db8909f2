# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a signed repository with stand-ins for the packages of NVIDIA's container toolkit.

    make_toolkit_repository.py --format deb --version 1.19.1 --version 1.20.0 --out /srv/vendor/libnvidia-container

OUT has the layout of https://nvidia.github.io/libnvidia-container: gpgkey, and stable/deb/amd64 or stable/rpm/x86_64.
Only the metadata is signed. Names and relations come from archives/toolkit-deb.yml and archives/toolkit-rpm.yml, the
programs from container_toolkit/. Paths, units and scripts are those of the vendor's packages.

The packages run on simulated hosts: their programs are Python programs, which need Python 3.11 at /usr/bin/python3.
Requires gpg with its agent, and dpkg-deb, or rpmbuild and createrepo_c. Prints the fingerprint of the key.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import shutil
import struct
import subprocess
import tempfile
import zipfile
from pathlib import Path

import archives
import kept
import make_repository as stand_ins

PROGRAMS = Path(__file__).resolve().parent / "container_toolkit"
UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
# deployments/systemd at v1.19.1 and v1.20.0 of NVIDIA/nvidia-container-toolkit. Both have the same units.
UNIT_TEXTS = {
    UNITS[0]: """\
[Unit]
Description=Trigger CDI refresh on NVIDIA driver or toolkit install / upgrade events

[Path]
PathChanged=/lib/modules/%v/modules.dep
PathChanged=/lib/modules/%v/modules.dep.bin
PathChanged=/usr/bin/nvidia-ctk

[Install]
WantedBy=multi-user.target
""",
    UNITS[1]: """\
[Unit]
Description=Refresh NVIDIA CDI specification file
ConditionPathExists=|/usr/bin/nvidia-smi
ConditionPathExists=|/usr/sbin/nvidia-smi
ConditionPathExists=|/usr/lib/wsl/lib/nvidia-smi
ConditionPathExists=/usr/bin/nvidia-ctk
StartLimitBurst=5
StartLimitIntervalSec=10s

[Service]
Type=oneshot
Environment=NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml
EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
ExecCondition=/bin/sh -c '/usr/bin/grep -qE "/(nvidia|nvidia-current)[.]ko" /lib/modules/%v/modules.dep \
    || [ -e /dev/dxg ]'
ExecStart=/bin/sh -c '/usr/bin/nvidia-smi -L || /usr/sbin/nvidia-smi -L || /usr/lib/wsl/lib/nvidia-smi -L'
ExecStart=/usr/bin/nvidia-ctk cdi generate
CapabilityBoundingSet=CAP_SYS_MODULE CAP_SYS_ADMIN CAP_MKNOD
Restart=on-failure
RestartSec=1s

[Install]
WantedBy=multi-user.target
""",
}
ENVIRONMENT = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
PRESET = "/usr/lib/systemd/system-preset/90-nvidia-container-toolkit.preset"
HOOK, ALIAS = "/usr/bin/nvidia-container-runtime-hook", "/usr/bin/nvidia-container-toolkit"
CONFIGURE = "/usr/bin/nvidia-ctk --quiet config --config-file=/etc/nvidia-container-runtime/config.toml --in-place\n"
# Only where systemd runs, the package enables the units.
ENABLE_IF_RUNNING = """\
case "$(systemctl is-system-running 2>/dev/null || true)" in
running|degraded)
    systemctl daemon-reload || true
    systemctl enable --now nvidia-cdi-refresh.path || true
    systemctl enable --now nvidia-cdi-refresh.service || true
    systemctl start nvidia-cdi-refresh.service || true
    ;;
esac
"""
# The units were in /etc/systemd/system before, where links to them can remain.
START_AFTER_MOVE = """\
moved=
for unit in nvidia-cdi-refresh.path nvidia-cdi-refresh.service; do
    link=/etc/systemd/system/multi-user.target.wants/$unit
    [ -L "$link" ] || continue
    case "$(readlink "$link")" in
    /etc/systemd/system/$unit|../$unit)
        rm -f "$link"
        moved="$moved $unit"
        ;;
    esac
done
systemctl daemon-reload >/dev/null 2>&1 || true
[ -z "$moved" ] || systemctl enable $moved >/dev/null 2>&1 || true
systemctl start nvidia-cdi-refresh.path >/dev/null 2>&1 || true
systemctl start nvidia-cdi-refresh.service >/dev/null 2>&1 || true
"""


# --- files ------------------------------------------------------------------------------------------------------------


def program(version: str) -> bytes:
    """Return the content of all programs of a version: an archive of Python modules that Python can run."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        start = "from container_toolkit.main import main\n\nmain()\n"
        texts = {"__main__.py": start, "container_toolkit/__init__.py": ""}
        for path in sorted(PROGRAMS.glob("*.py")):
            texts[f"container_toolkit/{path.name}"] = path.read_text(encoding="utf-8")
        known = texts["container_toolkit/version.py"]
        texts["container_toolkit/version.py"] = known.replace('VERSION = "1.20.0"', f'VERSION = "{version}"')
        for name, text in texts.items():
            # The same content for each build.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text)
    return b"#!/usr/bin/python3 -EsS\n" + content.getvalue()


def shared_object(soname: str) -> bytes:
    """Return a library for 64-bit machines that has a SONAME and nothing else, so that ldconfig accepts it."""
    strings = b"\0" + soname.encode() + b"\0"
    start = 64 + 2 * 56
    entries = [(5, start + 5 * 16), (10, len(strings)), (14, 1), (6, start), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    size = start + len(dynamic) + len(strings)
    machine = {"x86_64": 62, "aarch64": 183}[stand_ins.ARCH]
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096)
    place = struct.pack("<IIQQQQQQ", 2, 4, start, start, start, len(dynamic), len(dynamic), 8)
    return header + load + place + dynamic + strings


# --- packages ---------------------------------------------------------------------------------------------------------


def packages(kind: str, version: str, place: Path) -> list[stand_ins.Package]:
    """Return the packages of a version. Their generated files are below `place`."""
    archive = archives.load(f"toolkit-{kind}", "any")
    (row,) = [row for row in archive.rows("releases") if row["version_"] == version]
    folder = place / version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program").write_bytes(program(version))
    (folder / "program").chmod(0o755)
    (folder / "library").write_bytes(shared_object("libnvidia-container.so.1"))
    found = []
    for known in archive.offered:
        if archives.upstream(known.version) != version:
            continue
        built = stand_ins.Package(known.name, known.version, known.depends, known.conflicts)
        for name in ("provides", "replaces", "breaks", "pre_depends", "obsoletes"):
            setattr(built, name, getattr(known, name))
        for path in known.files:
            built.copies[path] = folder / "program"
        if known.name == "libnvidia-container1":
            _add_library(built, version, folder / "library", kind)
        elif known.name == "nvidia-container-toolkit":
            _add_alias(built, kind)
            if kind == "rpm" and not row["units"]:
                built.after_transaction += CONFIGURE
        elif known.name == "nvidia-container-toolkit-base":
            _add_units(built, row, kind)
        found.append(built)
    return found


def _add_library(built: stand_ins.Package, version: str, library: Path, kind: str) -> None:
    directory = f"/usr/lib/{stand_ins.ARCH}-linux-gnu" if kind == "deb" else "/usr/lib64"
    built.copies[f"{directory}/libnvidia-container.so.{version}"] = library
    built.links[f"{directory}/libnvidia-container.so.1"] = f"libnvidia-container.so.{version}"
    built.after_install = built.after_removal = "ldconfig\n"


def _add_alias(built: stand_ins.Package, kind: str) -> None:
    """Add the scripts for the old name of the hook, which is a link that no package contains."""
    if kind == "deb":
        built.after_install = f'[ "$1" != configure ] || [ -e {ALIAS} ] || ln -s {HOOK} {ALIAS}\n'
        built.after_removal = f'[ "$1" != purge ] || [ ! -L {ALIAS} ] || rm {ALIAS}\n'
    else:
        built.after_transaction = f"ln -sf {HOOK} {ALIAS}\n"
        built.after_removal = f'[ "$1" != 0 ] || [ ! -L {ALIAS} ] || rm -f {ALIAS}\n'


def _add_units(built: stand_ins.Package, row: dict[str, str], kind: str) -> None:
    """Add the configuration, the units and the scripts of the base package."""
    if kind == "deb":
        built.after_install = f'[ "$1" != configure ] || {CONFIGURE}'
    elif row["units"]:
        built.after_install = CONFIGURE
    if not row["units"]:
        return
    built.files[ENVIRONMENT] = "# NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml\n"
    built.settings = (ENVIRONMENT,)
    for unit, text in UNIT_TEXTS.items():
        path = f"{row['units']}/{unit}"
        built.files[path] = text
        # With dpkg, all files in /etc are configuration files.
        built.settings += (path,) if kind == "deb" and path.startswith("/etc/") else ()
    names = " ".join(UNITS)
    if row["enabled"] == "script":
        built.after_install += ENABLE_IF_RUNNING if kind == "rpm" else _only("configure", ENABLE_IF_RUNNING)
    elif row["enabled"] == "preset":
        built.files[PRESET] = "".join(f"enable {unit}\n" for unit in UNITS)
        # The macros for units in packages of rpm.
        built.after_install += f'[ "$1" != 1 ] || systemctl --no-reload preset {names} >/dev/null 2>&1 || true\n'
        built.before_removal = f'[ "$1" != 0 ] || systemctl --no-reload disable --now {names} >/dev/null 2>&1 || true\n'
        built.after_removal = "systemctl daemon-reload >/dev/null 2>&1 || true\n"
        built.after_transaction = START_AFTER_MOVE
    elif row["enabled"] == "helper":
        _add_helper_scripts(built, names)


def _only(action: str, script: str) -> str:
    return f'if [ "$1" = {action} ]; then\n{script}fi\n'


def _add_helper_scripts(built: stand_ins.Package, names: str) -> None:
    """Add the scripts of debhelper for units, and for those in /etc/systemd/system that an older version had."""
    moved = "".join(
        f'dpkg-maintscript-helper rm_conffile /etc/systemd/system/{unit} {built.version}~ {built.name} -- "$@"\n'
        for unit in reversed(UNITS)
    )
    built.before_install = moved
    built.after_install = (
        moved
        + built.after_install
        + _only(
            "configure",
            f"    deb-systemd-helper unmask {names} >/dev/null || true\n"
            f"    deb-systemd-helper enable {names} >/dev/null || true\n"
            "    if [ -d /run/systemd/system ]; then\n        systemctl --system daemon-reload >/dev/null || true\n"
            f"        deb-systemd-invoke start {names} >/dev/null || true\n    fi\n",
        )
    )
    built.before_removal = moved + (
        f'[ "$1" != remove ] || [ ! -d /run/systemd/system ] || deb-systemd-invoke stop {names} >/dev/null || true\n'
    )
    built.after_removal = (
        moved
        + "[ ! -d /run/systemd/system ] || systemctl --system daemon-reload >/dev/null || true\n"
        + f'[ "$1" != purge ] || deb-systemd-helper purge {names} >/dev/null || true\n'
    )


# --- the repository ---------------------------------------------------------------------------------------------------


def sign(file: Path, target: Path, how: str, home: Path) -> None:
    """Sign a file."""
    gpg = ("gpg", "--homedir", str(home), "--batch", "--quiet", "--yes", "--armor")
    stand_ins.run(*gpg, how, "--output", str(target), str(file))


def index_debs(out: Path, home: Path) -> None:
    """Write apt's indexes of a flat repository."""
    stanzas = []
    for path in sorted(out.glob("*.deb")):
        content = path.read_bytes()
        stanzas.append(
            stand_ins.run("dpkg-deb", "--field", str(path))
            + f"Filename: ./{path.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    text = "\n".join(stanzas)
    (out / "Packages").write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    release = f"Architectures: amd64\nOrigin: NVIDIA\nSHA256:\n {digest} {len(text.encode())} Packages\n"
    (out / "Release").write_text(release, encoding="utf-8")
    sign(out / "Release", out / "InRelease", "--clearsign", home)
    sign(out / "Release", out / "Release.gpg", "--detach-sign", home)


def index_rpms(out: Path, home: Path) -> None:
    """Write the metadata for dnf and zypper."""
    stand_ins.run("createrepo_c", "--quiet", str(out))
    metadata = out / "repodata/repomd.xml"
    sign(metadata, metadata.with_name("repomd.xml.asc"), "--detach-sign", home)


def inputs(kind: str, versions: list[str]) -> str:
    """Return the digest of everything that decides the content of a repository."""
    files = [
        Path(__file__),
        Path(stand_ins.__file__),
        Path(archives.__file__),
        Path(kept.__file__),
        archives.DIRECTORY / f"toolkit-{kind}.yml",
        *PROGRAMS.glob("*.py"),
    ]
    digest = hashlib.sha256(" ".join([kind, *versions]).encode())
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def write(kind: str, versions: list[str], out: Path, home: Path) -> bool:
    """Write the repository, unless it has this content already. Return whether it was written."""
    place = out / "stable" / kind / ("amd64" if kind == "deb" else stand_ins.ARCH)
    known = out / f"inputs-{kind}"
    wanted = inputs(kind, versions)
    if known.exists() and known.read_text(encoding="utf-8") == wanted:
        return False
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        built = scratch / "out"
        built.mkdir()
        for version in versions:
            for package in packages(kind, version, scratch / "files"):
                (stand_ins.build_deb if kind == "deb" else stand_ins.build_rpm)(package, built, scratch)
        (index_debs if kind == "deb" else index_rpms)(built, home)
        known.unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(built, place)
    exported = stand_ins.run("gpg", "--homedir", str(home), "--batch", "--armor", "--export")
    (out / "gpgkey").write_text(exported, encoding="utf-8")
    known.write_text(wanted, encoding="utf-8")
    return True


def main() -> None:
    """Write the repository, and print the fingerprint of the key."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=("deb", "rpm"), required=True)
    parser.add_argument("--version", action="append", default=[], help="a version of the toolkit; all by default")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gnupg", type=Path, default=Path("/srv/vendor/gnupg"))
    parser.add_argument("--kept", type=Path, help=kept.HELP)
    options = parser.parse_args()
    known = [row["version_"] for row in archives.load(f"toolkit-{options.format}", "any").rows("releases")]
    versions = options.version or known

    def complete(out: Path) -> tuple[str, bool]:
        out.mkdir(parents=True, exist_ok=True)
        fingerprint = stand_ins.key(options.gnupg)
        is_new = write(options.format, versions, out, options.gnupg)
        (out / "fingerprint").write_text(f"{fingerprint}\n", encoding="utf-8")
        subprocess.run(["gpgconf", "--homedir", str(options.gnupg), "--kill", "gpg-agent"], check=False)
        return fingerprint, is_new

    if options.kept:
        options.gnupg, fingerprint = kept.keyring(options.kept, options.gnupg.parent / "shared", stand_ins.key)
        name, digest = f"toolkit-{options.format}", kept.digest([inputs(options.format, versions), fingerprint], [])
        print(kept.repository(options.kept, name, digest, options.out, lambda out: complete(out)[0]))
        return
    fingerprint, is_new = complete(options.out)
    print(fingerprint)
    if is_new:
        print("built the repository")


if __name__ == "__main__":
    main()
