# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attributes of modules: what they do in check mode, with diff, and in a second run."""

from __future__ import annotations


class ModuleDocFragment:
    """A module that changes the host."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    support: full
    description: Can run in check_mode and return changed status prediction without modifying target.
  diff_mode:
    support: full
    description: Will return details on what has changed (or possibly needs changing in check_mode), when in diff mode.
  idempotent:
    support: full
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
"""

    # A module that reads the host.
    READER = r"""
attributes:
  check_mode:
    support: full
    description: The result is the same. The module never changes the host.
  diff_mode:
    support: none
    description: The module never changes the host, so it returns no diff.
  idempotent:
    support: full
    description: The module never changes the host, so it indicates no change.
"""

    # An action that decides or prints on the controller.
    CONTROLLER = r"""
attributes:
  check_mode:
    support: full
    description: The task changes nothing.
  diff_mode:
    support: none
    description: The task changes nothing.
"""
