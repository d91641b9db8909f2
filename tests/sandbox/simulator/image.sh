#!/bin/sh
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# image.sh GPU_CLIENT TARFILE: create the root file system of the image localhost/gpu-client from files of this machine:
# busybox, the C library and gpu-client.
set -eu

[ $# -eq 2 ] || { echo "usage: $0 GPU_CLIENT TARFILE" >&2; exit 2; }
client=$1
tarfile=$2
busybox=$(command -v busybox) || { echo "$0: busybox is not installed. Install the package busybox-static." >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

mkdir -p "$root/bin" "$root/sbin" "$root/usr/bin" "$root/usr/local" "$root/etc" "$root/tmp" "$root/dev" "$root/proc" "$root/sys" \
    "$root/run" "$root/var" "$root/root"
chmod 1777 "$root/tmp"
cp "$busybox" "$root/bin/busybox"
for applet in $("$busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
cp "$client" "$root/usr/bin/gpu-client"
echo "root:x:0:0:root:/root:/bin/sh" >"$root/etc/passwd"
echo "root:x:0:" >"$root/etc/group"

# The dynamic loader, the C library, and the dependencies of the driver's libraries and of a dynamically linked busybox.
loader=$(ldd "$client" | grep -o '/lib[^ ]*/ld-linux[^ ]*' | head -n 1)
libraries=$(dirname "$(ldd "$client" | awk '$1 == "libc.so.6" {print $3}')")
mkdir -p "$root$libraries" "$root$(dirname "$loader")"
cp -L "$loader" "$root$loader"
for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libnss_files.so.2 libresolv.so.2 \
    libgcc_s.so.1 libstdc++.so.6; do
    if [ -e "$libraries/$name" ]; then cp -L "$libraries/$name" "$root$libraries/$name"; fi
done
ldd "$busybox" 2>/dev/null | awk '$3 ~ /^\// {print $3}' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -Ln "$library" "$root$library"
done

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$root" -cf "$tarfile.new" .
mv -f "$tarfile.new" "$tarfile"
