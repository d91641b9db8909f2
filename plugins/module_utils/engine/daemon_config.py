# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What dockerd's configuration file means: its options, the flags that say the same, what a reload takes up.

The outside world comes in as arguments: a root directory, and a callable that runs a command.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import codecs
import difflib
import glob
import ipaddress
import json
import math
import os
import re
import shlex
import typing as t
from urllib.parse import quote

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import merge
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.merge import ABSENT, Entry, Leaf, Policy, Record

DEFAULT_PATH = "/etc/docker/daemon.json"
DEFAULT_STATE_DIRECTORY = "/var/lib/gpufleet"
DEFAULT_UNIT = "docker.service"


class DaemonConfigError(Exception):
    """The file, or what is wanted of it, cannot be used. The text names the place and the way out."""


# Option → type of its value, as dockerd reads it. `any` where dockerd itself takes more than one.
_OPTIONS = {
    "bool": """allow-direct-routing cri-containerd debug experimental icc init ip-forward ip-forward-no-drop
        ip-masq ip6tables iptables ipv6 live-restore no-new-privileges raw-logs rootless selinux-enabled tls tlsverify
        userland-proxy""",
    "int": """cpu-rt-period cpu-rt-runtime max-concurrent-downloads max-concurrent-uploads max-download-attempts mtu
        network-control-plane-mtu network-diagnostic-port oom-score-adjust shutdown-timeout
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
    "map": """builder cluster-store-opts default-network-opts default-ulimits features log-opts proxies runtimes
        tls-options""",
    "any": "default-shm-size",
}
KNOWN_OPTIONS = {name: kind for kind, names in _OPTIONS.items() for name in names.split()}

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "str": ((str,), "text"),
    "list": ((list,), "a list"),
    "map": ((dict,), "an object"),
}

# dockerd accepts anything here, and does not start when it has to make its bridge of it, as after the next boot.
_NETWORKS = ("bip", "bip6", "fixed-cidr", "fixed-cidr-v6")

# Lists of `key=value`, in which a key counts once.
_KEYED_LISTS = ("exec-opts", "labels", "storage-opts")

# SIGHUP makes dockerd read these again. All others wait for a restart, `features` among them: the list of features is
# read again, but the CDI cache that `features.cdi` asks for is made when the daemon starts.
RELOADABLE = frozenset(
    (
        "authorization-plugins",
        "debug",
        "default-runtime",
        "insecure-registries",
        "labels",
        "live-restore",
        "max-concurrent-downloads",
        "max-concurrent-uploads",
        "max-download-attempts",
        "registry-mirrors",
        "runtimes",
    )
)
# These fall back to their defaults on a reload when they are no longer in the file. Of all others dockerd keeps the old
# value then (seen of 26.1; 20.10 kept the runtimes alone).
_RESET_ON_RELOAD = frozenset(("max-concurrent-downloads", "max-concurrent-uploads", "max-download-attempts"))

# Flags that are not called like the key.
_FLAG_KEYS = {
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
# Given both ways these add up; dockerd does not complain.
_MAY_BE_GIVEN_TWICE = frozenset({"runtimes"})

_PROXIES = ("http-proxy", "https-proxy", "no-proxy")
# How alike a name must be to one of dockerd's, to be taken for a slip although no dockerd was asked; and once one was.
_SURELY_MEANT, _PERHAPS_MEANT = 0.85, 0.6
_REFERENCE = "https://docs.docker.com/reference/cli/dockerd/"
_UNKNOWN = re.compile(r"the following directives don't match any configuration option: ([\w., -]+)")

_SYSTEMD_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
# Where user info may begin: behind a scheme, or at once in the address of a proxy, which needs none. A password may
# hold a slash, against the rules, so what follows the first colon is one unless it is the number of a port.
_PORT = r"\d*(?:/|$)"
_USER_INFO = re.compile(
    r"(?i)(:\\*/\\*/|proxy\\*[\"']?[:=\s]\s*\\*[\"']?)"
    rf"((?=[^\s/\"]*(?:@|%40)|[^\s/\"@\[]*:(?!{_PORT}))[^\s\"]+)(@|%40)"
)
# The same in percent-encoding, as in the query of another address.
_ENCODED_USER_INFO = re.compile(r"(?i)(%3a%2f%2f)([^\s&\"]+)(%40|@)")
# A login by itself: registries have no scheme. An image's digest follows an @, too.
_LOGIN = re.compile(
    r"(?i)(?<![^\s\"'=,(\[])(?<!/\[)(?P<user>[^\s/\"'@:=,%\[\\]+)(?P<colon>:|%3a)"
    rf"(?!\\*/\\*/|%2f%2f|{_PORT})[^\s\"]+(?P<end>@|%40)(?!sha\d+:)"
)
# In quotes, where a password may have white space and quotes of its own.
_QUOTED = re.compile(r'"((?:\\.|[^"\\])*)"')
_QUOTED_LOGIN = re.compile(
    rf"(?s)(?P<start>(?:[\w+.-]+:\\*/\\*/)?[^\s@:/\"\[\\]*:)(?!\s|\\*/\\*/|{_PORT})(?:(?!:\\*/\\*/).)*(?P<end>@(?!sha\d+:)[^@]*)"
)
_REGISTRIES = ("insecure-registries", "registry-mirrors")
_LIST_OF_REGISTRIES = re.compile(rf'("(?:{"|".join(_REGISTRIES)})"\s*:\s*\[)((?:[^\]"]|"(?:\\.|[^"\\])*")*)')
# Log drivers are given such, for example splunk-token.
_SECRET_KEY = re.compile(r"(?i)(?:token|password|secret)$")
_SECRET_PAIR = re.compile(r"(?i)((?:token|password|secret)=)[^\s\"'\\]+")
_SECRET_MEMBER = re.compile(r"(?i)((?:token|password|secret)(\\*\")\s*:\s*\2)(?:(?!\2)(?:\\.|.))+")
_MASK = "********"
# dockerd takes one such mark from the beginning, and white space as Go knows it: without Python's separators 1c to 1f.
_BOM = "\ufeff"
_NOTHING = re.compile(r"[^\S\x1c-\x1f]*")
# Before 23.0, dockerd stops at an empty file with "EOF", and at a mark with "invalid character".
_READS_NOTHING_AND_BOM = (23, 0)
# No option of dockerd's comes near this, and every function here takes a tree of such a depth.
_DEEPEST = 100
_SIZE = re.compile(r"^-?\d+(\.\d+)? ?([kKmMgGtTpP]?[iI]?[bB]?)$")


def policy(lists: str = "union") -> Policy:
    """How keys of daemon.json are merged: a runtime or a ulimit is one value, labels and the like go by their key."""
    return Policy(
        whole=(("runtimes", "*"), ("default-ulimits", "*")),
        keyed_lists=tuple((name,) for name in _KEYED_LISTS),
        lists=lists,
        normalise=_normalise,
        show=_show,
    )


def _show(path: merge.Path, value: t.Any) -> str:
    return merge.shown(masked_tree(value, path[-1]))


def _normalise(path: merge.Path, value: t.Any) -> t.Any:
    # nvidia-ctk writes an empty `args`, which dockerd does not know; `runtimeArgs` left out means an empty list.
    if len(path) == 2 and path[0] == "runtimes" and isinstance(value, dict):
        return {key: item for key, item in value.items() if not (key in ("args", "runtimeArgs") and not item)}
    return value


# ---------------------------------------------------------------------------------------------------------------------
# The file


def decoded(content: bytes, path: str) -> str:
    """The text of the file's bytes, with its line ends and its byte-order mark."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DaemonConfigError(f"{path}: this is UTF-16. Save it as UTF-8; it has not been changed.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DaemonConfigError(
            f"{path}, byte {error.start}: this is not UTF-8, so it is not JSON. "
            "Correct it by hand; it has not been changed."
        ) from error


def plain(text: str) -> str:
    """The text in a form that every dockerd reads: an object instead of nothing, and no byte-order mark."""
    text = text[1:] if text.startswith(_BOM) else text
    return "{}\n" if _NOTHING.fullmatch(text) else text


def too_old(text: str, version: tuple[int, ...]) -> bool:
    """Whether a dockerd of that version does not start with a file that newer ones read. () is an unknown version."""
    return bool(version) and version < _READS_NOTHING_AND_BOM and plain(text) != text


def parse(text: str, path: str) -> dict[str, t.Any]:
    """The object in the file. Whatever dockerd would stumble over is an error that says where it stands.

    As for dockerd, an empty file, one of white space alone, and `null` mean no options.
    """
    text = plain(text)

    def unique(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
        found: dict[str, t.Any] = {}
        for key, value in pairs:
            if key in found:
                raise DaemonConfigError(
                    f'{path}: the key "{key}" stands there twice in one object, and one of the two is lost. '
                    "Keep one of them; the file has not been changed."
                )
            found[key] = value
        return found

    def refuse_constant(name: str) -> t.Any:
        raise DaemonConfigError(f"{path}: {name} is not JSON. Correct it by hand; the file has not been changed.")

    try:
        tree = json.loads(text, object_pairs_hook=unique, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if error.lineno <= len(text.splitlines()) else ""
        raise DaemonConfigError(
            f"{path}, line {error.lineno} column {error.colno}: {error.msg}, in {masked_file(line.strip())!r}. "
            "This is not JSON, so dockerd cannot read it either. Correct it by hand; it has not been changed."
        ) from error
    except RecursionError as error:
        raise DaemonConfigError(_too_deep(path)) from error
    except ValueError as error:
        raise DaemonConfigError(f"{path}: {error}. Correct it by hand; the file has not been changed.") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise DaemonConfigError(
            f"{path}, line 1 column 1: dockerd needs a JSON object, and the file holds {merge.shown(tree)[:60]}. "
            "Correct it by hand; it has not been changed."
        )
    if _depth(tree) > _DEEPEST:
        raise DaemonConfigError(_too_deep(path))
    for name, _value in _endless(tree):
        raise DaemonConfigError(
            f"{path}: the number of {name} is larger than dockerd can read. Correct it by hand; the file has not been "
            "changed."
        )
    return tree


def _too_deep(path: str) -> str:
    return (
        f"{path}: objects and lists lie in one another more than {_DEEPEST} levels deep, as no option of dockerd asks "
        "for. Correct it by hand; the file has not been changed."
    )


def _depth(tree: t.Any) -> int:
    """How many objects and lists lie in one another, counted without recursion."""
    depth, level = 0, [tree]
    while level := [node for node in level if isinstance(node, (dict, list))]:
        depth += 1
        level = [item for node in level for item in (node.values() if isinstance(node, dict) else node)]
    return depth


def _endless(value: t.Any, name: str = "") -> t.Iterator[tuple[str, float]]:
    """Infinities and what is no number, by their dotted names: Python has them, JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _endless(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _endless(item, name)


def _endless_problems(tree: dict[str, t.Any]) -> list[str]:
    return [
        f"{name}: JSON has no number {value}. Write a finite one, or text in quotes." for name, value in _endless(tree)
    ]


def dump(tree: dict[str, t.Any], like: str | None) -> str:
    """The text of the file, indented as it was, keys in the order in which they stood."""
    problems = _endless_problems(tree)
    if problems:
        raise DaemonConfigError(" ".join(problems))
    indent = re.search(r"^([ \t]+)\S", like or "", re.MULTILINE)
    return json.dumps(tree, indent=indent.group(1) if indent else 2, ensure_ascii=False, allow_nan=False) + "\n"


def masked(text: str) -> str:
    """The text without the passwords and tokens that addresses and `key=value` pairs may carry.

    User info ends at the last @ of a word, since a password may hold one. A user's name stays. JSON within JSON stays
    JSON, and a text that is masked already stays as it is.
    """

    def mask(match: re.Match[str]) -> str:
        user, colon, _password = match.group(2).partition(":")
        return f"{match.group(1)}{user if colon else ''}{colon}{_MASK}{match.group(3)}"

    text = _QUOTED.sub(lambda match: f'"{_masked_whole(match.group(1))}"', text)
    text = _LOGIN.sub(rf"\g<user>\g<colon>{_MASK}\g<end>", _USER_INFO.sub(mask, text))
    return _SECRET_PAIR.sub(rf"\1{_MASK}", _ENCODED_USER_INFO.sub(rf"\1{_MASK}\3", text))


def _masked_whole(address: str) -> str:
    """A text without its login where it is nothing but an address."""
    login = _QUOTED_LOGIN.fullmatch(address)
    return f"{login['start']}{_MASK}{login['end']}" if login else address


def _masked_registry(address: str) -> str:
    """A registry without its login, which may be a token alone."""
    login, at, place = address.rpartition("@")
    return f"{_MASK}@{place}" if at and ":" not in login else masked(_masked_whole(address))


def masked_file(text: str) -> str:
    """The text of a JSON file, masked; what a key calls a secret is masked as well."""

    def registries(match: re.Match[str]) -> str:
        items = _QUOTED.sub(lambda item: f'"{_masked_registry(item.group(1))}"', match.group(2))
        return match.group(1) + items

    text = _LIST_OF_REGISTRIES.sub(registries, text)
    return _SECRET_MEMBER.sub(rf"\1{_MASK}", masked(text))


def masked_tree(value: t.Any, key: str = "") -> t.Any:
    """A JSON value with all its texts masked; `key` is the one that it belongs to."""
    if isinstance(value, str):
        if value and _SECRET_KEY.search(key):
            return _MASK
        if key in _REGISTRIES:
            return _masked_registry(value)
        value = _masked_whole(value)
        return masked(f"{key}={value}")[len(key) + 1 :] if key.endswith("proxy") else masked(value)
    if isinstance(value, dict):
        return {masked(str(name)): masked_tree(item, str(name)) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_tree(item, key) for item in value]
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Values


def unknown_options(options: dict[str, t.Any]) -> list[str]:
    """Options that no dockerd is known to have. One that is there is asked instead: it may be newer than this list."""
    return [_unknown(f"{key}: dockerd", key) for key in options if key not in KNOWN_OPTIONS]


def _unknown(subject: str, key: str) -> str:
    near = _meant(key, _PERHAPS_MEANT)
    return f"{subject} has no such option. " + (f"Did you mean {near}?" if near else f"All that it has: {_REFERENCE}")


def _meant(key: str, likeness: float) -> str | None:
    """The option that was probably meant: one that a flag of this name sets, or one whose name is much alike."""
    name = key.replace("_", "-").lower()
    if len(name) > 1 and name in _FLAG_KEYS:
        return _FLAG_KEYS[name]
    return next(iter(difflib.get_close_matches(name, KNOWN_OPTIONS, 1, likeness)), None)


def value_problems(options: dict[str, t.Any]) -> list[str]:
    """What dockerd would refuse of each option by itself. Unknown options are left to dockerd."""
    parts = [problem for key, value in options.items() for problem in _option_problems(key, value)]
    return _endless_problems(options) or parts


def config_problems(config: dict[str, t.Any]) -> list[str]:
    """What dockerd would refuse of a whole file, as far as that can be said without a dockerd."""
    found = value_problems(config)
    runtimes = config.get("runtimes")
    default = config.get("default-runtime")
    if isinstance(runtimes, dict) and "runc" in runtimes:
        found.append("runtimes.runc: the name runc is taken by dockerd's own runtime. Choose another name.")
    if (
        isinstance(default, str)
        and default not in ("", "runc")
        and not default.startswith("io.containerd.")
        and default not in (runtimes if isinstance(runtimes, dict) else {})
    ):
        found.append(f"default-runtime: {default!r} is not among the runtimes. Add it to runtimes, or take runc.")
    return found


def _option_problems(key: str, value: t.Any) -> list[str]:
    kind = KNOWN_OPTIONS.get(key)
    if kind is None:
        near = _meant(key, _SURELY_MEANT)
        return [f"{key}: dockerd has no such option. Did you mean {near}?"] if near else []
    if value is None or kind == "any":
        return []
    types, wanted = _KINDS[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        return [f"{key}: dockerd wants {wanted} here, not {merge.shown(value)}."]
    return _part_problems(key, value)


def _part_problems(key: str, value: t.Any) -> list[str]:
    found = []
    if key == "runtimes":
        for name, runtime in value.items():
            found += _runtime_problems(f"runtimes.{name}", runtime)
    elif key == "features":
        found += [
            f"features.{name}: dockerd wants true or false here, not {merge.shown(item)}."
            for name, item in value.items()
            if item is not None and not isinstance(item, bool)
        ]
    elif key == "proxies":
        for name, item in value.items():
            if name not in _PROXIES:
                near = difflib.get_close_matches(name.replace("_", "-").lower(), _PROXIES, 1, _PERHAPS_MEANT)
                meant = f"Did you mean proxies.{near[0]}?" if near else f"It has {', '.join(_PROXIES)}."
                found.append(f"proxies.{name}: dockerd has no such option. {meant}")
            elif item is not None and not isinstance(item, str):
                found.append(f"proxies.{name}: dockerd wants text here, not {merge.shown(item)}.")
    elif key in ("log-opts", "cluster-store-opts"):
        for name, item in value.items():
            if item is None:
                continue
            if not isinstance(item, str):
                text = json.dumps(json.dumps(item))
                found.append(f"{key}.{name}: dockerd wants text here, not {merge.shown(item)}. Write {text}.")
            elif name == "max-size" and not _SIZE.match(item):
                found.append(f"{key}.{name}: {item!r} is not a size. Write for example 10m.")
            elif name == "max-file" and not (item.isdigit() and int(item) > 0):
                found.append(f"{key}.{name}: {item!r} is not a number of files. Write for example 3, as text.")
    elif key == "default-ulimits":
        found += [
            f'{key}.{name}: dockerd wants an object like {{"Name": "{name}", "Soft": 1024, "Hard": 2048}} here, '
            f"not {merge.shown(item)}."
            for name, item in value.items()
            if item is not None and not (isinstance(item, dict) and {"Name", "Hard", "Soft"} >= set(item))
        ]
    elif key == "default-address-pools":
        found += [
            f'{key}: dockerd wants objects like {{"base": "172.30.0.0/16", "size": 24}} here, not {merge.shown(item)}.'
            for item in value
            if not (isinstance(item, dict) and {"base", "size"} >= set(item))
        ]
    elif key in _NETWORKS and value:
        try:
            ipaddress.ip_interface(value)
        except ValueError:
            found.append(f"{key}: {value!r} is no address with a prefix length. Write for example 172.26.0.1/16.")
    elif isinstance(value, list):
        if key in _KEYED_LISTS:
            words = {item.partition("=")[0]: item for item in value if isinstance(item, str)}
            twice = [item for item in value if isinstance(item, str) and words[item.partition("=")[0]] != item]
            found += [
                f"{key}: {item!r} and {words[item.partition('=')[0]]!r} contradict each other. Keep one of them."
                for item in twice
            ]
        found += [f"{key}: dockerd wants text here, not {merge.shown(i)}." for i in value if not isinstance(i, str)]
        found += [problem for item in value if isinstance(item, str) for problem in _registry_problems(key, item)]
    return found


def _registry_problems(key: str, address: str) -> list[str]:
    """What keeps dockerd from starting although it has accepted the file, or has reloaded it and only logged this."""
    if key == "registry-mirrors":
        scheme, _sign, rest = address.partition("://")
        if scheme not in ("http", "https") or not rest:
            return [f"{key}: {address!r} has to begin with https:// or http://."]
        if "@" in rest.partition("/")[0]:
            return [_login_problem(key, address)]
        if "?" in rest or "#" in rest:
            return [f"{key}: {address!r} may have no ? and no #."]
    if key == "insecure-registries":
        name = re.sub("^https?://", "", address)
        if "@" in name:
            return [_login_problem(key, address)]
        if "://" in name or name.startswith("-") or re.search(r"\s", name) or not name:
            return [f"{key}: {address!r} is no registry. Write a host, with a port if need be, or a network."]
    return []


def _login_problem(key: str, address: str) -> str:
    return (
        f"{key}: dockerd takes no user or password in {address!r}. Leave them out; docker login on the host "
        "is for those."
    )


def _runtime_problems(name: str, runtime: t.Any) -> list[str]:
    if runtime is None:
        return []
    if not isinstance(runtime, dict):
        return [f'{name}: dockerd wants an object like {{"path": "…"}} here, not {merge.shown(runtime)}.']
    found = []
    if not runtime.get("path") and not runtime.get("runtimeType"):
        found.append(f"{name}: neither path nor runtimeType is given, so dockerd knows no program to start.")
    if runtime.get("args"):
        found.append(f"{name}.args: dockerd does not know this key and would ignore it. Write runtimeArgs.")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# What the unit says


class Flag(t.NamedTuple):
    """A flag of dockerd in the unit: how it is written, the key that means the same, its value, where it stands."""

    text: str
    key: str
    value: t.Any
    place: str


def unit_flags(root: str = "/", unit: str = DEFAULT_UNIT) -> list[Flag]:
    """The flags that the unit gives to dockerd, drop-ins and environment files included, read from the files."""
    return _flags(_exec_start(root, unit))


def config_file_flag(flags: list[Flag]) -> Flag | None:
    return next((flag for flag in flags if flag.key == "config-file"), None)


def _unit_files(root: str, unit: str) -> list[str]:
    fragment: list[str] = []
    dropins: dict[str, str] = {}
    for directory in _SYSTEMD_DIRECTORIES:
        path = os.path.join(root, directory, unit)
        if not fragment and os.path.exists(path):
            fragment = [path]
        for path in glob.glob(os.path.join(glob.escape(os.path.join(root, directory, f"{unit}.d")), "*.conf")):
            dropins.setdefault(os.path.basename(path), path)
    return fragment + [dropins[name] for name in sorted(dropins)]


def _exec_start(root: str, unit: str) -> list[tuple[str, str]]:
    """Words of ExecStart, each with the place where it stands."""
    environment: dict[str, tuple[str, str]] = {}
    files: list[str] = []
    command: tuple[str, str] | None = None
    for path in _unit_files(root, unit):
        shown = "/" + os.path.relpath(path, root)
        for name, value in _assignments(_read(path)):
            if name == "ExecStart":
                command = (value, shown) if value else None
            elif name == "Environment":
                for word in _split(value):
                    variable, _sign, content = word.partition("=")
                    environment[variable] = (content, f"{variable} in {shown}")
                if not value:
                    environment.clear()
            elif name == "EnvironmentFile":
                files = [*files, value.lstrip("-")] if value else []
    for file in files:
        for name, value in _assignments(_read(os.path.join(root, file.lstrip("/")))):
            environment[name] = (" ".join(_split(value)), f"{name} in {file}")
    if command is None:
        return []
    words: list[tuple[str, str]] = []
    for word in _split(command[0]):
        whole = re.fullmatch(r"\$(\w+)", word)
        if whole:
            value, place = environment.get(whole.group(1), ("", command[1]))
            words += [(part, place) for part in _split(value)]
            continue
        place = command[1]
        text = word
        for variable in re.findall(r"\$\{(\w+)\}", word):
            value, place = environment.get(variable, ("", command[1]))
            text = text.replace("${" + variable + "}", value)
        words.append((text, place))
    return words


def _assignments(text: str) -> list[tuple[str, str]]:
    found = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith(("#", ";")):
            found.append((name.strip(), value.strip()))
    return found


def _split(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _flags(words: list[tuple[str, str]]) -> list[Flag]:
    if not words or os.path.basename(words[0][0].lstrip("-@:+!")) not in ("dockerd", "docker", "dockerd-ce"):
        return []
    found: dict[str, Flag] = {}
    rest = words[1:]
    while rest:
        (word, place), rest = rest[0], rest[1:]
        if not word.startswith("-") or word in ("-", "--"):
            continue
        text = word
        name, sign, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and len(name) > 1 and not sign:
            name, value, sign = name[0], name[1:], "="
        key = _FLAG_KEYS.get(name, name)
        kind = KNOWN_OPTIONS.get(key.partition(".")[0], "str")
        if kind == "bool":
            content: t.Any = value.lower() not in ("false", "0", "f") if sign else True
        else:
            if not sign and rest:
                (value, _place), rest = rest[0], rest[1:]
                text = f"{word} {value}"
            content = int(value) if kind == "int" and value.lstrip("-").isdigit() else value
        if kind in ("list", "map") and "." not in key:
            earlier = found[key].value if key in found else []
            content = [*earlier, content]
            text = f"{found[key].text} {text}" if key in found else text
        found[key] = Flag(text, key, content, place)
    return list(found.values())


def without_satisfied(wanted: dict[str, t.Any], flags: list[Flag]) -> dict[str, t.Any]:
    """Leave out the options that a flag of the unit says already, with the same value."""
    said = {flag.key: flag.value for flag in flags}

    def is_said(key: str, value: t.Any) -> bool:
        if key not in said or key in _MAY_BE_GIVEN_TWICE or value is None:
            return False
        have = said[key]
        if isinstance(value, list):
            return isinstance(have, list) and all(item in have for item in value)
        if isinstance(value, dict) and isinstance(have, list):
            words = {str(item).partition("=")[0]: str(item).partition("=")[2] for item in have}
            return bool(value) and all(words.get(name) == _as_flag(item) for name, item in value.items())
        return merge.canonical(have) == merge.canonical(value)

    return {key: value for key, value in wanted.items() if not is_said(key, value)}


def _as_flag(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def conflicts(config: dict[str, t.Any], flags: list[Flag], path: str, unit: str = DEFAULT_UNIT) -> list[str]:
    """Options that the file and the unit would both give: dockerd does not start with them, whatever the values."""
    found = []
    for flag in flags:
        node: t.Any = config
        for key in flag.key.split("."):
            node = node.get(key, ABSENT) if isinstance(node, dict) else ABSENT
        if node is ABSENT or flag.key in _MAY_BE_GIVEN_TWICE:
            continue
        found.append(
            f'"{flag.key}" would be given twice, and dockerd does not start then: as {flag.text} in {flag.place} '
            f"({unit}), and as {merge.shown(node)} in {path}. Take the flag out of the unit "
            f'(systemctl edit {unit}) or "{flag.key}" out of the options and of the file.'
        )
    return found


def in_swarm(config: dict[str, t.Any], flags: list[Flag], root: str = "/") -> bool:
    """Whether the daemon with this configuration is a member of a swarm."""
    said = next((flag.value for flag in flags if flag.key == "data-root"), None)
    directory = str(said or config.get("data-root") or "/var/lib/docker")
    return os.path.exists(os.path.join(root, directory.lstrip("/"), "swarm", "docker-state.json"))


# ---------------------------------------------------------------------------------------------------------------------
# What a change asks of the daemon


def restart_required(changed: t.Iterable[str], after: dict[str, t.Any]) -> list[str]:
    """Those of the changed keys that a reload does not make effective."""
    found = []
    for name in changed:
        key = name.partition(".")[0]
        if key not in RELOADABLE or (key not in after and key not in _RESET_ON_RELOAD):
            found.append(name)
    return sorted(found)


# ---------------------------------------------------------------------------------------------------------------------
# The record of what is ours


class State(t.NamedTuple):
    """What is kept on the host about one daemon.json: whose keys, how the file looked before, what was written when.

    `original` is the text before the first key of ours, None where there was no file; `written` is when a key was last
    changed (microseconds of the monotonic clock), in which boot, what that asked of the daemon, and (`former`) what was
    there before, to go back to.
    """

    record: Record
    original: str | None = None
    made_directory: bool = False
    written: dict[str, t.Any] | None = None


def state_path(state_directory: str, path: str) -> str:
    return os.path.join(state_directory, "docker_daemon_config", quote(path, safe="") + ".json")


def load_state(text: str | None, path: str) -> State:
    """The state in a record file's text."""
    if text is None:
        return State(merge.EMPTY_RECORD)
    try:
        data = json.loads(text)
        entries = {
            Leaf(_path(item["path"]), _text_or_none(item.get("item"))): Entry(
                item.get("value", ABSENT), item.get("previous", ABSENT), _texts(item["managers"])
            )
            for item in data["entries"]
        }
        containers = frozenset(_path(item) for item in data["containers"])
        original, made = _text_or_none(data["original"]), _of(bool, data["made_directory"])
        return State(Record(entries, containers), original, made, _written(data["written"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DaemonConfigError(
            f"{path}: this record of the keys that were set in daemon.json cannot be read ({error!r}). Remove it: the "
            "keys in daemon.json then count as somebody else's, and stay when they are no longer wanted."
        ) from error


def _of(kind: type, value: t.Any) -> t.Any:
    """The value, which is of that kind in each record that was written here."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{merge.shown(value)[:60]} is no {kind.__name__}")
    return value


def _text_or_none(value: t.Any) -> str | None:
    return None if value is None else _of(str, value)


def _texts(value: t.Any) -> tuple[str, ...]:
    return tuple(_of(str, item) for item in _of(list, value))


def _path(value: t.Any) -> tuple[str, ...]:
    if not value:
        raise ValueError("a path without keys")
    return _texts(value)


def _written(value: t.Any) -> dict[str, t.Any] | None:
    if value is None:
        return None
    note = _of(dict, value).get("former")
    if note is not None:
        note = {
            "text": _text_or_none(_of(dict, note)["text"]),
            "after": _text_or_none(note["after"]),
            "state": _of(dict, note["state"]),
        }
    return {
        "at": _of(int, value["at"]),
        "boot_id": _of(str, value["boot_id"]),
        "reload": list(_texts(value["reload"])),
        "restart": list(_texts(value["restart"])),
        **({"former": note} if "former" in value else {}),
    }


def dump_state(state: State) -> str:
    entries = []
    for leaf, entry in sorted(state.record.entries.items(), key=lambda pair: (pair[0].path, pair[0].item or "")):
        item: dict[str, t.Any] = {"path": list(leaf.path), "managers": list(entry.managers)}
        if leaf.item is not None:
            item["item"] = leaf.item
        if entry.value is not ABSENT:
            item["value"] = entry.value
        if entry.previous is not ABSENT:
            item["previous"] = entry.previous
        entries.append(item)
    data = {
        "entries": entries,
        "containers": sorted(list(path) for path in state.record.containers),
        "original": state.original,
        "made_directory": state.made_directory,
        "written": state.written,
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def masked_record(text: str, path: str) -> str:
    """The text of a record file, masked: it has values apart from their keys."""
    try:
        state = load_state(text, path)
    except DaemonConfigError:
        return masked_file(text)
    entries = {
        leaf._replace(item=None if leaf.item is None else masked(leaf.item)): entry._replace(
            value=masked_tree(entry.value, leaf.path[-1]), previous=masked_tree(entry.previous, leaf.path[-1])
        )
        for leaf, entry in state.record.entries.items()
    }
    original = None if state.original is None else masked_file(state.original)
    written = {**state.written, "former": None} if state.written else None
    record = state.record._replace(entries=entries)
    return dump_state(state._replace(record=record, original=original, written=written))


class Former(t.NamedTuple):
    """What was there before: the file's text, None where there was no file, and the state."""

    text: str | None
    state: State


def remember_former(before: str | None, after: str | None, state: State, *, is_proven: bool) -> dict[str, t.Any]:
    """What to note of a change, so that `former` can tell what was there before it.

    `is_proven` says that the daemon has taken up the change before this one. A daemon that never did may not start
    with that either, so what was there still earlier stays what to go back to.
    """
    note = (state.written or {}).get("former")
    if note and not is_proven and note["after"] == before:
        return {**note, "after": after}
    kept = state._replace(written={**state.written, "former": None} if state.written else None)
    return {"text": before, "after": after, "state": json.loads(dump_state(kept))}


def former(state: State, text: str | None, path: str) -> Former | None:
    """What to go back to; None where no change waits to be taken up. Raises where the file is not as it was left."""
    note = (state.written or {}).get("former")
    if not note:
        return None
    if note["after"] != text:
        raise DaemonConfigError(
            f"{path}: somebody has changed this file since it was written here, so what was there before does not come "
            "back by itself. Correct it by hand; it has not been changed."
        )
    if note["text"] == text:
        return None
    return Former(note["text"], load_state(json.dumps(note["state"]), path))


def keeping(found: Former, text: str | None, state: State, keys: t.Iterable[str], path: str) -> Former:
    """What to go back to, with some keys of the file and the record staying as they are now."""
    now, then = ({} if one is None else parse(one, path) for one in (text, found.text))
    kept = [key for key in keys if key in now and key in differing_keys(now, then)]
    if not kept:
        return found
    record, former_record = state.record, found.state.record
    entries = {leaf: entry for leaf, entry in former_record.entries.items() if leaf.path[0] not in kept}
    entries.update({leaf: entry for leaf, entry in record.entries.items() if leaf.path[0] in kept})
    containers = {name for name in former_record.containers if name[0] not in kept}
    containers |= {name for name in record.containers if name[0] in kept}
    new = found.state._replace(
        record=Record(entries, frozenset(containers)),
        original=found.state.original if former_record.entries else found.text,
        made_directory=state.made_directory,
    )
    return Former(dump({**then, **{key: now[key] for key in kept}}, found.text), new)


def differing_keys(one: dict[str, t.Any], other: dict[str, t.Any]) -> list[str]:
    """Top-level keys that two configurations do not agree on."""
    found = {key for key in {*one, *other} if merge.canonical_or_absent(one.get(key, ABSENT)) !=
             merge.canonical_or_absent(other.get(key, ABSENT))}  # fmt: skip
    return sorted(found)


def differing_names(one: t.Any, other: t.Any, path: merge.Path = ()) -> list[str]:
    """Dotted names of the options that two configurations do not agree on."""
    nodes = [{} if node is ABSENT else node for node in (one, other)]
    if all(isinstance(node, dict) for node in nodes) and any(nodes) and not policy().is_whole(path):
        names = (
            differing_names(*(node.get(key, ABSENT) for node in nodes), (*path, key))
            for key in sorted({*nodes[0], *nodes[1]})
        )
        return [name for found in names for name in found]
    return [] if merge.canonical_or_absent(one) == merge.canonical_or_absent(other) else [".".join(path)]


def owned_keys(record: Record, manager: str) -> list[str]:
    return sorted({leaf.name for leaf, entry in record.entries.items() if manager in entry.managers})


def taken_over_keys(before: Record, after: Record) -> list[str]:
    """Options in which a change of the record has put our value, or none, where one of somebody else's stood."""
    found = set()
    for leaf, entry in after.entries.items():
        known = before.entries.get(leaf)
        if entry.previous is not ABSENT and (known is None or known.previous != entry.previous):
            found.add(leaf.name)
    return sorted(found)


def undone_keys(now: Record, then: Record) -> dict[str, list[str]]:
    """By the name on whose behalf they are set, the options that two records do not agree on."""
    found: dict[str, set[str]] = {}
    for leaf in {*now.entries, *then.entries}:
        entries = [record.entries.get(leaf) for record in (now, then)]
        for manager in {name for entry in entries if entry for name in entry.managers}:
            values = [
                merge.canonical_or_absent(entry.value) if entry and manager in entry.managers else "not set"
                for entry in entries
            ]
            if values[0] != values[1]:
                found.setdefault(manager, set()).add(leaf.name)
    return {manager: sorted(names) for manager, names in sorted(found.items())}


# ---------------------------------------------------------------------------------------------------------------------
# The plan


class Plan(t.NamedTuple):
    """What is to be written. `text` is None where no file is to be; `before` likewise where there is none."""

    before: str | None
    text: str | None
    config: dict[str, t.Any]
    state: State
    changed_keys: tuple[str, ...]
    restart_keys: list[str]
    edited: tuple[str, ...]
    satisfied: list[str]
    conflicts: list[str]


def plan(
    before: str | None,
    state: State,
    manager: str,
    options: dict[str, t.Any] | None,
    *,
    present: bool,
    lists: str,
    flags: list[Flag],
    path: str,
    unit: str = DEFAULT_UNIT,
    in_swarm: bool = False,
) -> Plan:
    """From what is there and what is wanted to what is to be written. Raises with all that speaks against it."""
    current = {} if before is None else parse(before, path)
    problems = value_problems(masked_tree(options or {})) if present else []
    if problems:
        raise DaemonConfigError("options: " + " ".join(problems))
    rules = policy(lists)
    satisfied: list[str] = []
    try:
        if present:
            wanted = without_satisfied(options or {}, flags)
            satisfied = sorted(set(options or {}) - set(wanted))
            result = merge.merge(current, state.record, manager, wanted, rules)
        else:
            result = merge.release(current, state.record, manager, options or None, rules)
    except merge.MergeError as error:
        raise DaemonConfigError(f"{path}: {error}") from error

    new = state._replace(record=result.record)
    if not state.record.entries:
        new = new._replace(original=before)
    text = before
    if result.changed:
        text = _text(result.tree, before, new)
    if not result.record.entries:
        new = new._replace(original=None)
    given_twice = [masked(text) for text in conflicts(masked_tree(result.tree), flags, path, unit)]
    if result.changed:
        problems = config_problems(masked_tree(result.tree)) + given_twice
        if in_swarm and result.tree.get("live-restore") is True:
            problems.append(
                "live-restore: this daemon is a member of a swarm, and dockerd does not start with both. "
                "Leave live-restore out (or false), or let the node leave the swarm."
            )
        if problems:
            raise DaemonConfigError(f"{path}, as it would be: " + " ".join(problems))
    restart = restart_required(result.changed, result.tree)
    return Plan(before, text, result.tree, new, result.changed, restart, result.edited, satisfied, given_twice)


def _text(tree: dict[str, t.Any], before: str | None, state: State) -> str | None:
    if not state.record.entries:
        if state.original is None and not tree:
            return None
        if state.original is not None:
            try:
                original = parse(state.original, "")
            except DaemonConfigError:
                return dump(tree, before)
            if merge.canonical(original) == merge.canonical(tree):
                return state.original
    return dump(tree, before)


# ---------------------------------------------------------------------------------------------------------------------
# dockerd's own opinion


Run = t.Callable[..., tuple[int, str, str]]


def dockerd_version(run: Run, dockerd: str) -> tuple[int, ...]:
    """The version of a dockerd; () where it does not say."""
    _rc, out, _err = run([dockerd, "--version"])
    match = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?", out)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def validate(run: Run, run_unprivileged: Run, dockerd: str, file: str) -> str:
    """Let dockerd itself judge a file that is not live yet. Says who judged; raises with dockerd's own words.

    Since 23.0 dockerd has a flag for it. 19.03 to 20.10 do not, but read and check the whole file before they look at
    who calls, and refuse any other than root before they make or touch anything: so they are asked as nobody.
    """
    version = dockerd_version(run, dockerd)
    shown = f"{dockerd} {'.'.join(str(part) for part in version)}"
    if version >= (23,):
        rc, out, err = run([dockerd, "--validate", "--config-file", file])
        accepted = rc == 0
    elif version >= (19, 3):
        rc, out, err = run_unprivileged([dockerd, "--config-file", file])
        accepted = rc != 0 and bool(re.search(r"dockerd needs to be started with root", out + err))
    else:
        return ""
    if not accepted:
        unknown = _UNKNOWN.search(out + err)
        if unknown:
            raise DaemonConfigError(" ".join(_not_of(shown, key.strip()) for key in unknown.group(1).split(",")))
        words = " ".join(
            line for line in (err + "\n" + out).replace(f"with file {file}", "with it").split("\n") if line.strip()
        )
        raise DaemonConfigError(f"{shown} does not accept the file as it would be: {words or f'exit status {rc}'}")
    return shown


def _not_of(shown: str, key: str) -> str:
    """What to say of an option that this dockerd does not have. It names keys of some objects without the object."""
    known = f"proxies.{key}" if key in _PROXIES else key
    if known.partition(".")[0] in KNOWN_OPTIONS:
        return f"{known}: {shown} has no such option; dockerd of another version has. Leave it out, or change dockerd."
    return _unknown(f"{key}: {shown}", key)


# ---------------------------------------------------------------------------------------------------------------------
# What the daemon has not taken up yet


def pending(written: dict[str, t.Any] | None, boot_id: str, run: Run, unit: str) -> dict[str, list[str]]:
    """Keys in the file that the running daemon does not use yet, by what it takes: a reload or a restart."""
    nothing: dict[str, list[str]] = {"reload": [], "restart": []}
    if not written or written.get("boot_id") != boot_id:
        return nothing
    daemon = _daemon(run, unit)
    if daemon is None:
        return nothing
    return _untaken(written, daemon)


def _untaken(written: dict[str, t.Any], daemon: _Daemon) -> dict[str, list[str]]:
    return {
        "reload": [] if daemon.touched > written["at"] else list(written["reload"]),
        "restart": [] if daemon.started > written["at"] else list(written["restart"]),
    }


def taken_up(written: dict[str, t.Any], boot_id: str, run: Run, unit: str) -> bool:
    """Whether the daemon runs with what was written. One that is not up, or not yet, has proved nothing."""
    daemon = _daemon(run, unit)
    if daemon is None or not daemon.is_ready:
        return False
    return written.get("boot_id") != boot_id or not any(_untaken(written, daemon).values())


class _Daemon(t.NamedTuple):
    """A daemon's process: when it was started and last read its file, and whether it is done with starting."""

    started: int
    touched: int
    is_ready: bool


def _daemon(run: Run, unit: str) -> _Daemon | None:
    names = "MainPID,ActiveState,ExecMainStartTimestampMonotonic,StateChangeTimestampMonotonic,ReloadResult"
    rc, out, _err = run(["systemctl", "show", unit, "-p", names])
    shown = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    if rc != 0 or shown.get("MainPID", "0") == "0":
        return None
    started = int(shown.get("ExecMainStartTimestampMonotonic") or 0)
    # A reload that failed has changed the unit's state as well.
    is_reloaded = shown.get("ReloadResult", "success") == "success"
    touched = max(started, int(shown.get("StateChangeTimestampMonotonic") or 0) if is_reloaded else 0)
    return _Daemon(started, touched, shown.get("ActiveState") in ("active", "reloading"))
