# Everything on a fresh machine, as root: `make campaign` and `make test`.
VENV    := .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
export TESTCONTAINERS_RYUK_DISABLED := true
export DOCKER_BUILDKIT := 0

.PHONY: help setup engine campaign test test-all check unit spark cluster fmt lock docs bench bench-check bench-mirror classes clean

help:
	@echo "make campaign   install what is missing, run the default campaign on real clusters, print the verdict"
	@echo "make test       install what is missing, run the tests: units, Spark, and some of each sort on real containers"
	@echo "make test-all   the same with the long ones on real containers"
	@echo "make check      lint, types, unit tests (no engine, no Spark)"
	@echo "make bench      measure provisioning, recording and checking; make bench-check: the checks alone,"
	@echo "                make bench-mirror: the mirrors side by side (half an hour)"
	@echo "                (BENCH=\"--large --logs\": also ten million lines, and ten million records of logs)"
	@echo "make docs       write the generated pages of docs/ again"

setup: $(READY)

$(READY): requirements.lock pyproject.toml harness/setup.sh
	sh harness/setup.sh $(VENV)
	@touch $(READY)

engine: setup
	$(BIN)/shatter doctor --fix
	@nohup nice $(BIN)/python -m checkers.judge.make_class_archive >/dev/null 2>&1 &

classes: setup
	@$(BIN)/python -m checkers.judge.make_class_archive

campaign: engine
	$(BIN)/shatter images
	$(BIN)/shatter campaign $(CAMPAIGN)

# Building images and most tests on real clusters mostly wait: `make check` runs in parallel with the images, the Spark
# tests (two processes of two gigabytes each) with the cluster tests. Tests that race with Kafka's time-outs run alone.
RACES := tests/cluster/test_nemeses.py tests/cluster/test_append_faults.py
SLOWEST := --durations=25 --durations-min=5
CHOSEN := -m 'not long'
test: engine
	@sh harness/side_by_side.sh "$(BIN)/shatter images" "$(MAKE) check"
	@sh harness/side_by_side.sh "nice -n 15 $(BIN)/pytest tests/spark -n 2 --dist loadfile $(SLOWEST) $(PYTEST)" \
	  "$(BIN)/pytest tests/cluster $(CHOSEN) $(RACES:%=--ignore=%) $(SLOWEST) $(PYTEST)"
	$(BIN)/pytest $(RACES) $(CHOSEN) $(SLOWEST) $(PYTEST)

test-all:
	$(MAKE) test CHOSEN=

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest tests/unit $(PYTEST)

unit: setup
	$(BIN)/pytest tests/unit $(PYTEST)

spark: classes
	$(BIN)/pytest tests/spark -n 2 --dist loadfile $(SLOWEST) $(PYTEST)

cluster: engine
	$(BIN)/shatter images
	$(BIN)/pytest tests/cluster $(PYTEST)

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/python -m harness.cli.generated_pages
	PYTHONPATH=tests:. $(BIN)/python -m model.table

lock:
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url --group dev pyproject.toml -o requirements.lock
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-annotate --no-header \
	  --no-emit-index-url -c requirements.lock compose/reference/requirements.in -o compose/reference/requirements.txt

bench: engine
	$(BIN)/shatter images
	$(BIN)/python -m bench

bench-mirror: engine
	$(BIN)/shatter images
	$(BIN)/python -m bench mirror $(BENCH)

bench-check: classes
	$(BIN)/python -m bench check $(BENCH)

clean:
	$(BIN)/shatter clean
