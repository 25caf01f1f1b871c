# `make demo` and `make test` need Python 3.11 and make; everything else they fetch themselves, once.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo demo-full docs commits changelog release check test test-all test-failed test-slowest coverage setup lint types contracts crash-driver crash-backfill fuzz-broker bench-backfill bench-broker bench-nexmark bench-operators bench-queues bench-streams clean
.DEFAULT_GOAL := test

setup: $(STAMP)  ## The environment, the jars and (if the machine has none) a Java
	@$(BIN)/headwater setup

$(STAMP): pyproject.toml constraints.txt .ci/make-venv tools/install.py broker/build_extension.py broker/headwater_broker/log/_records.c
	@.ci/make-venv "$(PYTHON)" "$(VENV)"
	@touch $@

demo-full: setup  ## The same over two clusters: a mirror, a schema registry, producers' counts, checks that break, alarms
	@$(BIN)/headwater demo --full --home .headwater-full $(ARGS)

demo: setup  ## The flights of one month, from events to Delta tables, rebuilt by a backfill and proved
	@$(BIN)/headwater demo $(ARGS)

# The lanes, see docs/contributing/testing.md. PARTS of `test-all` are folders of tests/ and of tests/spark/; ARGS are options of pytest.
PYTEST    := $(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder
ALL_PARTS := unit property docs clients jobs backfill operators sources tables cluster kafka crash fuzz e2e
PARTS     ?= $(ALL_PARTS)
LANE      ?= test
paths      = $(foreach part,$(1),$(wildcard tests/$(part) tests/spark/$(part)))
$(if $(filter-out $(ALL_PARTS),$(PARTS)),$(error there is no part '$(filter-out $(ALL_PARTS),$(PARTS))'; there are $(ALL_PARTS)))
$(if $(filter-out check test all,$(LANE)),$(error there is no lane '$(LANE)'; there are check, test and all))

check: setup lint types contracts commits  ## Minutes: what needs no Spark, for each change
	@$(PYTEST) --lane check $(call paths,unit property docs) $(ARGS)

test: setup lint types contracts  ## Half an hour: the story of each capability once, for each push
	@$(PYTEST) --lane test --durations 10 tests $(ARGS)

test-all: setup lint types contracts  ## An hour and a half: everything; PARTS="backfill clients" runs some parts of it
	@$(PYTEST) --durations 10 $(call paths,$(PARTS)) $(ARGS)

test-failed: setup  ## What failed in the last run, alone; LANE=all where that was test-all's
	@$(BIN)/python -m pytest --lane $(LANE) --last-failed --last-failed-no-failures none tests $(ARGS)

test-slowest: $(STAMP)  ## The slowest tests of the last runs, and what they waited for; ARGS=10 prints so many
	@$(BIN)/python tests/support/times.py $(ARGS)

coverage: setup  ## Branch coverage of a lane with its child processes, by package; LANE=all for everything
	@.ci/coverage $(BIN) $(LANE)

docs: $(STAMP)  ## The documentation as pages that open without a network, in build/docs; fails on any warning
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/docs/index.html"

lint: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy && $(BIN)/mypy --config-file tests/mypy.ini tests tools

contracts: $(STAMP)
	@$(BIN)/lint-imports

commits: $(STAMP)  ## The subjects of the commits since the last release
	@$(BIN)/python tools/commits.py

changelog: $(STAMP)  ## What changes/ has becomes the section of the code's version in CHANGELOG.md
	@$(BIN)/towncrier build --yes

release: setup  ## The wheel and the sdist, checked; the demo from the wheel in an empty environment (ARGS="--draft --days 4")
	@$(BIN)/python tools/release.py $(ARGS)

crash-driver: setup  ## kill -9 of the driver of running jobs, 100 times, at each step of a batch and at random instants
	@HEADWATER_DRIVER_KILLS=$${HEADWATER_DRIVER_KILLS:-100} $(BIN)/python -m pytest tests/crash/test_driver_kill.py -s --timeout 0 $(ARGS)

crash-backfill: setup  ## kill -9 of backfills 100 times, at each step of repairs, rebuilds and rewinds and at random instants
	@HEADWATER_BACKFILL_KILLS=$${HEADWATER_BACKFILL_KILLS:-100} $(BIN)/python -m pytest tests/crash/test_backfill_kill.py -s --timeout 0 $(ARGS)

fuzz-broker: setup  ## The broker's wire protocol fuzzed at every API and version for an hour (MINUTES=5: five); new sessions go to tests/fuzz/corpus
	@HEADWATER_FUZZ_S=$$(( $${MINUTES:-60} * 60 )) $(BIN)/python -m pytest tests/fuzz -k random -s --timeout 0 $(ARGS)

bench-streams: setup  ## Rows/s beside plain PySpark, produce-to-table times, the demo's time, as JSON
	@$(BIN)/python tests/bench/streams.py --demo $(ARGS)

bench-nexmark: setup  ## Nexmark through the library, in plain PySpark and in Apache Flink (from PyPI and Maven), compared row by row
	@PYTHONPATH=tests/bench $(BIN)/python -m nexmark $(ARGS)

bench-operators: setup  ## Deduplication by offset, row checks and batches of one record, beside plain PySpark, as JSON and tables
	@PYTHONPATH=tests/bench $(BIN)/python -m operators $(ARGS)

bench-backfill: setup  ## Backfills beside the live job and a query written by hand, plans, and swaps of 10 GB, as JSON and tables
	@PYTHONPATH=tests/bench $(BIN)/python -m backfill $(ARGS)

bench-broker: setup  ## The broker beside Apache Kafka (from Maven) under a raw load, as JSON and a table: ARGS=--write puts it into docs/
	@$(BIN)/python tests/bench/beside_kafka.py $(ARGS)

bench-queues: setup  ## The Kafka paper's workload beside Apache Kafka, RabbitMQ (Debian's) and ActiveMQ: ARGS=--write puts it into docs/
	@PYTHONPATH=tests/bench:tests/support $(BIN)/python -m queues $(ARGS)

clean:
	rm -rf $(VENV) .headwater .headwater-full dist build
