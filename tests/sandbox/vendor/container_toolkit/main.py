# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for the programs of NVIDIA's container toolkit. They work on simulated hosts without GPUs.

All programs have the same content, and the name of the program decides what it does. They read requests, configuration
and CDI specifications as the vendor's programs do at tags v1.17.8, v1.19.1 and v1.20.0 of
NVIDIA/nvidia-container-toolkit, and start the real low-level runtime. They have no code of the vendor. What they leave
out: CSV mode, GDS, MOFED, NVSwitch and IMEX requests, CUDA compatibility libraries, and DRM nodes in legacy mode.
"""

from __future__ import annotations

import os
import sys


class Failure(Exception):
    """A program cannot do what was requested."""


def warn(text: str) -> None:
    """Write a warning."""
    print(f"level=warning msg={text!r}", file=sys.stderr)


def run(program: str, argv: list[str]) -> int:
    """Run a program, and return its exit status. Import only the code of this program, so that it starts quickly."""
    try:
        if program == "nvidia-container-runtime":
            from . import runtime  # noqa: PLC0415

            return runtime.main(argv)
        if program in ("nvidia-container-runtime-hook", "nvidia-container-toolkit"):
            from . import prestart  # noqa: PLC0415

            return prestart.main(argv)
        if program == "nvidia-container-cli":
            from . import cli  # noqa: PLC0415

            return cli.main(argv)
        if program == "nvidia-cdi-hook":
            from . import cdi_hooks  # noqa: PLC0415

            return cdi_hooks.main(argv)
        from . import ctk  # noqa: PLC0415

        return ctk.main(argv)
    except (Failure, OSError) as error:
        print(f"{program}: level=error msg={str(error)!r}", file=sys.stderr)
        return 1


def main() -> None:
    """Run the program that has the name of this file."""
    sys.exit(run(os.path.basename(sys.argv[0]), sys.argv[1:]))
