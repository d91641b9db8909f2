#!/bin/sh
# List every trace of nvidia-docker, and of old packages and repositories.
dpkg-query --show --showformat '${db:Status-Abbrev}${Package}\n' | grep -E 'nvidia-docker|nvidia-container-runtime'
getent passwd nvidia-docker
find / -xdev \( -path /proc -o -path /srv -o -path /var/lib/docker \) -prune -o -name '*nvidia-docker*' -print
find /etc/docker -name '*.dpkg-*'
grep -rls 'nvidia.github.io/nvidia-docker' /etc/apt
grep -rls 'nvidia.github.io/libnvidia-container/stable/debian' /etc/apt
exit 0
