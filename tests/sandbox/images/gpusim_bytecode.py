# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the compiled code of what Python imports from zip archives, so that simulated hosts compile each file only once.

Ansible sends a module as a zip archive of source files, which Python compiles at each start, each file twice: this is
half of the time of a small module. A .pth file that build.sh writes lets each Python of a simulated host import this
file, if ``GPUSIM_BYTECODE`` is in its environment. This is the directory of the code, which the hosts of a checkout
share. The name of a file contains the version of Python and a digest of the source. Ansible has the variable where
it connects with ``docker exec``, not with SSH, because ``make bench`` measures what a user's host needs.
"""

from __future__ import annotations

import _imp
import marshal
import os
import sys
import zipimport


def compile_once(pathname, source, compile_source=zipimport._compile_source):
    """Return the code of a source file (bytes) in a zip archive, like the function of zipimport that it replaces."""
    in_archive = pathname.partition(".zip/")[2] or os.path.basename(pathname)
    digest = _imp.source_hash(len(source), in_archive.encode() + b"\0" + source).hex()
    directory = os.environ["GPUSIM_BYTECODE"]
    path = f"{directory}/{sys.implementation.cache_tag}-{digest}-{len(source)}"
    try:
        with open(path, "rb") as file:
            code = marshal.loads(file.read())
        _imp._fix_co_filename(code, pathname)  # so that a traceback names this archive; TypeError if it is no code
        return code
    except (OSError, EOFError, TypeError, ValueError):
        pass  # not kept yet, or not readable
    code = compile_source(pathname, source)
    own = f"{path}.{os.urandom(8).hex()}"  # hosts may have the same process IDs
    try:
        os.makedirs(directory, exist_ok=True)
        with open(own, "wb") as file:
            file.write(marshal.dumps(code))
        os.replace(own, path)
    except OSError:
        pass  # another user's directory, or a full disk: the next start compiles again
    return code


zipimport._compile_source = compile_once
