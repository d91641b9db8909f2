# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build stand-ins for the old packages of NVIDIA for containers: make_old_packages.py OUT PLUGIN.

Names, versions, relations, configuration files and scripts are those of the vendor:
- nvidia-docker 1.0.1: NVIDIA/nvidia-docker, tag v1.0.1, build/deb and build/common.
- nvidia-docker2: the same repository, debian/control, rules and daemon.json of the tags v2.0.3, v2.6.0 and v2.14.0.
- nvidia-container-runtime: NVIDIA/nvidia-container-runtime, debian/control. Since 3.6, it is empty.
- nvidia-container-toolkit 1.5.1 and 1.13.5: NVIDIA/nvidia-container-toolkit, packaging/debian of these tags.

The programs only start runc, so containers with the old runtime run without GPUs. PLUGIN: the stand-in of the volume
plugin. Package docker-ee-stand-in provides docker-ee, which they require. Debian's docker.io conflicts with docker-ce.
"""

import pathlib
import shutil
import subprocess
import sys

RUNTIME = '#!/bin/sh\nexec runc "$@"\n'
PROGRAM = "#!/bin/sh\nexit 0\n"
# The forms of the vendor's files.
DAEMON_JSON = """\
{
    "runtimes": {
        "nvidia": {
            "path": "%s",
            "runtimeArgs": []
        }
    }
}
"""
CONFIG = "disable-require = false\n\n[nvidia-container-cli]\nload-kmods = true\n"
UNIT = """\
[Unit]
Description=NVIDIA Docker plugin
Documentation=https://github.com/NVIDIA/nvidia-docker/wiki
After=local-fs.target network.target
Wants=docker.service

[Service]
Environment="SOCK_DIR=/var/lib/nvidia-docker"
Environment="SPEC_FILE=/etc/docker/plugins/nvidia-docker.spec"
User=nvidia-docker
PermissionsStartOnly=true
Restart=on-failure
RestartSec=1
TimeoutStartSec=0
TimeoutStopSec=20
ExecStart=/usr/bin/nvidia-docker-plugin -s $SOCK_DIR
ExecStartPost=/bin/sh -c '/bin/mkdir -p $( dirname $SPEC_FILE )'
ExecStartPost=/bin/sh -c '/bin/echo unix://$SOCK_DIR/nvidia-docker.sock > $SPEC_FILE'
ExecStopPost=/bin/rm -f $SPEC_FILE

[Install]
WantedBy=multi-user.target
"""
POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    if [ -z "$2" ]; then
        useradd -r -M -d /var/lib/nvidia-docker -s /usr/sbin/nologin -c "NVIDIA Docker plugin" nvidia-docker
    fi
    chown nvidia-docker: /var/lib/nvidia-docker
    setcap cap_fowner+pe /usr/bin/nvidia-docker-plugin || true
    systemctl daemon-reload
    systemctl enable --now nvidia-docker.service
fi
"""
PRERM = """\
#!/bin/sh
if [ "$1" = remove ]; then
    docker volume ls | awk -v p=nvidia-docker '{if ($1 == p) print $2}' | xargs -r docker volume rm || true
    find /var/lib/nvidia-docker ! -path /var/lib/nvidia-docker -type d -empty -delete || true
fi
systemctl disable --now nvidia-docker.service || true
"""
POSTRM = '#!/bin/sh\nset -e\nif [ "$1" = purge ]; then\n    userdel nvidia-docker || true\nfi\n'


def packages(plugin):
    """Return name, version, fields, files with their modes, configuration files, and scripts of each package."""
    path, name = "/usr/bin/nvidia-container-runtime", "nvidia-container-runtime"
    old = {"/usr/bin/nvidia-docker": (PROGRAM, 0o755)}
    toolkit_old = {"Breaks": "nvidia-container-runtime (<< 2.0.0), nvidia-container-runtime-hook"}
    broken = "nvidia-container-runtime (<= 3.5.0-1), nvidia-container-runtime-hook"
    base = {"Breaks": f"{broken}, nvidia-container-toolkit (<= 1.10.0-1)"}
    config = {"/etc/nvidia-container-runtime/config.toml": (CONFIG, 0o644)}
    scripts = {"postinst": POSTINST, "prerm": PRERM, "postrm": POSTRM}
    return [
        (
            "docker-ee-stand-in",
            "1",
            {"Provides": "docker-ee", "Depends": "docker.io"},
            {},
            {},
            {},
        ),
        (
            *("nvidia-docker", "1.0.1-1"),
            {"Depends": "docker-engine (>= 1.9.0) | docker-ce | docker-ee, libcap2-bin, adduser"},
            {
                **old,
                "/usr/bin/nvidia-docker-plugin": (plugin, 0o755),
                "/lib/systemd/system/nvidia-docker.service": (UNIT, 0o644),
                "/var/lib/nvidia-docker/": ("", 0o755),
            },
            {
                "/etc/default/nvidia-docker": ('NVIDIA_DOCKER_PLUGIN_OPTS="-s /var/lib/nvidia-docker"\n', 0o644),
                "/etc/init/nvidia-docker.conf": ("# Upstart\n", 0o644),
            },
            scripts,
        ),
        (
            *("nvidia-docker2", "2.0.3+docker18.03.1-1"),
            {
                "Depends": "nvidia-container-runtime (= 2.0.0+docker18.03.1-1), "
                "docker-ce (= 18.03.1~ce-0~debian) | docker-ee",
                "Breaks": "nvidia-docker (<< 2.0.0)",
                "Replaces": "nvidia-docker (<< 2.0.0)",
            },
            old,
            {"/etc/docker/daemon.json": (DAEMON_JSON % path, 0o644)},
            {},
        ),
        (
            *("nvidia-docker2", "2.6.0-1"),
            {
                "Depends": "nvidia-container-runtime (>= 3.4.0), "
                "docker-ce (>= 18.06.0~ce~3-0~debian) | docker-ee | docker.io (>= 18.06.0)",
                "Breaks": "nvidia-docker (<< 2.0.0)",
                "Replaces": "nvidia-docker (<< 2.0.0)",
            },
            old,
            {"/etc/docker/daemon.json": (DAEMON_JSON % name, 0o644)},
            {},
        ),
        ("nvidia-docker2", "2.14.0-1", {"Depends": "nvidia-container-toolkit (>= 1.13.0-1)"}, {}, {}, {}),
        (
            *("nvidia-container-runtime", "2.0.0+docker18.03.1-1"),
            {"Depends": "nvidia-container-runtime-hook (<< 2.0.0)"},
            {path: (RUNTIME, 0o755)},
            {},
            {},
        ),
        (
            *("nvidia-container-runtime-hook", "1.4.0-1"),
            {"Depends": "libnvidia-container-tools (<< 2.0.0)"},
            {"/usr/bin/nvidia-container-runtime-hook": (PROGRAM, 0o755)},
            config,
            {},
        ),
        (
            *("nvidia-container-runtime", "3.5.0-1"),
            {"Depends": "nvidia-container-toolkit (>= 1.5.0), nvidia-container-toolkit (<< 2.0.0)"},
            {path: (RUNTIME, 0o755)},
            {},
            {},
        ),
        ("nvidia-container-runtime", "3.13.0-1", {"Depends": "nvidia-container-toolkit (>= 1.13.0-1)"}, {}, {}, {}),
        (
            *("nvidia-container-toolkit", "1.5.1-1"),
            {**toolkit_old, "Replaces": toolkit_old["Breaks"], "Depends": "libnvidia-container-tools (>= 1.4.0)"},
            {"/usr/bin/nvidia-container-toolkit": (PROGRAM, 0o755)},
            config,
            {},
        ),
        (
            *("nvidia-container-toolkit", "1.13.5-1"),
            {
                "Depends": "nvidia-container-toolkit-base (= 1.13.5-1), libnvidia-container-tools (>= 1.13.5-1)",
                "Breaks": broken,
                "Replaces": broken,
            },
            {"/usr/bin/nvidia-container-runtime-hook": (PROGRAM, 0o755)},
            {},
            {},
        ),
        (
            *("nvidia-container-toolkit-base", "1.13.5-1"),
            {**base, "Replaces": base["Breaks"]},
            {path: (RUNTIME, 0o755), "/usr/bin/nvidia-ctk": (PROGRAM, 0o755)},
            config,
            {},
        ),
        *(
            ("libnvidia-container-tools", version, {"Depends": f"libnvidia-container1 (>= {version})"}, {}, {}, {})
            for version in ("1.4.0-1", "1.13.5-1")
        ),
        *(("libnvidia-container1", version, {}, {}, {}, {}) for version in ("1.4.0-1", "1.13.5-1")),
    ]


def build(out, package):
    """Build one package."""
    name, version, fields, files, conffiles, scripts = package
    place = out / f"{name}_{version}"
    shutil.rmtree(place, ignore_errors=True)
    (place / "DEBIAN").mkdir(parents=True)
    about = {"Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "NVIDIA <x@example.com>"}
    control = {**about, "Section": "utils", "Priority": "optional", **fields, "Description": "stand-in"}
    (place / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in control.items()))
    if conffiles:
        (place / "DEBIAN/conffiles").write_text("".join(f"{path}\n" for path in conffiles))
    for path, (text, mode) in {**files, **conffiles}.items():
        target = place / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            target.mkdir(exist_ok=True)
        else:
            target.write_text(text)
        target.chmod(mode)
    for script, text in scripts.items():
        (place / "DEBIAN" / script).write_text(text)
        (place / "DEBIAN" / script).chmod(0o755)
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", place, f"{place}.deb"], check=True)


def main():
    """Build all packages."""
    out, plugin = pathlib.Path(sys.argv[1]), "#!/usr/bin/python3\n" + pathlib.Path(sys.argv[2]).read_text()
    for package in packages(plugin):
        build(out, package)


if __name__ == "__main__":
    main()
