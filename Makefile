# Needs Python 3.10 or newer, make and git; everything else goes into .venv. Works as root and as a plain user.
PYTHON ?= python3
VENV ?= .venv
QUICKSTART := notebooks/01-quickstart.ipynb
# Test files that run side by side, for a machine with more processors: make test JOBS=4
JOBS ?= 0
# More arguments for pytest, or for Jupyter: make test ARGS="-k policy", make lab ARGS="--no-browser --port 9999"
ARGS ?=
# And for the benchmarks: make bench BENCH=--quick
BENCH ?=

SHELL := /bin/sh
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PANEL := ipysandbox/labextension/package.json
PANEL_SOURCES := package.json yarn.lock $(shell find labextension -type f -not -path 'labextension/lib/*' -not -name '*.tsbuildinfo' -not -path 'labextension/test/*' -not -path 'labextension/pictures/*')
SOURCES := pyproject.toml README.md LICENSE $(PANEL_SOURCES) $(shell find ipysandbox -type f -not -path 'ipysandbox/labextension/*' -not -path '*/__pycache__/*' -not -name _version.py)

# What went wrong in a long log, which need not be at its end: yarn's errors (YN0001) and everybody's "…Error: …".
define show_failure
{ { grep -hE 'YN0001|[Ee]rror:|ERR!' $(1) || tail -n 20 $(1); } | awk '!seen[$$0]++' | tail -n 20; \
  grep -qi certificate $(1) && echo 'A certificate was not accepted. Behind a proxy that has its own: export NODE_EXTRA_CA_CERTS=/path/to/its.pem'; \
  echo '$(2) failed; all of its output is in $(1)'; } >&2
endef

.PHONY: help demo test test-python test-panel lab lint bench clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo    run $(QUICKSTART) in real sandboxes, then write demo/quickstart.html'
	@echo 'make lab     open it in JupyterLab, with the panel "Sandboxes" at the right (ARGS="--no-browser --port 9999")'
	@echo 'make test    run all tests that can run as you (ARGS="-k policy" for some of them)'
	@echo 'make lint    check style and types of the Python and TypeScript code'
	@echo 'make bench   print the benchmarks, against what is installed here'
	@echo 'make clean   remove the environment and everything that was built'
	@echo 'PYTHON=python3.12 chooses another Python than $(PYTHON); it has to be 3.10 or newer.'

demo: $(VENV)/.demo
	@$(BIN)/python -m ipysandbox.demo $(QUICKSTART)

# Jupyter refuses to run as root unless told that it is meant.
# Not as the file to open: only a browser that Jupyter starts itself would come to it, and not who follows the printed address.
lab: $(VENV)/.demo
	IPYSANDBOX_PANEL=open $(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --LabApp.default_url=/lab/tree/$(QUICKSTART) $(ARGS)

test: test-panel test-python

# As `pytest`, not `python -m pytest`: what is tested is the installed package.
test-python: $(VENV)/.test
	$(BIN)/pytest -n $(JOBS) --dist loadfile --nbval-lax --nbval-current-env --nbval-cell-timeout=120 $(ARGS) tests notebooks

test-panel: $(VENV)/.panel
	PATH="$(CURDIR)/$(BIN):$$PATH" jlpm run test

lint: $(VENV)/.lint $(VENV)/.panel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" jlpm run lint

bench: $(VENV)/.test
	$(BIN)/python tests/benchmarks $(BENCH)

clean:
	rm -rf $(VENV) dist node_modules .yarn demo labextension/lib ipysandbox/labextension ipysandbox/_version.py
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "ipysandbox needs Python 3.10 or newer, and '$(PYTHON)' is `$(PYTHON) --version 2>&1 || true`." >&2; \
	  echo "Name another one: make PYTHON=python3.12 demo" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { \
	  echo "'$(PYTHON)' can't make virtual environments: its modules venv or ensurepip are missing." >&2; \
	  echo "On Debian and Ubuntu: sudo apt install python3-venv. Or name another Python: make PYTHON=python3.12 demo" >&2; exit 1; }
	@echo 'Making the environment $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@# Older ones copy the whole folder, environment included, before they build.
	@$(PIP) install -qq 'pip>=21.3'
	@touch $@

# The built panel is kept by the build when it is there, so a stale one has to go first.
dist/.built: $(SOURCES) $(VENV)/.made
	@echo 'Building ipysandbox and its JupyterLab panel (a minute the first time)'
	@rm -rf dist
	@if [ -e $(PANEL) ] && [ -n "$$(find $(PANEL_SOURCES) -newer $(PANEL))" ]; then rm -rf ipysandbox/labextension; fi
	@$(PIP) wheel --no-deps --wheel-dir dist . >$(VENV)/build.log 2>&1 || { \
	  $(call show_failure,$(VENV)/build.log,The build); exit 1; }
	@touch $@

# A plain install, not an editable one: the code that is tested or guards a demo is a copy that nothing in this folder can change.
$(VENV)/.demo $(VENV)/.test $(VENV)/.lint: $(VENV)/.%: dist/.built
	@echo 'Installing ipysandbox[$*] into $(VENV)'
	@$(PIP) install -qq --force-reinstall --no-deps dist/*.whl
	@$(PIP) install -qq "`echo dist/*.whl`[$*]"
	@touch $@

$(VENV)/.panel: dist/.built
	@echo 'Installing what tests the panel'
	@$(PIP) install -qq "`echo dist/*.whl`[panel]"
	@PATH="$(CURDIR)/$(BIN):$$PATH" jlpm install --immutable >$(VENV)/panel.log 2>&1 || { \
	  $(call show_failure,$(VENV)/panel.log,Installing it); exit 1; }
	@touch $@
