#!/usr/bin/env bash
# Prepare a host for SSH: create an unprivileged user, who becomes root with sudo and a password. Can be repeated.
#   login.sh HOST USER PASSWORD
# SSH runs through `docker exec`, so a host needs no IP address and stays reachable without a network.
set -euo pipefail

fail() { printf 'sandbox: %s\n' "$1" >&2; exit 1; }

host=${1:?usage: login.sh HOST USER PASSWORD}
user=${2:?usage: login.sh HOST USER PASSWORD}
password=${3:?usage: login.sh HOST USER PASSWORD}
keys=$(cd "$(dirname "$0")/../.." && pwd)/.cache/sandbox/ssh

# All users of this checkout share one key, and all hosts share another. The lock is for hosts that are prepared in parallel.
# shellcheck disable=SC2174 # only this directory contains keys, not the directories above it
mkdir -p -m 700 "$keys"
exec 9>>"$keys/lock"
flock 9
for key in user host; do
    [ -f "$keys/$key" ] || ssh-keygen -q -t ed25519 -N '' -C gpufleet-sandbox -f "$keys/$key"
done
printf '* %s\n' "$(cat "$keys/host.pub")" >"$keys/known_hosts"
cat >"$keys/config" <<CONFIG
# ssh -F $keys/config USER@HOST
Host *
    ProxyCommand docker exec --interactive %h /usr/lib/gpusim/sshd
    IdentityFile "$keys/user"
    IdentitiesOnly yes
    UserKnownHostsFile "$keys/known_hosts"
    StrictHostKeyChecking yes
CONFIG
flock -u 9

docker exec "$host" test -x /usr/sbin/sshd || fail "$host has no SSH server. Add the package openssh-server to its image."
docker exec --interactive "$host" sh -eu -s "$user" "$password" "$(cat "$keys/user.pub")" "$(cat "$keys/host")" <<'HOST'
user=$1 password=$2 public=$3 host_key=$4
if ! id "$user" >/dev/null 2>&1; then
    useradd --create-home --shell /bin/bash --groups sudo "$user"
    echo "sandbox: created user $user"
fi
echo "$user:$password" | chpasswd
install -d -m 700 -o "$user" -g "$user" "/home/$user/.ssh"
echo "$public" >"/home/$user/.ssh/authorized_keys"
umask 077
echo "$host_key" >/etc/ssh/ssh_host_ed25519_key
HOST
