# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of Docker's daemon: their names, types, flags and merge rules, and which of them a reload applies."""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import managed_keys, option_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import masked_tree

# The type of each option's value. `any`: dockerd accepts several types.
_OPTIONS = {
    "bool": """allow-direct-routing cri-containerd debug experimental icc init ip-forward ip-forward-no-drop
        ip-masq ip6tables iptables ipv6 live-restore no-new-privileges raw-logs rootless selinux-enabled tls tlsverify
        userland-proxy""",
    "int": """cpu-rt-period cpu-rt-runtime default-stop-timeout max-concurrent-downloads max-concurrent-uploads
        max-download-attempts mtu network-control-plane-mtu network-diagnostic-port oom-score-adjust shutdown-timeout
        swarm-raft-election-tick swarm-raft-heartbeat-tick""",
    "str": """api-cors-header bip bip6 bridge bridge-accept-fwmark cgroup-parent cluster-advertise cluster-store
        containerd containerd-namespace containerd-plugin-namespace containerd-plugins-namespace data-root
        default-cgroupns-mode default-gateway default-gateway-v6 default-ipc-mode
        default-runtime deprecated-key-path exec-root firewall-backend fixed-cidr
        fixed-cidr-v6 graph group host-gateway-ip init-path ip log-driver log-format log-level metrics-addr
        min-api-version pidfile resolv-conf seccomp-profile storage-driver swarm-default-advertise-addr tlscacert
        tlscert tlskey userland-proxy-path userns-remap""",
    "list": """allow-nondistributable-artifacts authorization-plugins cdi-spec-dirs default-address-pools dns dns-opts
        dns-search exec-opts host-gateway-ips hosts insecure-registries labels node-generic-resources registry-mirrors
        storage-opts""",
    "map": """builder cluster-store-opts default-network-opts default-ulimits features log-opts nri-opts proxies
        runtimes tls-options""",
    "any": "default-shm-size",
}
KNOWN_OPTIONS = {name: kind for kind, names in _OPTIONS.items() for name in names.split()}

# Type of the values in an object and of the items in a list. Items of all other lists are strings.
_ITEM_TYPES = {
    "cluster-store-opts": "str",
    "default-address-pools": "map",
    "default-ulimits": "map",
    "features": "bool",
    "log-opts": "str",
    "proxies": "str",
    "runtimes": "map",
}
_TYPES: dict[str, tuple[type, str]] = {
    "bool": (bool, "true or false"),
    "int": (int, "an integer"),
    "str": (str, "a string"),
    "list": (list, "a list"),
    "map": (dict, "an object"),
}
# dockerd accepts any string here, but fails to start when it creates its bridge, for example after a boot.
_NETWORKS = ("bip", "bip6", "fixed-cidr", "fixed-cidr-v6")
# Lists of `key=value` items, in which a key may have one value only.
_KEYED_LISTS = ("exec-opts", "labels", "storage-opts")
# dockerd does not check the names of these objects, see option_fields.py.
_TAKEN_APART = ("proxies",)
PROXIES = ("http-proxy", "https-proxy", "no-proxy")

# The first versions of dockerd with an option: moby/moby, daemon/config/config.go at the tags from 20.10.0 to 29.7.0.
_SINCE = {
    "proxies": (23, 0),
    "default-network-opts": (24, 0),
    "cdi-spec-dirs": (25, 0),
    "log-format": (25, 0),
    "bip6": (28, 0),
    "host-gateway-ips": (28, 0),
    "ip-forward-no-drop": (28, 0),
    "allow-direct-routing": (28, 2),
    "bridge-accept-fwmark": (29, 0),
    "firewall-backend": (29, 0),
    "min-api-version": (29, 0),
    "nri-opts": (29, 2),
    "default-stop-timeout": (29, 7),
}
# The first versions of dockerd that reject an option, and what replaces it: moby/moby, daemon/config/config.go and
# cmd/dockerd/daemon.go at v23.0.0, daemon/config/config_linux.go at v26.0.0, daemon/config/config.go at docker-v29.0.0.
_UNTIL = {
    "cluster-advertise": ((23, 0), ""),
    "cluster-store": ((23, 0), ""),
    "graph": ((23, 0), "data-root"),
    "oom-score-adjust": ((26, 0), ""),
    "api-cors-header": ((29, 0), ""),
}
# The same for storage drivers: moby/moby, daemon/graphdriver/register at v24.0.0 and v25.0.0.
_DRIVERS_UNTIL = {"aufs": (24, 0), "overlay": (24, 0), "devicemapper": (25, 0)}
# The version up to which all options are known.
NEWEST_KNOWN = (29, 7)
# Older versions of dockerd accept this feature and ignore it.
_CDI_SINCE = (25, 0)

# SIGHUP makes dockerd reload these options, in each version that has them: moby/moby, daemon/reload.go and
# daemon/reload_unix.go of the branches 20.10 to 29.x. 28.0 and later ignore allow-nondistributable-artifacts.
# All others need a restart, also `features`: dockerd reloads the list, but creates the CDI cache that `features.cdi`
# enables only when it starts.
RELOADABLE = frozenset(
    (
        "allow-nondistributable-artifacts",
        "authorization-plugins",
        "debug",
        "default-cgroupns-mode",
        "default-ipc-mode",
        "default-runtime",
        "default-shm-size",
        "default-stop-timeout",
        "insecure-registries",
        "labels",
        "live-restore",
        "max-concurrent-downloads",
        "max-concurrent-uploads",
        "max-download-attempts",
        "network-diagnostic-port",
        "nri-opts",
        "registry-mirrors",
        "runtimes",
        "shutdown-timeout",
    )
)
# A reload resets these to their defaults when they are removed from the file. For all others dockerd keeps the old
# value (observed with 26.1; 20.10 kept only the runtimes).
_RESET_ON_RELOAD = frozenset(
    (
        "max-concurrent-downloads",
        "max-concurrent-uploads",
        "max-download-attempts",
        "network-diagnostic-port",
        "nri-opts",
    )
)

# Flags whose name differs from the key in daemon.json.
FLAG_KEYS = {
    "H": "hosts",
    "host": "hosts",
    "D": "debug",
    "G": "group",
    "b": "bridge",
    "g": "graph",
    "l": "log-level",
    "p": "pidfile",
    "s": "storage-driver",
    "add-runtime": "runtimes",
    "authorization-plugin": "authorization-plugins",
    "cdi-spec-dir": "cdi-spec-dirs",
    "cluster-store-opt": "cluster-store-opts",
    "default-address-pool": "default-address-pools",
    "default-network-opt": "default-network-opts",
    "default-ulimit": "default-ulimits",
    "dns-opt": "dns-opts",
    "exec-opt": "exec-opts",
    "feature": "features",
    "http-proxy": "proxies.http-proxy",
    "https-proxy": "proxies.https-proxy",
    "no-proxy": "proxies.no-proxy",
    "insecure-registry": "insecure-registries",
    "label": "labels",
    "log-opt": "log-opts",
    "node-generic-resource": "node-generic-resources",
    "registry-mirror": "registry-mirrors",
    "storage-opt": "storage-opts",
}

# The minimum similarity of a misspelled name, before dockerd validates the name and after dockerd has rejected it.
_MISSPELLED, _SIMILAR = 0.85, 0.6
_REFERENCE = "https://docs.docker.com/reference/cli/dockerd/"
# A runtime with a dot in its name is a program for containerd, which needs no entry in `runtimes`.
_SHIM = re.compile(r"^[^./][^/]*\.[^/]*$")
_SIZE = re.compile(r"^-?\d+(\.\d+)? ?([kKmMgGtTpP]?[iI]?[bB]?)$")


def merge_policy(lists: str = "union") -> managed_keys.Policy:
    """Return how options are merged. A runtime or ulimit is one value. The items of some lists have a key."""
    return managed_keys.Policy(
        whole=(("runtimes", "*"), ("default-ulimits", "*")),
        keyed_lists=tuple((name,) for name in _KEYED_LISTS),
        lists=lists,
        normalize=_normalize,
        show=lambda path, value: managed_keys.shown(masked_tree(value, path[-1])),
    )


def _normalize(path: managed_keys.Path, value: t.Any) -> t.Any:
    # nvidia-ctk writes an empty `args`, which dockerd ignores. An empty `runtimeArgs` means the same as none.
    value = option_fields.canonical(path, value)
    if len(path) == 2 and path[0] == "runtimes" and isinstance(value, dict):
        return {key: item for key, item in value.items() if not (key in ("args", "runtimeArgs") and not item)}
    return value


def restart_required(
    changed: t.Iterable[str], after: dict[str, t.Any], flag_runtimes: t.Collection[str] = ()
) -> list[str]:
    """Return the changed keys for which a reload is not enough.

    `flag_runtimes`: the runtimes that flags register. After a reload, dockerd knows only the runtimes in the file.
    """
    reloadable = RELOADABLE if not (flag_runtimes and "runtimes" in after) else frozenset()
    found = []
    for name in changed:
        key = name.partition(".")[0]
        if key not in reloadable or (key not in after and key not in _RESET_ON_RELOAD):
            found.append(name)
    return sorted(found)


def version_problems(options: dict[str, t.Any], version: tuple[int, ...]) -> list[str]:
    """Report requested options that dockerd in this version does not have, or accepts and ignores."""
    features = options.get("features")
    found = [
        _too_old(key, "does not have this option", version, first)
        for key, first in _SINCE.items()
        if options.get(key) is not None and version < first
    ]
    if isinstance(features, dict) and features.get("cdi") and version < _CDI_SINCE:
        found.append(_too_old("features.cdi", "does not support CDI and ignores this option", version, _CDI_SINCE))
    for key, (end, instead) in _UNTIL.items():
        if options.get(key) is not None and version >= end:
            found.append(_removed(key, "this option", version, end, instead))
    driver = str(options.get("storage-driver"))
    if driver in _DRIVERS_UNTIL and version >= _DRIVERS_UNTIL[driver]:
        found.append(_removed("storage-driver", driver, version, _DRIVERS_UNTIL[driver], "overlay2"))
    return found


def _removed(name: str, what: str, version: tuple[int, ...], end: tuple[int, ...], instead: str) -> str:
    shown, removal = (".".join(map(str, numbers)) for numbers in (version, end))
    remedy = f"Use {instead} instead." if instead else "Remove it."
    return f"{name}: Docker {shown} no longer has {what}, which was removed in Docker {removal}. {remedy}"


def _too_old(name: str, lack: str, version: tuple[int, ...], first: tuple[int, ...]) -> str:
    shown, since = (".".join(map(str, numbers)) for numbers in (version, first))
    return f"{name}: Docker {shown} {lack}. Remove it, or install Docker {since} or later."


def unknown_options(options: dict[str, t.Any]) -> list[str]:
    """Report options that no known dockerd has. An installed dockerd may be newer, so it validates options itself."""
    return [unknown_option(f"{key}: dockerd", key) for key in options if key not in KNOWN_OPTIONS]


def unknown_option(subject: str, key: str) -> str:
    """Report an option that `subject` does not have, and the most similar one."""
    similar = _similar_option(key, _SIMILAR)
    return f"{subject} has no such option. " + (f"Did you mean {similar}?" if similar else f"See {_REFERENCE}")


def _similar_option(key: str, cutoff: float) -> str | None:
    """Return the option that a flag of this name sets, or the option with the most similar name."""
    name = key.replace("_", "-").lower()
    if len(name) > 1 and name in FLAG_KEYS:
        return FLAG_KEYS[name]
    return next(iter(difflib.get_close_matches(name, KNOWN_OPTIONS, 1, cutoff)), None)


def value_problems(options: dict[str, t.Any]) -> list[str]:
    """Report wrong types, misspelled names, and values that dockerd accepts but cannot start with."""
    return [problem for key, value in options.items() for problem in _option_problems(key, value)]


def config_problems(config: dict[str, t.Any], flag_runtimes: t.Collection[str] = ()) -> list[str]:
    """Report the problems of a whole file. `flag_runtimes`: the runtimes that flags register."""
    found = value_problems(config)
    runtimes = option_fields.runtimes(config)
    default = config.get("default-runtime")
    # Newer versions of dockerd check the runtimes only when they start.
    if "runc" in runtimes:
        found.append("runtimes.runc: the name runc is reserved for dockerd's own runtime. Choose another name.")
    if (
        isinstance(default, str)
        and default not in ("", "runc")
        and not _SHIM.match(default)
        and default not in runtimes
        and default not in flag_runtimes
    ):
        found.append(f"default-runtime: {default!r} is not one of the runtimes. Add it to runtimes, or use runc.")
    return found


def _option_problems(key: str, value: t.Any) -> list[str]:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return [f"{key}: JSON does not allow infinite numbers or NaN. Use a finite number."]
    if isinstance(value, dict) and key.lower() in _TAKEN_APART:
        key = key.lower()
    kind = KNOWN_OPTIONS.get(key)
    if kind is None:
        similar = _similar_option(key, _MISSPELLED)
        return [f"{key}: dockerd has no such option. Did you mean {similar}?"] if similar else []
    if kind == "any" or value is None:
        return []
    wrong_type = _type_problem(key, value, kind)
    if wrong_type:
        return wrong_type
    if isinstance(value, dict):
        return _object_problems(key, value)
    if isinstance(value, list):
        return _list_problems(key, value)
    if key in _NETWORKS and value:
        try:
            ipaddress.ip_interface(value)
        except ValueError:
            return [f"{key}: {value!r} is not an address with a prefix length. Use a value such as 172.26.0.1/16."]
    return []


def _type_problem(name: str, value: t.Any, kind: str) -> list[str]:
    type_, text = _TYPES[kind]
    if isinstance(value, type_) and (kind == "bool" or not isinstance(value, bool)):
        return []
    hint = f" Write {json.dumps(json.dumps(value))}." if kind == "str" and isinstance(value, (int, float)) else ""
    return [f"{name}: dockerd requires {text}, not {managed_keys.shown(value)}.{hint}"]


def _object_problems(key: str, value: dict[str, t.Any]) -> list[str]:
    found = []
    for name, item in value.items():
        if key == "proxies" and name not in PROXIES:
            found.append(f"proxies.{name}: dockerd has no such option. Use {', '.join(PROXIES[:-1])} or {PROXIES[-1]}.")
            continue
        if item is None:
            continue
        wrong_type = _type_problem(f"{key}.{name}", item, _ITEM_TYPES[key]) if key in _ITEM_TYPES else []
        found += wrong_type
        if wrong_type:
            continue
        if key == "runtimes":
            found += _runtime_problems(f"runtimes.{name}", item)
        elif key == "log-opts" and name == "max-size" and not _SIZE.match(item):
            found.append(f"log-opts.max-size: {item!r} is not a size. Use a value such as 10m.")
        elif key == "log-opts" and name == "max-file" and not (item.isdigit() and int(item) > 0):
            found.append(f'log-opts.max-file: {item!r} is not a number of files. Use a value such as "3".')
    return found


def _runtime_problems(name: str, runtime: dict[str, t.Any]) -> list[str]:
    found = []
    if not option_fields.get(runtime, "path") and not option_fields.get(runtime, "runtimeType"):
        found.append(f"{name}: the runtime has neither path nor runtimeType. Set one of them.")
    if runtime.get("args"):
        found.append(f"{name}.args: dockerd ignores this key. Use runtimeArgs.")
    return found


def _list_problems(key: str, value: list[t.Any]) -> list[str]:
    kind = _ITEM_TYPES.get(key, "str")
    found = [problem for item in value for problem in _type_problem(key, item, kind)]
    if key == "default-address-pools" and not found:
        sizes: dict[t.Any, t.Any] = {}
        for pool in value:
            base, size = option_fields.get(pool, "base"), option_fields.get(pool, "size")
            if sizes.setdefault(base, size) != size:
                found.append(f"{key}: {base!r} has two sizes, {sizes[base]} and {size}. Keep one of them.")
    texts = [item for item in value if isinstance(item, str)]
    if key in _KEYED_LISTS:
        last = {item.partition("=")[0]: item for item in texts}
        for item in texts:
            other = last[item.partition("=")[0]]
            if other != item:
                found.append(f"{key}: {item!r} and {other!r} contradict each other. Keep one of them.")
    return found + [problem for item in texts for problem in _registry_problems(key, item)]


def _registry_problems(key: str, address: str) -> list[str]:
    """Report addresses that dockerd accepts in the file, but does not start with."""
    login = (
        f"{key}: dockerd accepts no user or password in {address!r}. Remove them, and use docker login on the host "
        "instead."
    )
    if key == "registry-mirrors":
        scheme, _sign, rest = address.partition("://")
        if scheme not in ("http", "https") or not rest:
            return [f"{key}: {address!r} must begin with https:// or http://."]
        if "@" in rest.partition("/")[0]:
            return [login]
        if "?" in rest or "#" in rest:
            return [f"{key}: {address!r} must not contain ? or #."]
    if key == "insecure-registries":
        name = re.sub("^https?://", "", address)
        if "@" in name:
            return [login]
        if "://" in name or name.startswith("-") or re.search(r"\s", name) or not name:
            return [f"{key}: {address!r} is not a registry. Write a host with an optional port, or a network."]
    return []
