# `make demo` and `make test` set up everything they need from a fresh clone.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-systems test-long test-matrix lint bench papers peers scale lock clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Spark's workers use this environment's Python, and the local host whatever its name.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
export SPARK_LOCAL_IP ?= 127.0.0.1
WITH_JAVA = JAVA_HOME="$$(scripts/java.sh)" && export JAVA_HOME &&

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## virtual environment, locked dependencies, Java
	@$(WITH_JAVA) echo "Ready: $$($(BIN)/python --version), Java in $$JAVA_HOME"

# The build tools come first and by hash too, so that pyspark (a source distribution) and this package
# are built with them instead of with whatever a build environment would download.
$(READY): requirements/build.txt requirements/lock.txt pyproject.toml
	@scripts/venv.sh $(PYTHON) $(VENV)
	@echo "Installing the locked dependencies (Spark is 450 MB: a few minutes the first time) ..."
	@$(PIP) install --require-hashes -r requirements/build.txt
	@$(PIP) install --require-hashes --no-build-isolation --use-pep517 -r requirements/lock.txt
	@$(PIP) install --no-index --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## the news join on local Spark: plan, rows, state over time
	@$(WITH_JAVA) $(BIN)/streamjoin demo news

# Two workers; the tests that share a Spark session share one of them.
PYTEST = $(WITH_JAVA) $(BIN)/pytest -n 2 --dist loadgroup

test: lint ## every check, then the tests without servers (10 minutes on two cores)
	@echo "Tests ..."
	@$(PYTEST) -m "not systems and not slow"

test-systems: setup ## the tests with servers, killed processes and new environments (20 minutes)
	@$(PYTEST) -m "systems and not slow" tests

test-long: setup ## more seeds and schedules of both (hours)
	@$(WITH_JAVA) $(BIN)/pytest -m slow tests

# Each version of Spark that is supported, and the Python that its tests run on.
MATRIX ?= 4.0.1:3.11 4.1.1:3.12 4.2.0:3.13 4.3.0:3.11
test-matrix: ## the Spark tests on each supported version, and checkpoints from one to the next (an hour)
	@scripts/matrix.sh $(MATRIX)

lint: setup ## style, types, and who imports whom
	@echo "Style, types, layers ..."
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

bench: setup ## is anything slower than at the last release? (RELEASE=1: store the result as that of one)
	@$(WITH_JAVA) $(BIN)/python -m lab bench $(if $(RELEASE),--store)

papers: setup ## the four papers replayed, with a report (QUICK=1: the short form)
peers: setup ## beside Spark, Flink and bytewax, with a report (QUICK=1: the short form)
scale: setup ## as state, keys and buckets grow, with a report (QUICK=1: the short form)
papers peers scale:
	@$(WITH_JAVA) $(BIN)/python -m lab run $@ $(if $(QUICK),--quick)

# An environment of its own, so that pip-tools does not meet what it locks. The old files are the start: hashes known are kept.
# The extras name each other as streamjoin[...]: the package itself is left out of its own lock, and so is
# the warning that it is.
PIP_COMPILE = .venv-lock/bin/pip-compile --quiet --generate-hashes --strip-extras --no-header \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host
lock: ## lock the versions again (UPGRADE=1: take the newest)
	@scripts/venv.sh $(PYTHON) .venv-lock
	@.venv-lock/bin/python -m pip --quiet --disable-pip-version-check install pip-tools==7.6.2
	@echo "Locking (a minute; seven when every hash is new) ..."
	@$(PIP_COMPILE) $(if $(UPGRADE),--upgrade) --allow-unsafe --only-build-deps --build-deps-for editable \
		-o requirements/build.txt pyproject.toml
	@$(PIP_COMPILE) $(if $(UPGRADE),--upgrade) --extra dev --unsafe-package streamjoin \
		-o requirements/lock.txt pyproject.toml
	@sed -i '/^# WARNING/,$$d; /^$$/d' requirements/lock.txt

clean: ## remove the environments, caches and outputs
	rm -rf .venv .venv-lock .matrix .peers build dist out src/*.egg-info .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -prune -exec rm -rf {} +
