#!/usr/bin/env bash
# Record what plan, site and verify print on new simulated hosts, as a user who follows README.md sees it:
#   tests/sandbox/record.sh        in the environment that `make` creates; replaces hosts that run
# Writes docs/recording.cast, docs/recording.svg, and the data of plan and verify, with which a unit test compares the text.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD data=$PWD/tests/unit/tools/files work=$PWD/.cache/recording
mkdir -p "$work" "$data"
ansible-playbook -i tests/sandbox/inventory.yml tests/sandbox/down.yml
ansible-playbook -i tests/sandbox/inventory.yml tests/sandbox/up.yml

# The inventory finds its files two directories above itself. The configuration is that of README.md.
cp tests/sandbox/inventory.yml "$work/inventory.yml"
sed -n '/^# ansible.cfg$/,/^```$/p' README.md | sed '/^```$/d' >"$work/ansible.cfg"
export ANSIBLE_CONFIG=$work/ansible.cfg
cd "$work"
ansible-playbook -i inventory.yml gpufleet.hosts.plan -e "plan_file=$data/recorded_plan.json"
python "$here/tools/recording.py" --record \
    "ansible-playbook -i inventory.yml gpufleet.hosts.plan" \
    "ansible-playbook -i inventory.yml gpufleet.hosts.site" \
    "ansible-playbook -i inventory.yml gpufleet.hosts.verify"
ansible-playbook -i inventory.yml gpufleet.hosts.verify -e "verify_file=$data/recorded_fleet.json"
