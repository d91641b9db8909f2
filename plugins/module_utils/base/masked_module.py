# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that shows its arguments only masked, in the log of the host and in its result.

AnsibleModule logs the arguments while it is created, so a module could not mask them before. In lists and dictionaries,
Ansible does not find `no_log` values that contain a line break, a quote or a backslash, because it escapes these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.parameters import remove_values

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins

MASK = "********"
# The start of the message with the arguments, and Ansible's placeholders for options with `no_log`.
_INVOKED, _NOT_LOGGED = "Invoked", "NOT_LOGGING_"


def without_logins(value: Any) -> Any:
    """Mask the logins of all URLs in arguments or in a text."""
    if isinstance(value, str):
        return url_logins.masked(value)
    if isinstance(value, Mapping):
        return {name: without_logins(item) for name, item in value.items()}
    return [without_logins(item) for item in value] if isinstance(value, (list, tuple)) else value


def hidden(value: Any) -> Any:
    """Return a mask for a value that is not empty, or for each value of a dictionary."""
    if isinstance(value, Mapping):
        return {name: hidden(item) for name, item in value.items()}
    return MASK if value else value


class MaskedModule(AnsibleModule):
    """An AnsibleModule that masks its arguments, its messages and what it logs."""

    def __init__(
        self, argument_spec: dict[str, Any], mask: Callable[[Any], Any] = without_logins, **settings: Any
    ) -> None:
        """`mask` masks the arguments, and also a text."""
        # The constructor of AnsibleModule logs the arguments, and fails if they are not valid.
        self._mask = mask
        super().__init__(argument_spec, **settings)

    def shown_arguments(self) -> Any:
        """Return the arguments without secrets."""
        return self._mask(remove_values(self.params, self.no_log_values))

    def log(self, msg: Any, log_args: Mapping[str, Any] | None = None) -> None:
        """Log a message. Replace the arguments in Ansible's first message with masked ones."""
        text = msg.decode("utf-8", "replace") if isinstance(msg, bytes) else str(msg)
        if log_args is None and not text.startswith(_INVOKED):
            super().log(self._mask(text))
            return
        placeholders = {name: value for name, value in (log_args or {}).items() if str(value).startswith(_NOT_LOGGED)}
        shown = {name: str(value) for name, value in {**self.shown_arguments(), **placeholders}.items()}
        super().log(" ".join([f"{_INVOKED} with", *(f"{name}={value}" for name, value in shown.items())]), shown)

    def exit_json(self, **result: Any) -> NoReturn:
        """Return the result with the masked arguments."""
        super().exit_json(**{"invocation": {"module_args": self.shown_arguments()}, **result})

    def fail_json(self, msg: Any, **result: Any) -> NoReturn:
        """Return a failure with the masked message and the masked arguments."""
        invocation = {"module_args": self.shown_arguments()}
        super().fail_json(self._mask(str(msg)), **{"invocation": invocation, **result})
