# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether Docker's database of volumes still has volumes of nvidia-docker's plugin. Pure functions.

Every run imports this file on every host, so it does not read the database as docker_volume_database.py does.
"""

from __future__ import annotations

import struct


def remain(database: bytes, driver: str) -> bool:
    """Return whether a used page of Docker's database of volumes names the plugin. Deleted pages keep their text.

    `driver`: the name of the plugin. A database of another form counts as if it had volumes.
    """
    name = f'"Driver":"{driver}"'.encode()
    position = database.find(name)
    if position < 0:
        return False
    try:
        size = struct.unpack_from("<I", database, 24)[0]
        metas = [struct.unpack_from("<Q8xQ", database, page * size + 48)[::-1] for page in (0, 1)]
        start = max(metas)[1] * size
        count = struct.unpack_from("<H", database, start + 10)[0]
        free = {*struct.unpack_from(f"<{count}Q", database, start + 16)}
        while position >= 0:
            if position // size not in free:
                return True
            position = database.find(name, position + 1)
    except (struct.error, ZeroDivisionError):
        return True
    return False
