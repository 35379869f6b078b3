# Two commands matter on a fresh machine: `make run` and `make test`. Both set everything up in .venv first, and do
# nothing twice. pip's own configuration is honoured as it is.
#
#   make run                                  the quickstart
#   make run CONF=gsm8k ARGS="run.steps=20"   any configuration, any keys
#   make install TARGET=gpu                   for NVIDIA GPUs
#   make install PYTHON=python3.12            another interpreter

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

TARGET ?= cpu
CONF ?= quickstart
ARGS ?=
PYTEST_ARGS ?=
# The first interpreter that will do.
PYTHON ?= $(shell for python in python3 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null \
	&& echo $$python && break; done)

VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.done
PIP := $(BIN)/python -m pip --disable-pip-version-check
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help install run test lint format clean

help:
	@sed -n '1,/^SHELL/{/^#/s/^# \{0,1\}//p}' Makefile

install: $(DONE)/package-$(TARGET)

run: install
	@exec $(BIN)/python -m rlvr.launch conf=$(CONF) $(ARGS)

test: lint
	@$(BIN)/python -m pytest $(PYTEST_ARGS) tests/unit tests/integration

lint: install $(DONE)/dev
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install $(DONE)/dev
	@$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# Every step below leaves a stamp, and runs again only when its list changes.

$(DONE)/machine:
	@bash requirements/check_machine.sh "$(PYTHON)" "$(TARGET)"
	echo "Setting up $(CURDIR)/$(VENV), target $(TARGET), with $$($(PYTHON) --version)."
	echo "To download: torch (200 MB where pip finds a CPU build, else several GB for the CUDA build), then"
	case "$(TARGET)" in
	gpu) echo "vLLM for CUDA and the rest, several GB more. Keep 25 GB of disk free." ;;
	*) echo "vLLM for CPU, Ray, DeepSpeed, a model of 98 MB and the rest, 600 MB. Keep 4 GB of disk free, 10 GB with CUDA." ;;
	esac
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	mkdir -p $(DONE)
	touch $@

$(DONE)/torch: requirements/torch.txt | $(DONE)/machine
	@$(PIP) install -r requirements/torch.txt
	touch $@

# --no-deps: the list is complete, and the resolver would bring builds that break torch (see requirements/common.txt).
$(DONE)/$(TARGET): requirements/$(TARGET).txt requirements/common.txt $(DONE)/torch
	@other=$(DONE)/$(if $(filter gpu,$(TARGET)),cpu,gpu)
	if test -e $$other; then echo "$(VENV) is set up for $${other##*/}: run 'make clean' first" >&2; exit 2; fi
	$(PIP) install --no-deps --no-build-isolation -r requirements/$(TARGET).txt
	touch $@

$(DONE)/dev: requirements/dev.txt $(DONE)/torch
	@$(PIP) install --no-deps -r requirements/dev.txt
	touch $@

$(DONE)/package-$(TARGET): pyproject.toml rlvr/__init__.py $(DONE)/$(TARGET)
	@$(PIP) install --no-deps --no-build-isolation -e .
	if [ $(TARGET) = gpu ]; then $(BIN)/python -c 'import sys, torch; sys.exit(None if torch.version.cuda else \
	"torch is a build without CUDA: let pip find the CUDA build, then make clean and install again")'; fi
	touch $@
