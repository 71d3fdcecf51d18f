# Everything sets up what it needs first and does nothing where nothing has changed. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := build/stamps
CONFIG ?= config/server.properties
ARGS ?=

KERNELS := $(shell find kafkapy -name '*.pyx' -o -name '*.pxd')
# Those with types for Python, which stubtest compares with the kernel.
MODULES := $(sort $(subst /,.,$(basename $(shell find kafkapy/_speedups -name '*.pyi' ! -name __init__.pyi))))
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

export PYTHON
# Tests start hundreds of processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help build serve cluster test quick test-spark test-spark-tables test-console console lint asan tsan soak mutants perf perf-smoke perf-clients bench interop-java interop-java-old interop-spark wheel wheels fresh-system docs clean

help:
	@echo 'build         .venv with kafkapy-server in it'
	@echo 'serve         build, then a broker on config/server.properties (CONFIG=, ARGS="--override k=v")'
	@echo 'cluster       build, then three brokers on one machine with etcd (ARGS="--store zookeeper --brokers 5")'
	@echo 'test          build, lint, and all tests but the long ones, in parallel (ARGS=... goes to pytest)'
	@echo 'quick         lint and unit tests of what changed since main, within a minute'
	@echo 'test-spark    only the tests of the Spark connector (plugins/kafkapy-spark), on a real Spark as in "test"'
	@echo 'test-spark-tables  archives of the engine spark in Delta tables, on a Spark that Delta has a jar for'
	@echo 'test-console  only the tests of the web console (plugins/kafkapy-console), in Chromium too'
	@echo 'console       the web console for a broker that runs (ARGS="--bootstrap-server localhost:9092")'
	@echo 'lint          ruff, mypy, stubtest'
	@echo 'asan          kernel and hostile-bytes tests under AddressSanitizer'
	@echo 'tsan          network, log, purgatory, cleaner and move tests under ThreadSanitizer'
	@echo 'soak          the tests that run for long (KAFKAPY_FUZZ_FRAMES=: how many spoiled requests)'
	@echo 'mutants       small random bugs that the tests of AREA= do not notice (COUNT=20, SEED=, SINCE=commit)'
	@echo 'perf          kafkapy beside Apache Kafka and the limit of the machine; docs/performance.md'
	@echo 'perf-smoke    the same in under a minute, kafkapy and the limit only'
	@echo 'perf-clients  our producer and consumer beside confluent-kafka, kafka-python and aiokafka'
	@echo 'bench         micro-benchmarks (BENCH=codec for one)'
	@echo 'interop-java  Apache Kafka beside the broker: its command-line tools, and every answer compared'
	@echo 'interop-java-old  our clients on Apache Kafka 2.1, 2.8, 3.3 and 3.6'
	@echo 'interop-spark the Spark connector beside the one of Spark itself: options, errors, schema, tasks, checkpoints'
	@echo 'wheel         a wheel in dist/ for this machine'
	@echo 'wheels        manylinux wheels for each Python of this machine, an sdist and a bill of materials in dist/'
	@echo 'fresh-system  installs and uses those wheels on fresh Debian systems without a compiler (root)'
	@echo 'docs          docs/configuration.md, and the documentation as a site in build/site'
	@echo 'clean         remove what was built, but not .venv'

# --- set-up -------------------------------------------------------------------------------------------------------

build: $(STAMPS)/install

$(STAMPS)/venv: pyproject.toml scripts/requirements.py scripts/system-packages
	@mkdir -p $(STAMPS)
	scripts/system-packages build
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python scripts/requirements.py build runtime > build/requirements.txt
	$(PIP) install -q -r build/requirements.txt
	@touch $@

$(STAMPS)/kernels: $(STAMPS)/venv setup.py scripts/build_kernels.py $(KERNELS)
	$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

# The kernels are built already, so this only writes the entry point and the link to this directory.
$(STAMPS)/install: $(STAMPS)/kernels pyproject.toml setup.py
	$(PIP) install -q --no-build-isolation --no-deps -e .
	@touch $@

$(STAMPS)/test-venv: $(STAMPS)/venv pyproject.toml
	$(BIN)/python scripts/requirements.py test lint deploy docs > build/requirements-test.txt
	$(PIP) install -q -r build/requirements-test.txt
	@scripts/system-packages kerberos
	$(BIN)/python scripts/requirements.py gssapi > build/requirements-gssapi.txt
	$(PIP) install -q -r build/requirements-gssapi.txt || echo 'the package gssapi is not there: the tests of Kerberos are skipped'
	@touch $@

# --- running ------------------------------------------------------------------------------------------------------

serve: build
	@exec $(BIN)/kafkapy-server $(CONFIG) $(ARGS)

# Data stay in data/cluster. Ctrl-C stops brokers and store.
cluster: build
	@scripts/system-packages cluster
	@exec $(BIN)/python scripts/cluster.py $(ARGS)

# --- checking -----------------------------------------------------------------------------------------------------

# Lint and both parts of the tests run whatever the others say; what failed stands in the last lines.
test: build $(STAMPS)/test-venv $(STAMPS)/spark $(STAMPS)/console
	@scripts/system-packages test
	@lint=0; $(MAKE) --no-print-directory lint || { lint=1; echo 'make lint FAILED (see above); the tests run all the same'; }; \
	tests=0; $(BIN)/python scripts/run_tests.py $(ARGS) || tests=$$?; \
	[ $$lint = 0 ] || echo 'make lint FAILED (see the beginning)'; \
	exit $$(( lint || tests ))

# What is near to a change; `make test` is for all of it. ARGS=--list names the tests, ARGS="--since HEAD" takes what is not committed.
quick: build $(STAMPS)/test-venv
	@$(BIN)/python scripts/quick.py $(ARGS)

# Spark's workers find the format among the top-level modules of sys.path's directories: a plain link, no import hook.
$(STAMPS)/spark: $(STAMPS)/install $(STAMPS)/test-venv plugins/kafkapy-spark/pyproject.toml
	@scripts/system-packages spark
	$(BIN)/python scripts/requirements.py spark > build/requirements-spark.txt
	$(PIP) install -q -r build/requirements-spark.txt
	$(PIP) install -q --no-build-isolation --no-deps --config-settings editable_mode=compat -e plugins/kafkapy-spark
	@touch $@

test-spark: $(STAMPS)/spark
	$(BIN)/python scripts/run_tests.py plugins/kafkapy-spark/tests $(ARGS)

# The web console and what its tests need; Chromium is a package of the system.
$(STAMPS)/console: $(STAMPS)/install $(STAMPS)/test-venv plugins/kafkapy-console/pyproject.toml
	@scripts/system-packages console
	$(BIN)/python scripts/requirements.py console > build/requirements-console.txt
	$(PIP) install -q -r build/requirements-console.txt
	$(PIP) install -q --no-build-isolation --no-deps -e plugins/kafkapy-console
	@touch $@

test-console: $(STAMPS)/console
	$(BIN)/python scripts/run_tests.py plugins/kafkapy-console/tests $(ARGS)

console: $(STAMPS)/console
	@exec $(BIN)/kafkapy console $(ARGS)

# The Spark that Delta's newest jar is made for, beside the one of the other tests. The jar comes from Maven Central.
SPARK_OF_TABLES = 4.2.1
build/spark-$(SPARK_OF_TABLES): $(STAMPS)/spark
	$(PIP) install -q --no-deps --target $@ pyspark==$(SPARK_OF_TABLES)

test-spark-tables: build/spark-$(SPARK_OF_TABLES)
	KAFKAPY_SPARK_TABLES=1 PYTHONPATH=$(CURDIR)/$< $(BIN)/python -m pytest plugins/kafkapy-spark/tests/test_table_jars.py $(ARGS)

# All three speak, whatever the others found.
lint: build $(STAMPS)/test-venv
	@failed=0; \
	echo 'ruff'; $(BIN)/ruff check --output-format concise . || failed=1; \
	echo 'mypy'; $(BIN)/python -m mypy || failed=1; \
	echo 'stubtest'; $(BIN)/python -m mypy.stubtest --concise --mypy-config-file pyproject.toml \
		--allowlist scripts/stubtest-allowlist.txt \
		--ignore-unused-allowlist --ignore-disjoint-bases $(MODULES) || failed=1; \
	exit $$failed

asan: build $(STAMPS)/test-venv
	scripts/asan $(ARGS)

tsan: build $(STAMPS)/test-venv
	scripts/tsan $(ARGS)

soak: build $(STAMPS)/test-venv $(STAMPS)/console
	@scripts/system-packages test
	$(BIN)/python -m pytest -m soak --timeout=0 $(ARGS)

# AREA=controller COUNT=20 SEED=1; SINCE=main for lines that have changed since then only. Works in a copy.
mutants: build $(STAMPS)/test-venv
	@$(BIN)/python scripts/mutants.py --area $(or $(AREA),none) \
		$(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(SINCE),--since $(SINCE)) $(ARGS)

# Side by side with Apache Kafka and the machine's own limit; writes docs/performance.md. ARGS="--work W1 --rounds 3" for less.
perf: build $(STAMPS)/test-venv
	@scripts/system-packages perf
	$(BIN)/python perf/run.py $(ARGS)

# Proves in under a minute that the instrument runs: one short round of kafkapy and the limit.
perf-smoke: build $(STAMPS)/test-venv
	@scripts/system-packages perf
	$(BIN)/python perf/run.py --smoke $(ARGS)

# Messages a second and CPU a message of Python's Kafka clients, on the same broker in one run. ARGS="--sizes 100" for less.
perf-clients: build $(STAMPS)/test-venv
	$(BIN)/python perf/clients/produce.py $(ARGS)
	$(BIN)/python perf/clients/consume.py $(ARGS)

# The micro-benchmarks of single parts; BENCH=codec for one of them.
bench: build $(STAMPS)/test-venv
	@set -e; for bench in $(if $(BENCH),perf/$(BENCH)_bench.py,$(sort $(wildcard perf/*_bench.py))); do \
		echo "== $$bench"; $(BIN)/python $$bench $(ARGS); \
	done

interop-java: build $(STAMPS)/test-venv $(STAMPS)/console
	@scripts/system-packages perf
	KAFKAPY_INTEROP_JAVA=1 $(BIN)/python -m pytest -m java tests/interop tests/clients tests/tools \
		plugins/kafkapy-console/tests $(ARGS)

interop-spark: $(STAMPS)/spark
	@scripts/system-packages perf
	KAFKAPY_INTEROP_JAVA=1 $(BIN)/python -m pytest -m java plugins/kafkapy-spark/tests $(ARGS)

# Our clients on releases of the last years; those before 3.3 with a ZooKeeper. VERSIONS=2.1 for less.
VERSIONS ?= 2.1,2.8,3.3,3.6
interop-java-old: build $(STAMPS)/test-venv
	@scripts/system-packages perf
	KAFKAPY_INTEROP_JAVA=1 KAFKAPY_PEER_VERSIONS=$(VERSIONS) $(BIN)/python -m pytest -m java \
		tests/clients/producer tests/clients/consumer tests/clients/admin/test_admin_old_brokers.py $(ARGS)

# --- making -------------------------------------------------------------------------------------------------------

# Wheels with their libraries inside for each Python 3.11 to 3.14 of this machine, an sdist, and a bill of materials, in dist/.
# ARGS="--python python3.12" for one, ARGS=--again to compare a second build with them, ARGS="--machine aarch64" for another machine,
# ARGS=--reuse for a quick look.
wheels: build
	$(BIN)/python scripts/wheels.py $(ARGS)

# Those wheels on fresh Debian systems without a compiler, as a new user would use them. Root only.
# ARGS="bookworm:$HOME/.pyenv/versions/3.12.1" for a Python that Debian does not have, ARGS="--source bookworm" for the source distribution,
# ARGS="--machine aarch64" for the wheel of another machine, in an emulator.
fresh-system: build
	PYTHON=$(BIN)/python scripts/fresh-system $(ARGS)

wheel: build
	rm -rf build/lib.* build/bdist.* build/kernels/wheel
	$(PIP) wheel -q --no-build-isolation --no-deps -w dist .
	@ls dist/*.whl

# docs/configuration.md, then the site in build/site. Works without a network once the packages are installed.
docs: build $(STAMPS)/test-venv
	$(BIN)/python -m kafkapy.config.reference
	$(BIN)/python scripts/docs_site.py $(ARGS)

clean:
	rm -rf build dist *.egg-info
	find kafkapy/_speedups -name '*.so' -delete
	find kafkapy tests -name __pycache__ -type d -prune -exec rm -rf {} +
