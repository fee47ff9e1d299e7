# `make demo` and `make test` need Python 3.11+ and nothing else; everything goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := $(VENV)/oldest
PRERELEASES := $(VENV)/prereleases
CORPUS := $(VENV)/corpus
# Further arguments, as in: make test ARGS="-k story", make lab ARGS=--no-browser
ARGS ?=
# Side by side, each file in one process.
WORKERS ?= --numprocesses=$(shell nproc | awk '{print ($$1 < 8) ? $$1 : 8}') --dist=loadfile --no-loadscope-reorder

# For make explore, chaos and mutants: so many minutes; one round, one campaign, or the same mutants again.
MINUTES ?= 2
SEED ?=

.PHONY: demo lab labextension test test-long cluster-test test-oldest test-prereleases explore chaos soak corpus types mutants lint format docs pictures locks chart images clean

demo: $(VENV)/.lab
	$(BIN)/nls demo

lab: labextension
	$(BIN)/python tools/lab.py $(ARGS)

# What JupyterLab shows of the GPUs; without Node 20 it says so and changes nothing.
labextension: $(VENV)/.lab
	$(BIN)/python tools/labextension.py build

# What a newcomer runs. At its end it says what is skipped, and what is left to test-long.
test: $(VENV)/.test labextension
	$(BIN)/python tools/check_tools.py
	$(BIN)/python tools/labextension.py test
	$(BIN)/python -m pytest -m "not long" $(WORKERS) $(ARGS)

# Whatever takes long, and nothing of the above.
test-long: test-oldest $(VENV)/.test $(VENV)/.proxy labextension
	$(BIN)/python tools/check_tools.py
	$(BIN)/python -m pytest -m long $(WORKERS) $(ARGS)

# On a real Kubernetes node in namespaces of its own, from a folder as envtest uses it, with a kubelet; without, it says
# why not. KAI_CRDS is a folder with the definitions of KAI's kinds, if they are to be there.
cluster-test: $(VENV)/.test
	$(if $(KUBEBUILDER_ASSETS),$(BIN)/python tools/one_node_cluster.py) $(BIN)/python -m pytest tests/cluster $(ARGS)

# Notebooks and their node killed, stopped, starved and cut off as SEED draws it (a new one if none is given; it is
# printed), and a judge who knows what each user was told. NLS_KEEP=1 keeps the figures.
chaos: $(VENV)/.test
	$(BIN)/python tests/chaos/campaign.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# What grows while notebooks and commands come and go for MINUTES: memory, files and threads of the daemon, its journal, and
# kernels. NLS_KEEP=1 keeps the figures.
soak: $(VENV)/.test
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Over a hundred public notebooks, fetched at their commits into a cache (NLS_CORPUS): the same outputs as in a plain
# kernel, also when their GPU processes are suspended, killed and moved as SEED draws it, or a sentence that says what is
# lost. NLS_KEEP=1 keeps the figures; ARGS="--only numba --report differing.json" looks into a part.
corpus: $(CORPUS)/.corpus
	$(CORPUS)/bin/python tests/corpus/corpus.py $(if $(SEED),--seed $(SEED)) $(ARGS)

# What notebooks meet, on the oldest versions that pyproject.toml allows: ipykernel 6, IPython 8 and what goes with them.
test-oldest: $(OLDEST)/.test
	$(OLDEST)/bin/python -m pytest -m kernel $(WORKERS) $(ARGS)

# The same on what Jupyter is about to release. It may fail: then something is to be done before that is out.
test-prereleases: $(PRERELEASES)/.test
	$(PRERELEASES)/bin/python -m pip list --quiet 2>/dev/null | grep -E '^(ipykernel|ipython|jupyter_client|pyzmq) '
	$(PRERELEASES)/bin/python -m pytest -m kernel $(WORKERS) $(ARGS)

# Fresh examples for every property, which `make test` draws the same everywhere; ends with an error if one breaks.
explore: $(VENV)/.test
	$(BIN)/python tools/explore.py $(if $(SEED),--seed $(SEED),--minutes $(MINUTES)) $(ARGS)

# Objects of every type that can be imported are saved and restored, or named.
types: $(VENV)/.test
	NLS_ALL_TYPES=1 $(BIN)/python -m pytest -m long tests/properties/test_saved_state_types.py $(ARGS)

# Defects in the planner, some chosen by hand and some of those that can be generated, as SEED draws them (printed; a
# new one if none is given): each must be caught by some test. All of a part: make mutants ARGS="turns.py --all".
mutants: $(VENV)/.test
	$(BIN)/python tools/mutants.py $(if $(SEED),--seed $(SEED)) $(ARGS)

lint: $(VENV)/.lint $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/labextension.py lint

format: $(VENV)/.lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.test
	$(BIN)/python docs/draw_transitions.py
	$(BIN)/python docs/write_reference.py
	$(BIN)/python docs/write_saved_state.py
	$(BIN)/python docs/write_troubleshooting.py

# The screenshots in docs/images, taken by the tests in the browser.
pictures: $(VENV)/.test labextension
	NLS_PICTURES=true $(BIN)/python -m pytest tests/ui/test_story_in_the_browser.py

# What the images install, by hashes; ARGS=--upgrade for the newest versions.
locks: $(VENV)/.base
	$(BIN)/python -m pip install --quiet 'uv>=0.9,<1'
	$(BIN)/python tools/lock_images.py $(ARGS)

# The Helm chart's templates, from kustomize's base and components.
chart:
	$(PYTHON) tools/helm_chart.py

# The images' steps one by one in a folder, with Python 3.13: what a build does, but for the base images.
images: $(VENV)/.test
	NLS_IMAGES=1 $(BIN)/python -m pytest -m long tests/deploy/test_image_builds.py $(ARGS)

clean:
	rm -rf labextension/lib labextension/node_modules nls_jupyter/labextension labextension/*.tsbuildinfo
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.base: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'nls-jupyter needs Python 3.11 or newer; try make PYTHON=python3.12')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.lab: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable '.[lab]'
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable '.[lab,test]'
	touch $@

# Their own versions of what kernels are made of, and what an editable install leaves in a prefix; everything else is that
# of the first environment.
$(OLDEST)/.test: $(VENV)/.test tools/lower_bounds.py
	$(BIN)/python -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --no-deps editables backcall decorator nest-asyncio pickleshare \
		$$($(BIN)/python tools/lower_bounds.py ipykernel ipython jupyter_client pyzmq tornado traitlets cloudpickle)
	$(OLDEST)/bin/python -m pip install --quiet --no-deps --editable .
	$(OLDEST)/bin/python tools/share_packages.py $(VENV)
	touch $@

$(PRERELEASES)/.test: $(VENV)/.test
	$(BIN)/python -m venv $(PRERELEASES)
	$(PRERELEASES)/bin/python -m pip install --quiet --no-deps --pre editables ipykernel ipython jupyter_client pyzmq
	$(PRERELEASES)/bin/python -m pip install --quiet --no-deps --editable .
	$(PRERELEASES)/bin/python tools/share_packages.py $(VENV)
	touch $@

# What public notebooks import, and nothing more: the rest, torch for CPUs too, is that of the first environment.
$(CORPUS)/.corpus: $(VENV)/.test tests/corpus/requirements.txt
	$(BIN)/python -m venv $(CORPUS)
	$(CORPUS)/bin/python -m pip install --quiet --no-deps --requirement tests/corpus/requirements.txt
	$(CORPUS)/bin/python tools/share_packages.py $(VENV)
	touch $@

# The proxy of the tests' JupyterHub; without npm their tests are skipped, and say so.
$(VENV)/.proxy: $(VENV)/.base
	@if command -v npm > /dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV)/proxy \
		'configurable-http-proxy@^5'; else echo "There is no npm: no tests of a JupyterHub."; fi
	touch $@

$(VENV)/.lint: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable '.[lint]'
	touch $@
