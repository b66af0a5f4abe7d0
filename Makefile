# Every target sets up what it needs, on a machine that has Python >= 3.11 with venv, and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DOCKER ?= docker
LOCKS := requirements/uv.txt pyproject.toml
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# Names no host, so that an environment's own index serves it.
LOCK := UV_NATIVE_TLS=1 $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	--custom-compile-command "make lock" --output-file
# A test that failed next to others fails the run only if it fails alone as well (docs/testing.md).
ALONE = { test $$? -eq 1 && echo "Once more, alone, what failed:" && $(BIN)/python -m pytest \
	--last-failed --last-failed-no-failures none -r fEp; }
# Python keeps what it compiles, also where the environment says otherwise: the tests start hundreds of
# processes, and compiling is half of a gateway's start.
export PYTHONDONTWRITEBYTECODE :=
ifndef LAKELOG_SEED
LAKELOG_SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
endif

.DEFAULT_GOAL := help
.PHONY: help demo setup test quick touched check format torture simulate bench soak dist image site lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.demo ## Stream 336,776 real flights through the log and check every one
	$(BIN)/lakelog demo

setup: $(VENV)/.dev ## Everything that the tests need: packages, a JRE, Delta's jars, an S3 server
	@$(BIN)/python scripts/tools.py

test: check ## All that CI runs: check, the tests, the package in an environment of its own, the site
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder || $(ALONE)
	@$(MAKE) --no-print-directory dist site

quick: setup ## The tests of single parts: no process, no JVM, no S3, no kills
	$(BIN)/python -m pytest --quick --ignore=tests/system --numprocesses 2 --dist worksteal --quiet -r fE

touched: setup ## The tests of what has changed since origin/main, and of its importers
	$(BIN)/python scripts/touched.py

check: setup ## Format, lint, prose, types and import directions
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python scripts/prose.py
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev ## Format code and pages, and fix what can be fixed
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	$(BIN)/python scripts/wrap.py *.md docs/*.md docs/decisions/*.md

torture: setup .tools/programs/.made ## The long versions of the tests that break things; LAKELOG_SEED=n repeats a run
	@$(BIN)/python scripts/tools.py --torture
	@$(BIN)/python -m scripts.programs
	LAKELOG_SEED=$(LAKELOG_SEED) $(BIN)/python -m pytest -m torture \
		--hypothesis-profile=torture --hypothesis-seed=$(LAKELOG_SEED)
	$(BIN)/python -m pytest tests/api tests/lakelog/client --secured --numprocesses 2 --dist loadfile

simulate: setup ## Simulated clusters, by seed; ARGS='--minutes 60', or '--seed N' for one again
	$(BIN)/python -m tests.simulation $(ARGS)

bench: $(VENV)/.dev ## This project beside its peers
	$(BIN)/python -m bench $(ARGS)

soak: setup ## An hour on S3 while gateways and store die; ARGS='--minutes 2' for a trial
	$(BIN)/python -m bench.soak $(ARGS)

dist: $(VENV)/.dev .tools/dist/.made ## Wheel and source archive in dist/, checked as a registry would, and installed
	@rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	.tools/dist/bin/twine check --strict dist/*
	.tools/dist/bin/check-wheel-contents dist/*.whl
	$(BIN)/python scripts/check_wheel.py dist/*.whl

image: ## The image of deploy/image, by docker or what DOCKER names
	$(DOCKER) build --file deploy/image/Dockerfile --tag lakelog:$(VERSION) .

site: .tools/site/.made ## The pages as a site with a search, in build/site/html; ARGS=FOLDER adds this version to a site
	.tools/site/bin/python scripts/site.py $(ARGS)

lock: $(VENV)/.dev ## Resolve the locked versions anew
	$(LOCK) requirements/dev.txt pyproject.toml --all-extras --group dev
	$(LOCK) requirements/demo.txt pyproject.toml --extra demo --group build --constraints requirements/dev.txt
	$(LOCK) requirements/image.txt pyproject.toml --group build --constraints requirements/dev.txt
	$(LOCK) requirements/dist.txt --group dist
	$(LOCK) requirements/programs.txt --group programs
	$(LOCK) requirements/site.txt --group site
	$(LOCK) requirements/uv.txt --group uv

clean: ## Remove what the other targets made, and no tables
	rm -rf $(VENV) .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build/site

$(VENV)/.demo: requirements/demo.txt $(LOCKS)
	$(PYTHON) scripts/setup.py $(VENV) demo
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(LOCKS)
	$(PYTHON) scripts/setup.py $(VENV) dev
	@touch $@ $(VENV)/.demo

.tools/%/.made: requirements/%.txt | $(VENV)/.dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .tools/$*
	UV_NATIVE_TLS=1 $(BIN)/uv pip install --quiet --require-hashes --python .tools/$* --requirement $<
	@touch $@
