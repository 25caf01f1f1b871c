# `make demo` and `make test` need Python 3.11 and make; everything else they fetch themselves, once.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test setup lint types contracts unit property clients spark crash crash-driver crash-backfill e2e docs bench-backfill bench-broker bench-nexmark bench-operators bench-streams clean
.DEFAULT_GOAL := test

setup: $(STAMP)  ## The environment, the jars and (if the machine has none) a Java
	@$(BIN)/headwater setup

$(STAMP): pyproject.toml constraints.txt .ci/make-venv
	@.ci/make-venv "$(PYTHON)" "$(VENV)"
	@touch $@

demo: setup  ## The flights of one month, from events to Delta tables, rebuilt by a backfill and proved
	@$(BIN)/headwater demo $(ARGS)

test: setup lint types contracts
	@$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder $(addprefix tests/,unit property docs clients spark crash e2e) $(ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy && $(BIN)/mypy --config-file tests/mypy.ini tests

contracts: $(STAMP)
	@$(BIN)/lint-imports

unit property docs clients spark crash e2e: setup
	@$(BIN)/python -m pytest tests/$@ $(ARGS)

crash-driver: setup  ## kill -9 of the driver of running jobs, 100 times, at each step of a batch and at random instants
	@HEADWATER_DRIVER_KILLS=$${HEADWATER_DRIVER_KILLS:-100} $(BIN)/python -m pytest tests/crash/test_driver_kill.py -s --timeout 0 $(ARGS)

crash-backfill: setup  ## kill -9 of backfills 100 times, at each step of repairs, rebuilds and rewinds and at random instants
	@HEADWATER_BACKFILL_KILLS=$${HEADWATER_BACKFILL_KILLS:-100} $(BIN)/python -m pytest tests/crash/test_backfill_kill.py -s --timeout 0 $(ARGS)

bench-streams: setup  ## Rows/s beside plain PySpark, produce-to-table times, the demo's time, as JSON
	@$(BIN)/python tests/bench/streams.py --demo $(ARGS)

bench-nexmark: setup  ## Nexmark through the library, in plain PySpark and in Apache Flink (from PyPI and Maven), compared row by row
	@PYTHONPATH=tests/bench $(BIN)/python -m nexmark $(ARGS)

bench-operators: setup  ## Deduplication by offset, row checks and batches of one record, beside plain PySpark, as JSON and tables
	@PYTHONPATH=tests/bench $(BIN)/python -m operators $(ARGS)

bench-backfill: setup  ## Backfills beside the live job and a query written by hand, plans, and swaps of 10 GB, as JSON and tables
	@PYTHONPATH=tests/bench $(BIN)/python -m backfill $(ARGS)

bench-broker: setup  ## The broker beside Apache Kafka (from Maven) under a raw load: rates and CPU a request, as JSON and a table
	@$(BIN)/python tests/bench/beside_kafka.py $(ARGS)

clean:
	rm -rf $(VENV) .headwater dist build
