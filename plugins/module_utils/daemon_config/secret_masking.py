# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mask passwords and tokens in Docker's options, in messages about them and in the record on the host."""

from __future__ import annotations

import re
import typing as t

REGISTRY_OPTIONS = ("insecure-registries", "registry-mirrors")

# User info follows a scheme. In a proxy's address it may come first, because a proxy needs no scheme. A password may
# contain a slash although URLs do not allow it, so what follows the first colon is a password unless it is a port.
_PORT = r"\d*(?:/|$)"
_USER_INFO = re.compile(
    r"(?i)(:\\*/\\*/|proxy\\*[\"']?[:=\s]\s*\\*[\"']?)"
    rf"((?=[^\s/\"]*(?:@|%40)|[^\s/\"@\[]*:(?!{_PORT}))[^\s\"]+)(@|%40)"
)
# Percent-encoded user info, as in an address in the query of another address.
_ENCODED_USER_INFO = re.compile(r"(?i)(%3a%2f%2f)([^\s&\"]+)(%40|@)")
# User info without a scheme, as in the address of a registry. An image's digest also follows an @.
_LOGIN = re.compile(
    r"(?i)(?<![^\s\"'=,(\[])(?<!/\[)(?P<user>[^\s/\"'@:=,%\[\\]+)(?P<colon>:|%3a)"
    rf"(?!\\*/\\*/|%2f%2f|{_PORT})[^\s\"]+(?P<end>@|%40)(?!sha\d+:)"
)
_WORD = re.compile(r"[^\s\"]+")
_LOGIN_END = re.compile(r"(?i)(?:@|%40)(?!sha\d+:)")
# A password in a quoted address may contain white space and quotes.
_QUOTED = re.compile(r'"((?:\\.|[^"\\])*)"')
_QUOTED_LOGIN = re.compile(
    rf"(?s)(?P<start>(?:[\w+.-]+:\\*/\\*/)?[^\s@:/\"\[\\]*:)(?!\s|\\*/\\*/|{_PORT})(?:(?!:\\*/\\*/).)*(?P<end>@(?!sha\d+:)[^@]*)"
)
_REGISTRY_LIST = re.compile(rf'("(?:{"|".join(REGISTRY_OPTIONS)})"\s*:\s*\[)((?:[^\]"]|"(?:\\.|[^"\\])*")*)')
# The ends of the names of secrets. Log drivers have such options, for example splunk-token.
# PWD is the working directory of the shell.
SECRET_NAMES = (
    "token|passw(?:or)?d|(?-i:pwd)|[-_.]pwd|passphrase|secret|auth|authorization|credentials?|bearer|"
    "(?:api|access|secret|private|shared)[-_.]?key"
)
_SECRET_KEY = re.compile(rf"(?i)(?:{SECRET_NAMES})$")
_SECRET_PAIR = re.compile(rf"(?i)((?:{SECRET_NAMES})=)[^\s\"'\\]+")
_SECRET_MEMBER = re.compile(rf"(?i)((?:{SECRET_NAMES})(\\*[\"'])\s*:\s*\2)(?:(?!\2)(?:\\.|.))+")
_MASK = "********"


def masked(text: str) -> str:
    """Mask the passwords and tokens in the addresses and `key=value` pairs of a text.

    User info ends at the last @ of a word, because a password may contain one. User names stay visible. Masked JSON
    stays valid JSON, and masking a masked text changes nothing.
    """

    def mask(match: re.Match[str]) -> str:
        user, colon, _password = match.group(2).partition(":")
        return f"{match.group(1)}{user if colon else ''}{colon}{_MASK}{match.group(3)}"

    text = _QUOTED.sub(lambda match: f'"{_masked_address(match.group(1))}"', text)
    if "@" in text or "%40" in text:
        text = _WORD.sub(_masked_word, _USER_INFO.sub(mask, text))
        text = _ENCODED_USER_INFO.sub(rf"\1{_MASK}\3", text)
    return _SECRET_PAIR.sub(rf"\1{_MASK}", text)


def _masked_word(match: re.Match[str]) -> str:
    """Mask the logins in a word.

    A list of hosts and ports may be very long. `_LOGIN` searches only the text before the last @, because a search that
    finds no @ would start again at each item.
    """
    word = match.group()
    end = max((found.end() for found in _LOGIN_END.finditer(word)), default=0)
    return _LOGIN.sub(rf"\g<user>\g<colon>{_MASK}\g<end>", word[:end]) + word[end:]


def _masked_address(text: str) -> str:
    """Mask the login in a text that consists of one address. Return other texts unchanged."""
    login = _QUOTED_LOGIN.fullmatch(text)
    return f"{login['start']}{_MASK}{login['end']}" if login else text


def _masked_registry(address: str) -> str:
    """Mask the login of a registry, which may be a token without a user name."""
    login, at, place = address.rpartition("@")
    return f"{_MASK}@{place}" if at and ":" not in login else masked(_masked_address(address))


def masked_file(text: str) -> str:
    """Mask the text of a JSON file, including the values of keys that name a secret."""

    def mask_registries(match: re.Match[str]) -> str:
        return match.group(1) + _QUOTED.sub(lambda item: f'"{_masked_registry(item.group(1))}"', match.group(2))

    text = _REGISTRY_LIST.sub(mask_registries, text)
    return _SECRET_MEMBER.sub(rf"\1{_MASK}", masked(text))


def masked_tree(value: t.Any, key: str = "") -> t.Any:
    """Mask all texts in a JSON value that belongs to `key`."""
    # A token of digits is a number in YAML without quotes.
    if isinstance(value, (str, int, float)) and value and value is not True and _SECRET_KEY.search(key):
        return _MASK
    if isinstance(value, str):
        if key in REGISTRY_OPTIONS:
            return _masked_registry(value)
        value = _masked_address(value)
        return masked(f"{key}={value}")[len(key) + 1 :] if key.endswith("proxy") else masked(value)
    if isinstance(value, dict):
        return {masked(str(name)): masked_tree(item, str(name)) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_tree(item, key) for item in value]
    return value


def masked_arguments(value: t.Any) -> t.Any:
    """Mask the arguments of a module, or a message about them."""
    return masked(value) if isinstance(value, str) else masked_tree(value)
