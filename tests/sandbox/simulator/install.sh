#!/bin/sh
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# install.sh BUILD_DIR DESTDIR: install the simulator into the root file system of a host. The caller must write
# DESTDIR/usr/lib/gpusim/kernel-release and make /usr/lib/gpusim/init the entry point of the image.
set -eu

[ $# -eq 2 ] || { echo "usage: $0 BUILD_DIR DESTDIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
build=$1
dest=${2%/}
home=$dest/usr/lib/gpusim

install -d "$home" "$dest/usr/sbin" "$dest/etc/gpusim" "$dest/etc/dpkg/dpkg.cfg.d" "$dest/var/lib/gpusim" \
    "$dest/etc/systemd/system/docker.service.d" "$dest/etc/systemd/system/multi-user.target.wants"
install -m 0755 "$here/gpusim.py" "$home/gpusim"
install -m 0644 "$here/mig_layout.py" "$here/trees.py" "$home/"
install -m 0755 "$here/init.sh" "$home/init"
install -m 0755 "$here/import_image.py" "$home/import-image"
install -m 0644 "$build/libnvidia-ml.so.1" "$build/libnvidia-cfg.so.1" "$home/"
install -m 0755 "$build/libgpusim-kernel.so" "$build/gpu-client" "$build/nvidia-smi" "$home/"
install -m 0644 "$build/gpu-client.tar" "$home/"
ln -sfn ../lib/gpusim/gpusim "$dest/usr/sbin/gpusim"

install -m 0644 "$here/units/dpkg.cfg" "$dest/etc/dpkg/dpkg.cfg.d/gpusim"
install -m 0644 "$here/units/docker.conf" "$dest/etc/systemd/system/docker.service.d/gpusim.conf"
for unit in gpusim-podman gpusim-held; do
    install -m 0644 "$here/units/$unit.path" "$here/units/$unit.service" "$dest/etc/systemd/system/"
    ln -sfn "../$unit.path" "$dest/etc/systemd/system/multi-user.target.wants/$unit.path"
done

# Do this last, because every program in that root loads the library from now on.
echo /usr/lib/gpusim/libgpusim-kernel.so >"$dest/etc/ld.so.preload"
