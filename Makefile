# Every target makes ready what it needs (scripts/setup.sh); nothing has to be installed by hand.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# What one target needs is made in order, also under -j; `check` and `test` call make again for what runs side by side.
ifeq ($(MAKELEVEL),0)
.NOTPARALLEL:
endif

# setup.sh writes the Java and the Python that Spark is to use.
env := . .venv/env.sh &&
bin := .venv/bin
mypy := $(bin)/mypy
# Hundreds of processes load the same modules: where PYTHONDONTWRITEBYTECODE is set, each would compile them anew. Spark
# starts some for each query, and an installed package has its bytecode: benchmarks are to have it too.
tests := $(env) unset PYTHONDONTWRITEBYTECODE &&
pytest := $(tests) $(bin)/python -m pytest
# Tests in one process make a million small files: in memory that takes a third of the time of a disk. There what passed
# is removed at once, as it takes room. With less than 6 GB free, or a TMPDIR of your own, the files are on a disk; so are
# those of Spark's tests, whose file streams tell files apart by their times.
memory := $(shell awk '/^MemAvailable/ {exit $$2 < 6000000}' /proc/meminfo 2>/dev/null && [[ -d /dev/shm && -w /dev/shm ]] && echo /dev/shm)
ifeq ($(TMPDIR)$(memory),/dev/shm)
scratch := export TMPDIR=$(memory) PYTEST_ADDOPTS="-o tmp_path_retention_policy=failed $${PYTEST_ADDOPTS:-}" &&
endif
in_memory := $(tests) $(scratch)
code := $(wildcard kafkalike scripts tests benchmarks)
# What must be covered to the last branch: the model and the change loop. `make mutants` changes the same modules.
loop := tailed_table commit_file table_state table table_change
measured := kafkalike.model $(addprefix kafkalike.delta.,$(loop))
step = @printf '\n== %s\n' "$@: $(1)"

# Runs targets side by side: each prints when it ends, and all end, though one fails. The tests in one process are shares,
# each in one pytest, since workers of pytest-xdist take half as long again: each of them collects all 17,000 tests, and
# tells of each of its own. A new folder of tests is in one of the shares. The order is that in which they start: what
# takes longest, and what waits most.
beside = $(MAKE) --no-print-directory --keep-going --output-sync -j
shares := replicas gateway modules logs clients upkeep
share_replicas := tests/contract/replication
share_gateway := tests/contract/gateway
share_upkeep := $(addprefix tests/contract/,maintenance storage)
share_logs := $(addprefix tests/contract/,log delta)
share_clients := $(filter-out $(share_replicas) $(share_gateway) $(share_upkeep) $(share_logs) %/__pycache__,$(patsubst %/,%,$(wildcard tests/contract/*/)))
share_modules := kafkalike tests/unit tests/architecture tests/jepsen
# `make check` has four of the same length: a process more costs some two seconds.
quick := modules clients logs others
share_others := $(share_replicas) $(share_gateway) $(share_upkeep)

# Those without a JVM wait for most of their time, so they are beside the others.
programs_alone := usual-programs usual-processes
options_programs = $(programs) --durations=40 tests/spark tests/e2e
options_processes := -q --durations=10 tests/processes
streams := $(wildcard tests/spark/test_*stream*.py tests/spark/test_source_*.py tests/spark/test_missing_topics.py)

.PHONY: $(quick:%=quick-%) $(shares:%=usual-%) $(programs_alone)
.PHONY: help demo demo-s3 setup setup-browser setup-stores classes lock clean check test fmt lint types arch unit spark spark-engines processes e2e programs objects recipes lowest spark-matrix wheel-pythons wheel-extras test-all coverage mutants soak soak-replicas soak-pipeline soak-gateway bench bench-kafka gateway-judges reference rooms pictures notebooks docs

##@ Try it

help: ## List the targets.
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' \
	    $(MAKEFILE_LIST)

demo: ## See kafkalike at work, in about a minute; installs only what the demo needs.
	@scripts/setup.sh demo
	@$(env) $(bin)/kafkalike demo

demo-s3: setup setup-stores ## See the same on a bucket of a versitygw on the loopback, which it starts and stops.
	@$(env) scripts/demo_s3.sh $(bin)/kafkalike

##@ Set up

setup: ## Set up everything for development: .venv, the locked packages, a Java, Delta's jars; only what is missing.
	@scripts/setup.sh

setup-browser: ## Get a browser for the tests of the web console; without it they are skipped.
	@scripts/setup_browser.sh

setup-stores: ## Get object stores for tests (versitygw for S3, Azurite) and Hadoop's client for S3; without them tests are skipped.
	@scripts/setup_stores.sh

# Without it all works, and takes longer; so it is no error when Java makes none.
classes: setup ## Make an archive of Spark's classes, with which the JVMs of tests start in half the time.
	@[[ .venv/classes.jsa -nt .venv/setup.stamp ]] || \
	    { $(env) $(bin)/python scripts/archive_classes.py .venv/classes.jsa >/dev/null 2>&1 || true; }

lock: setup ## Resolve pyproject.toml anew into requirements.lock and requirements-demo.lock.
	@scripts/lock.sh

clean: ## Remove caches and build output; never topics, never .venv.
	@rm -rf build dist .coverage *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf spark-warehouse metastore_db derby.log
	@find kafkalike jobs scripts tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

##@ Check a change

check: setup ## Run the fast gate: lint, types, layers, and the tests without JVM and processes, with few examples each.
	@$(beside) 4 $(quick:%=quick-%) types lint arch

$(quick:%=quick-%): quick-%: setup
	$(call step,quick tests)
	@$(in_memory) KAFKALIKE_TESTS=quick $(bin)/python -m pytest -q -m "not (slow or soak or objects or full or spark or processes or e2e)" \
	    $(filter-out tests/jepsen,$(share_$*))

# Who is done first takes tests over from another; but for that a file stays together, as its tests may share what is
# dear. Each of the processes has a JVM that must get warm, so there are no more of them than cores.
programs := -n 2 --dist worksteal
every = $(tests) KAFKALIKE_TESTS=all $(bin)/python -m pytest -m "not soak and not objects"

# The same order of tests each time, so that a failure can be had again; all other targets shuffle anew.
order := --randomly-seed=33

# What starts programs waits a lot, as do the replicas and the gateway; so others run beside them. Tests with a JVM take
# longest and cannot fill the cores alone: the others are nicer than they, so that no JVM ends its tests last and alone.
# In two processes mypy ends sooner and takes a fifth more of the cores.
beside_jvm := nice -n 5
test: setup ## Run what must pass for each change: lint, types, layers, tests of all folders.
	@$(beside) 4 mypy="$(beside_jvm) $(mypy) --num-workers 0" $(programs_alone) types $(shares:%=usual-%) lint arch

$(shares:%=usual-%): usual-%: setup
	$(call step,tests in one process)
	@$(in_memory) $(beside_jvm) $(bin)/python -m pytest -q $(order) --durations=10 --durations-min=2 $(share_$*)

fmt: setup ## Rewrite the code to the house format.
	@$(bin)/ruff format .
	@$(bin)/ruff check --fix --quiet . || true

lint: setup ## Check format, ruff, shellcheck, declared dependencies, and the language of docs and docstrings.
	$(call step,format, ruff, shellcheck, deptry, language)
	@$(bin)/ruff format --check .
	@$(bin)/ruff check .
	@$(bin)/shellcheck scripts/*.sh .ci/run
	@$(bin)/deptry .
	@$(bin)/python -m scripts.english --check | tail -1

types: setup ## Check types with mypy, strict, and the public names as editors see them.
	$(call step,mypy)
	@$(mypy) $(code)
	$(call step,basedpyright of the public names)
	@$(bin)/basedpyright --project tests/typing/pyrightconfig.json

arch: setup ## Check who may import whom, and the figures of the package's shape, none of which may rise.
	$(call step,import-linter, shape)
	@$(bin)/lint-imports --no-cache
	@$(bin)/python -m scripts.house --check

##@ Run some tests

unit: setup ## Run the tests without logs and processes, and the examples in docstrings.
	$(call step,pytest)
	@$(in_memory) $(bin)/python -m pytest kafkalike tests/unit tests/architecture

spark: classes ## Run the tests with one local Spark.
	$(call step,pytest)
	@$(pytest) tests/spark

spark-engines: classes ## Run the tests of the format with both planners: the driver, and the format's Python processes.
	$(call step,pytest: the driver plans)
	@$(pytest) -n 0 $(streams)
	$(call step,pytest: Python processes plan)
	@KAFKALIKE_TESTS_DRIVER=false $(pytest) -n 0 $(streams)

processes: setup ## Run the tests with several processes on one topic: kill -9, full disks.
	$(call step,pytest)
	@$(pytest) tests/processes

e2e: classes ## Run the command line, the jobs and the notebooks, as a user runs them.
	$(call step,pytest)
	@$(pytest) tests/e2e

programs: setup ## Run the last three, as `make test` does: all tests that start programs and JVMs.
	@$(beside) 2 $(programs_alone)

# The archive of classes is made beside what needs no JVM. As a prerequisite it would not do: make would notice its end
# only after it has begun all other targets of `make test`.
nice_processes = $(beside_jvm)
ready_programs = MAKEFLAGS= $(MAKE) --no-print-directory classes &&
$(programs_alone): usual-%: setup
	$(call step,pytest)
	@$(ready_$*) $(tests) $(nice_$*) $(bin)/python -m pytest $(order) $(options_$*)

objects: setup setup-stores ## Run the tests over real object stores.
	$(call step,pytest)
	@$(pytest) -m "objects and not soak" tests/contract tests/processes tests/spark

recipes: setup ## Try the recipes of the documentation with their tools (Airflow, dbt, ...), fetched into temporary environments.
	$(call step,pytest)
	@$(pytest) -n 0 -m "soak or not soak" tests/e2e/test_recipes.py

lowest: setup ## Run the fast tests with the oldest versions of all dependencies that pyproject.toml allows.
	@scripts/lowest.sh

spark-matrix: setup ## Run Spark's tests on Spark 4.0, 4.1 and 4.3, each in an environment of its own; SPARKS="4.1.4" chooses, ARGS adds to pytest's.
	@scripts/spark_matrix.sh

wheel-pythons: setup ## Try the wheel on Python 3.11, 3.12 and 3.13, each in a fresh environment, as a new user; says which are missing here.
	$(call step,pytest)
	@$(pytest) -n 0 -m soak tests/e2e/test_wheel_pythons.py

wheel-extras: setup ## Install the wheel with each extra into an empty environment, and print what that takes and imports.
	$(call step,pytest)
	@$(pytest) -n 0 -s -m soak tests/e2e/test_wheel_extras.py

##@ Test for longer

test-all: classes ## Run all tests but soak and object stores: all examples, each line interrupted, all cases over three roots.
	$(call step,tests in one process)
	@$(every) -n 2 kafkalike tests/unit tests/contract tests/architecture tests/jepsen
	$(call step,tests that start programs and JVMs)
	@$(every) $(programs) tests/processes tests/spark tests/e2e

# A branch that only a long search finds counts as one that nobody has tested: few examples, and no simulation.
coverage: setup ## Measure the branch coverage of the model and the change loop by the unit tests; it must be 100 %.
	$(call step,coverage of $(measured))
	@$(in_memory) KAFKALIKE_TESTS=quick $(bin)/python -m pytest -n 2 -m "not (soak or objects or spark)" \
	    $(addprefix --cov=,$(measured)) --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100 \
	    tests/unit --ignore=tests/unit/log/test_group_simulation.py

mutants: setup ## Make one small fault at a time in the same modules: do the tests notice it? only="kafkalike.model.segments.*" for a part.
	$(call step,mutmut)
	@$(env) $(bin)/python scripts/mutants.py $(only)

soak: setup setup-stores ## Run longer trials of crashes, races and interrupts, for some hours.
	$(call step,pytest)
	@$(tests) KAFKALIKE_TESTS=all $(bin)/python -m pytest -m soak tests/processes tests/unit/log/test_group_simulation.py tests/unit/model/test_share_simulation.py tests/unit/schemas/test_schema_simulation.py \
	    tests/unit/log/test_transaction_simulation.py tests/unit/replication/test_replication_simulation.py \
	    tests/contract/replication/test_failback_history.py tests/contract/log/test_interrupts.py tests/contract/schemas/test_schema_interrupts.py \
	    tests/contract/schemas/test_schema_bytes.py tests/contract/log/test_transaction_storage.py \
	    tests/contract/consumer/test_share_consumer_contract.py tests/e2e tests/spark

soak-replicas: setup ## Let folders and buckets vanish, hang, fill up and slow down under kill -9 for half an hour, and judge the histories.
	$(call step,object stores: without them trials over buckets are skipped)
	@scripts/setup_stores.sh || printf 'NOT ALL OBJECT STORES ARE THERE: see what is skipped below\n'
	$(call step,pytest)
	@$(pytest) -n 0 -s -m soak tests/processes/test_replicas_history.py
	@$(pytest) -n 0 -m soak tests/unit/replication/test_registers_simulation.py tests/unit/replication/test_quorum_simulation.py \
	    tests/contract/replication/test_hanging_roots.py tests/contract/replication/test_damaged_replicas.py

soak-pipeline: classes ## Kill driver and JVM of six streaming queries that feed each other ten times; each table must be as it should.
	$(call step,pytest)
	@$(pytest) -n 0 -s -m soak tests/spark/test_pipeline_killed.py

soak-gateway: setup ## Attack a gateway with hostile bytes and crowds, and kill gateways under a mixed group; KAFKALIKE_GATEWAY_SECONDS for each.
	$(call step,pytest)
	@$(pytest) -n 0 -s -m soak tests/processes/test_gateway_hostile.py \
	    tests/processes/test_gateway_soak.py tests/processes/test_gateway_kills.py

##@ Measure

bench: setup ## Measure the figures in the documents, here.
	@$(tests) for name in $(basename $(notdir $(wildcard benchmarks/bench_*.py))); do $(bin)/python -m "benchmarks.$$name"; done

bench-kafka: setup ## Measure the same against a real Kafka broker and Spark's Kafka connector, which are fetched.
	@$(tests) $(bin)/python -m benchmarks.kafka_rivals
	@$(tests) $(bin)/python -m benchmarks.kafka_copier
	@$(tests) $(bin)/python -m benchmarks.kafka_gateway

gateway-judges: setup ## Judge the gateway by a Kafka broker, kafka-python's tests, kcat, Java tools, Connect, Streams, Flink and Spark, which are fetched.
	@$(tests) $(bin)/python -m benchmarks.gateway_judges

##@ Write files

reference: setup ## Write the pages of docs/reference on settings, errors, benchmarks and commands, and the types of settings.
	@$(bin)/python -m scripts.reference
	@$(bin)/ruff format --quiet kafkalike/model/config/setting_types.py

rooms: setup ## Write docs/pictures/rooms.puml, and list all files in docs/reference/files.md.
	@$(bin)/python -m scripts.rooms

pictures: setup setup-browser rooms ## Draw the diagrams that changed; run the demo and take its terminal, plot and console.
	@$(env) $(bin)/python -m scripts.pictures
	@$(env) $(bin)/python -m scripts.demo_pictures

notebooks: setup ## Run the notebooks and store what they show; only="01 05" for some.
	@$(env) $(bin)/python -m scripts.notebooks $(only)

docs: setup ## Build the documentation site, strictly, into build/site.
	@NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict --quiet
