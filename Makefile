# The commands for contributors. `make help` lists them. CI runs `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

PYTHON ?= python3
SCENARIO ?= default
ALL ?=
INVENTORY ?= tests/sandbox/inventory.yml
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
COLLECTION := $(CURDIR)/.ansible/collections/ansible_collections/gpufleet/hosts

export PATH := $(BIN):$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/.ansible/collections
export MOLECULE_GLOB := molecule/*/molecule.yml
# A UTF-8 locale that every machine has. Ansible requires UTF-8.
export LC_ALL := C.UTF-8
export LANG := C.UTF-8
# Some environments set it. The tests start Ansible hundreds of times, and each start would compile the collection again.
unexport PYTHONDONTWRITEBYTECODE

##@ Demo
.PHONY: demo
demo: sandbox ## Start simulated GPU hosts, run playbooks/site.yml and print a table of the fleet
	@python tests/sandbox/demo.py --inventory $(INVENTORY)

.PHONY: sandbox-up
sandbox-up: sandbox ## Start the simulated hosts without configuring them
	@ansible-playbook -i $(INVENTORY) tests/sandbox/up.yml

.PHONY: sandbox-down
sandbox-down: setup ## Remove the simulated hosts and their data
	@ansible-playbook -i $(INVENTORY) tests/sandbox/down.yml

##@ Test
# The scenario mostly waits for package managers and compilers, so the other tests run beside it.
.PHONY: test
test: sandbox ## Run the tests of CI: lint, unit tests, test tools, AWS, sanity tests, the solvers and the default scenario
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target molecule static solver

# One after the other, so that the scenario starts at once.
.PHONY: static
static: setup ## Run the tests that need no simulated host: lint, unit tests, test tools, AWS and sanity tests
	@for target in lint unit selftest aws sanity; do $(MAKE) --no-print-directory "$$target"; done

.PHONY: lint
lint: setup ## Run ansible-lint, ruff and yamllint; check the changelog, the documentation and the tarball
	@ruff check .
	@ruff format --check .
	@yamllint --strict .
	@python tools/ansible_lint.py --offline --strict
	@antsibull-changelog lint
	@antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs self .
	@python tools/role_readme.py --check
	@python tools/platform_pages.py --check
	@python tools/diagram.py --check
	@python tools/recording.py --check
	@python tools/release_check.py

.PHONY: unit
unit: setup ## Run the unit tests of the collection
	@tools/unit.sh tests/unit $(addprefix --ignore=,$(SELFTEST))

# The folders with tests of test tools, and of what only contributors run.
SELFTEST := $(addprefix tests/unit/,benchmark drift gpu pages/test_pages.py sandbox solver tools)
.PHONY: selftest
selftest: setup ## Run the unit tests of the test tools: simulator, solver matrix, drift test, benchmark, acceptance test, tools/
	@tools/unit.sh $(SELFTEST)

.PHONY: aws
aws: setup ## Test the inventory and the playbooks for AWS against a local API of EC2
	@tools/unit.sh tests/aws

.PHONY: kubernetes
kubernetes: setup ## Test role gpu_kubernetes_cluster and the drain of a node against a real API server, which the first run builds
	@tests/kubernetes/run.sh

.PHONY: solver
solver: sandbox ## Check the plans for all platforms with the real apt, dnf and zypper over indexes of the vendors' archives
	@tests/sandbox/images/build.sh debian12 localhost/gpufleet-sandbox:debian12
	@python tests/solver/run.py

.PHONY: sanity
sanity: setup ## Run ansible-test sanity on a copy of the tracked files
	@tools/ansible_test.sh

.PHONY: cores
cores: setup ## Run the tests that need Ansible with every supported ansible-core (with ALL=1 also what unit tests)
	@ALL=$(ALL) tools/cores.sh

.PHONY: molecule
molecule: sandbox ## Run one Molecule scenario, or several: make molecule SCENARIO=default,engine
	@tools/molecule.sh $(SCENARIO)

.PHONY: molecule-all
molecule-all: sandbox ## Run all Molecule scenarios on one fleet
	@tools/molecule.sh

BASE ?= origin/main
.PHONY: affected
affected: sandbox ## Run what the change since BASE can affect, by tests/affected.yml: make affected BASE=origin/main
	@python tools/affected.py --base $(BASE)

.PHONY: nightly
nightly: ## Run everything on new hosts with empty caches, or continue an interrupted run (hours)
	@tools/nightly.sh

.PHONY: bench
bench: sandbox ## Compare a converged run with fact gathering and with usual roles, and measure large fleets
	@ansible-playbook -i $(INVENTORY) -i tests/benchmark/ssh.yml tests/sandbox/up.yml
	@python tests/benchmark/run.py --inventory $(INVENTORY) --inventory tests/benchmark/ssh.yml

##@ Real GPUs
.PHONY: gpu-bundle
gpu-bundle: setup ## Create the bundle that gpu-acceptance needs on a host without network access
	@python tests/gpu/make_bundle

.PHONY: gpu-acceptance
gpu-acceptance: ## Test the collection on the real NVIDIA GPUs of this machine; changes no GPU setting
	@$(PYTHON) tests/gpu/run

.PHONY: gpu-benchmark
gpu-benchmark: ## Run playbook benchmark on the real NVIDIA GPUs of this machine, and write docs/benchmark.md and its chart
	@$(PYTHON) tests/gpu/benchmark

##@ Release
.PHONY: docs
docs: setup ## Update the tables of variables in the README files of the roles, docs/platforms and the pictures
	@python tools/role_readme.py
	@python tools/platform_pages.py
	@python tools/diagram.py
	@python tools/recording.py

.PHONY: release-check
release-check: setup ## Build the tarball, check it with galaxy-importer, install it and use it
	@python tools/release_check.py --install

##@ Housekeeping
.PHONY: setup
setup: $(VENV)/.made $(COLLECTION) ## Create the Python environment and the path of the collection

$(VENV)/.made: requirements-dev.txt tools/venv.sh
	@tools/venv.sh $(VENV) $(PYTHON)
	@touch $@

$(COLLECTION):
	@mkdir -p $(dir $@)
	@ln -sfn ../../../.. $@

.PHONY: sandbox
sandbox: preflight setup
	@tests/sandbox/engine.sh

.PHONY: preflight
preflight:
	@tests/sandbox/preflight.sh

.PHONY: clean
clean: ## Remove the simulated hosts, their images and everything that make created
	@tools/clean.sh

.PHONY: help
help: ## List the commands
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
