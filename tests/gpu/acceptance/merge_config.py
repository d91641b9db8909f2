# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change a config.toml of the toolkit with the functions of role nvidia_container_toolkit. Reads and prints JSON.

Run it with `python3 -S` and the collection in PYTHONPATH, so that it uses this checkout.
"""

from __future__ import annotations

import dataclasses
import json
import site
import sys

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import config_toml


def answer(question: dict[str, object]) -> dict[str, object]:
    """Return the new text of the file, the new record, and the changed keys; or the problems of the user's keys."""
    config = question["config"]
    problems = config_toml.value_problems(config)
    if problems:
        return {"problems": problems}
    return dataclasses.asdict(config_toml.plan(question["text"], question["record"], config))


if __name__ == "__main__":
    # The collection is loaded from this checkout. The installed packages, of which tomlkit is needed, come last.
    site.main()
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
