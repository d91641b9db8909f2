#!/bin/sh
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# build.sh OUTDIR                        compile all parts of a simulated host
# build.sh --nvml-only OUTDIR [SYMBOL…]  compile only the NVML library, without these symbols
#
# Does nothing if OUTDIR is newer than the sources.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
only=
if [ "${1:-}" = --nvml-only ]; then
    only=1
    shift
fi
[ $# -ge 1 ] || { echo "usage: $0 [--nvml-only] OUTDIR [SYMBOL...]" >&2; exit 2; }
out=$1
shift

mkdir -p "$out"
# The lock serializes parallel builds in one directory.
exec 9>"$out/.lock"
flock 9
if [ -e "$out/.built" ] && [ -z "$(find "$here/src" "$here/build.sh" "$here/image.sh" -newer "$out/.built" 2>/dev/null)" ]; then
    exit 0
fi
command -v gcc >/dev/null || { echo "$0: gcc is not installed. Install the packages gcc and libc6-dev." >&2; exit 1; }

flags="-std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -Wl,-z,defs -Wl,--build-id=none"
exports=
if [ $# -gt 0 ]; then
    exports="-Wl,--version-script=$out/exports.map"
    {
        echo "{ local:"
        for symbol in "$@"; do echo "  $symbol;"; done
        echo "};"
    } >"$out/exports.map"
fi

# shellcheck disable=SC2086 # flags contains several words
gcc $flags $exports -Wl,-soname,libnvidia-ml.so.1 -o "$out/.nvml" "$here/src/nvml.c" "$here/src/state.c"
mv -f "$out/.nvml" "$out/libnvidia-ml.so.1"
# shellcheck disable=SC2086 # flags contains several words
if [ -z "$only" ]; then
    gcc $flags -Wl,-soname,libnvidia-cfg.so.1 -o "$out/libnvidia-cfg.so.1" "$here/src/cfg.c" "$here/src/state.c"
    gcc $flags -o "$out/libgpusim-kernel.so" "$here/src/kernel.c"
    gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$out/gpu-client" "$here/src/client.c"
    gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$out/nvidia-smi" "$here/src/smi.c"
    "$here/image.sh" "$out/gpu-client" "$out/gpu-client.tar"
fi
touch "$out/.built"
