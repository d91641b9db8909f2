# Everything a contributor runs. `make help` lists it; CI calls `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

PYTHON ?= python3
SCENARIO ?= default
INVENTORY ?= tests/sandbox/inventory.yml
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
COLLECTION := $(CURDIR)/.ansible/collections/ansible_collections/gpufleet/hosts

export PATH := $(BIN):$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/.ansible/collections
export MOLECULE_GLOB := molecule/*/molecule.yml
# A locale that every machine has; Ansible refuses a non-UTF-8 one.
export LC_ALL := C.UTF-8
export LANG := C.UTF-8

##@ Try it
.PHONY: demo
demo: sandbox ## Simulated GPU hosts, provisioned by playbooks/site.yml, and a table of the fleet
	@python tests/sandbox/demo.py --inventory $(INVENTORY)

.PHONY: sandbox-up
sandbox-up: sandbox ## Bring up the simulated hosts and leave them bare
	@ansible-playbook -i $(INVENTORY) tests/sandbox/up.yml

.PHONY: sandbox-down
sandbox-down: setup ## Remove the simulated hosts and what is in them
	@ansible-playbook -i $(INVENTORY) tests/sandbox/down.yml

##@ Test it
.PHONY: test
test: lint unit sanity molecule ## What CI runs: lint, unit tests, sanity, the default scenario from bare hosts

.PHONY: lint
lint: setup ## ansible-lint (production), ruff, yamllint, the changelog, the documentation, the tarball
	@ruff check .
	@ruff format --check .
	@yamllint --strict .
	@ansible-lint --offline --strict
	@antsibull-changelog lint
	@antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs self .
	@python tools/role_readme.py --check
	@python tools/release_check.py

.PHONY: unit
unit: setup ## Unit tests
	@cd $(COLLECTION) && python -m pytest tests/unit

.PHONY: sanity
sanity: setup ## ansible-test sanity, on a copy of the tracked files
	@tools/ansible_test.sh

.PHONY: molecule
molecule: sandbox ## One scenario: make molecule SCENARIO=default
	@tools/molecule.sh $(SCENARIO)

.PHONY: molecule-all
molecule-all: sandbox ## Every scenario in turn on one fleet
	@tools/molecule.sh

.PHONY: bench
bench: sandbox ## Cost of a converged run, module latency, fleet scale
	@ansible-playbook -i $(INVENTORY) tests/sandbox/up.yml
	@python tests/benchmark/run.py --inventory $(INVENTORY)

##@ Real GPUs
.PHONY: gpu-bundle
gpu-bundle: setup ## What a GPU host without a package registry needs for gpu-acceptance
	@python tests/gpu/make_bundle

.PHONY: gpu-acceptance
gpu-acceptance: ## The collection against this machine's real NVIDIA GPUs; changes no setting of a card
	@$(PYTHON) tests/gpu/run

##@ Release it
.PHONY: docs
docs: setup ## Update the tables of variables in the README files of the roles
	@python tools/role_readme.py

.PHONY: release-check
release-check: setup ## Build the tarball, check it with galaxy-importer, install it and use it
	@python tools/release_check.py --install

##@ Housekeeping
.PHONY: setup
setup: $(VENV)/.made $(COLLECTION) ## The Python environment and the collection's place

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
clean: ## Remove the simulated hosts, their images and all that make made here
	@tools/clean.sh

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
