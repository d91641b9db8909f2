# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens if the engine that does not run the task's container cannot list its containers."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Podman, StoppedDocker
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError


def containers_of_other_engine(
    engine: Docker | Podman | StoppedDocker, *, must_answer: bool
) -> tuple[list[dict], list[str]]:
    """Return the containers of the engine that does not run the container of the task, and warnings.

    This engine may be installed but not usable, such as Podman for a user without subordinate IDs. This is an error
    only for exclusive use.
    """
    try:
        engine.state()
        return engine.containers(), []
    except EngineError as error:
        reason = str(error).strip().splitlines()[-1]
        message = f"Cannot determine which GPUs {engine.name}'s containers hold: {reason.rstrip('.')}."
        if must_answer and not isinstance(engine, StoppedDocker):
            raise EngineError(
                f"exclusive: {message[0].lower()}{message[1:]} Repair or remove {engine.name}, or remove exclusive."
            ) from error
        return [], [message]
