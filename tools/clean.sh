#!/usr/bin/env bash
# Remove everything that make created: simulated hosts, their images and volumes, caches and the Python environment. Keep
# the Docker Engine, because other programs may use it.
set -euo pipefail
cd "$(dirname "$0")/.."

if docker version >/dev/null 2>&1; then
    docker ps -aq --filter label=gpufleet.sandbox | xargs -r docker rm -fv >/dev/null
    docker images -q --filter 'reference=localhost/gpufleet-*' | sort -u | xargs -r docker rmi -f >/dev/null
fi
rm -rf .cache .ansible .venv .pytest_cache .ruff_cache tests/output tests/gpu/bundle
find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
