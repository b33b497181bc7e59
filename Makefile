# The menu is `make help`. Everything installs itself into .venv on first use; nothing else is touched.
.DEFAULT_GOAL := help
targets := help slices sharpness quantize evaluate train average lab figures study correlate view verify test check docs examples package format reference bench-slices bench-curvature bench-quantize bench-training bench-begin bench-explorer bench-plans bench-ranks bench-beyond soak fuzz clean
.PHONY: $(targets)

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
REFERENCE := data/reference

# Without MODEL or RUN, the bundled run on its own text; with one, whatever the caller names.
ifeq ($(MODEL)$(RUN),)
MODEL := $(REFERENCE)/mini-pythia
TEXT ?= $(REFERENCE)/corpus/validation.jsonl.xz
CALIBRATION ?= $(REFERENCE)/corpus/train.jsonl.xz
endif

# What each target takes by name; NAME becomes --name. Any other option goes through ARGS.
slices_takes := MODEL PLANE PREV QUANT TO PARAMS TEXT CALIBRATION GRID BOUNDS TOKENS SEQ_LEN DTYPE STREAM NPROC DEVICE OUT
sharpness_takes := MODEL TEXT PARAMS QUANT CALIBRATION TOKENS SEQ_LEN STREAM NPROC DEVICE OUT
quantize_takes := MODEL QUANT SAVE TEXT CALIBRATION SEQ_LEN DEVICE
evaluate_takes := MODEL QUANT TEXT CALIBRATION TOKENS SEQ_LEN DTYPE STREAM NPROC DEVICE OUT
train_takes := RECIPE CHANGES NPROC FORK OUT DEVICE MICRO_BATCH
average_takes := RUN KIND WINDOW EVERY DECAY OUT
lab_takes := SIZE EXPERIMENTS JOBS OUT
figures_takes := TABLES OUT
study_takes := RUN QUANT MEASURE AVERAGE TEXT CALIBRATION CALIBRATION_WINDOWS TOKENS CURVATURE_TOKENS SEQ_LEN BATCH_SIZE ENGINE DEVICE OUT
correlate_takes := TABLES X Y QUANTIZER GIVEN WHERE OUT
view_takes := RESULTS SERVE OUT
verify_takes := FILE MODEL TEXT CALIBRATION CELLS SEED DEVICE
test_takes := TIER COVERAGE
positional := MODEL FILE RECIPE CHANGES NPROC RUN SIZE TABLES RESULTS $(if $(filter quantize study,$(MAKECMDGOALS)),QUANT)

# One more than there are cores, as tests wait for processes and browsers.
WORKERS = $$(( $$(getconf _NPROCESSORS_ONLN) + 1 ))
# They begin hundreds of processes: one thread each, and what one compiles is there for the next.
processes = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

options = $(foreach name,$(filter-out $(positional),$($@_takes)),$(if $($(name)),--$(shell echo $(name) | tr A-Z_ a-z-) '$($(name))')) $(ARGS)

# With NPROC, that many processes share the job, and the threads: docs/scale.md.
# The other variable gives a rank that is started again the addresses of those that live (torch 2.13).
threads = TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 OMP_NUM_THREADS=$${OMP_NUM_THREADS:-$$(( ($$(getconf _NPROCESSORS_ONLN) + $(NPROC) - 1) / $(NPROC) ))}
landscape = $(if $(NPROC),$(threads) $(BIN)/torchrun --nproc-per-node $(NPROC) -m landscape,$(BIN)/landscape)

ifneq ($(shell echo '$(NPROC)' | grep -vE '^([1-9][0-9]*)?$$'),)
$(error NPROC=$(NPROC): expected a number of processes)
endif

unknown := $(filter-out $(targets) .venv/%,$(MAKECMDGOALS))
ifneq ($(unknown),)
$(error make $(unknown): no such target; make alone prints the menu)
endif

# A misspelt name would be ignored otherwise, and the default drawn in its place.
given := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
taken := $(foreach goal,$(MAKECMDGOALS),$($(goal)_takes)) ARGS PYTHON
unknown := $(filter-out $(taken),$(given))
ifneq ($(unknown),)
$(error make $(or $(MAKECMDGOALS),help) takes no $(unknown); it takes $(strip $(taken)))
endif

help: ## this menu
	@echo 'make TARGET [NAME=value ...]'
	@echo
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r name text; do printf '  %-16s %s\n' "$$name" "$$text"; done
	@echo
	@$(foreach target,slices sharpness quantize evaluate train average lab figures study correlate view verify,echo '$(target) takes $($(target)_takes)' | fold -s -w 100;)
	@echo "any other option through ARGS='--seed 1 --overwrite'; .venv/bin/landscape slice --help explains them all"

slices: $(INSTALLED) ## render a loss basin: the bundled run, or MODEL=org/name@revision PREV=@revision QUANT=gptq-w3-g128 TEXT=wikitext
	@$(landscape) slice '$(MODEL)' $(options)

sharpness: $(INSTALLED) ## Hessian eigenvalues, trace and density: the bundled run, or MODEL=… TEXT=…
	@$(landscape) sharpness '$(MODEL)' $(options)

quantize: $(INSTALLED) ## quantize and look at the layers: the bundled run, or MODEL=… QUANT=awq-w4-g128 SAVE=directory
	@$(BIN)/landscape quantize '$(MODEL)' '$(or $(QUANT),gptq-w3-g128)' $(options)

evaluate: $(INSTALLED) ## what quantization costs, with intervals: the bundled run, or MODEL=… QUANT=rtn-w4-g128,nf4 TEXT=…
	@$(landscape) evaluate '$(MODEL)' $(options)

train: $(INSTALLED) ## train a recipe: make train RECIPE=p1-160m-tiny CHANGES='text=corpus.jsonl seed=2' OUT=runs/mine
	@$(landscape) train '$(or $(RECIPE),analyses/lab/recipes/tiny.yaml)' $(CHANGES) $(options)

average: $(INSTALLED) ## average the last checkpoints of a run: make average RUN=runs/mine WINDOW=5 EVERY=500
	@$(BIN)/landscape average '$(RUN)' $(options)

lab: $(INSTALLED) ## the controlled experiments, judged: make lab SIZE=tiny (an hour and a half on two cores) EXPERIMENTS=ABC
	@$(BIN)/python -W ignore -m analyses.lab '$(or $(SIZE),tiny)' $(options)

figures: $(INSTALLED) ## the questions of the papers, drawn and judged from tables, and each view as a PDF: all in data/studies, or TABLES='studies/mine …'
	@$(BIN)/python -W ignore -m analyses.figures $(TABLES) $(options)
	@$(BIN)/landscape view $(or $(TABLES),data/studies) --figures --out '$(or $(OUT),figures/analyses)/views'

study: $(INSTALLED) ## a whole run as one table: the bundled run, or make study RUN=runs/mine QUANT='gptq-w4-g128 gptq-w3-g128' TEXT=…
	@$(BIN)/landscape study '$(or $(RUN),$(REFERENCE)/mini-pythia)' $(or $(QUANT),gptq-w4-g64 gptq-w3-g64 rtn-w4-g64-asym) $(options)

correlate: $(INSTALLED) ## how the columns of studies hang together, with intervals: make correlate TABLES=figures/study X=trace
	@$(BIN)/landscape correlate $(or $(TABLES),figures/study) $(options)

view: OUT ?= figures/view
view: $(INSTALLED) ## explore all results in the browser: those in figures/ and data/studies, or RESULTS=folder; SERVE=8000 follows them
	@$(BIN)/landscape view $(or $(RESULTS),$(wildcard figures) data/studies) --open $(options)

verify: $(INSTALLED) ## does a stored result tell the truth? some of its numbers again: make verify FILE=figures/slices/mine.h5 MODEL=… TEXT=…
	@$(BIN)/landscape verify '$(or $(FILE),$(error make verify FILE=… names a stored result))' --model '$(MODEL)' $(options)

test: .venv/peers ## run the tests, a file at a time on every core; TIER=unit (or integration, oracle), COVERAGE=1, ARGS='tests/test_gptq.py -n 0'
	$(if $(filter-out unit integration oracle,$(TIER)),$(error TIER=$(TIER): expected unit, integration or oracle))
	@$(processes) $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(if $(TIER),-m $(TIER)) $(if $(COVERAGE),--cov=landscape --cov-report=term:skip-covered) $(ARGS)

# what oracle tests and benchmarks compare with: nothing that these want besides is installed, torch least of all
.venv/peers: benchmarks/peers.txt $(INSTALLED)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/peers.txt
	@touch $@

docs: .venv/docs ## run every block of the documentation, then build the site into site/; ARGS='--only quickstart' runs some of it
	@$(BIN)/python -W ignore docs/_tools/blocks.py $(ARGS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'site/index.html'

package: $(INSTALLED) ## build wheel and sdist, look into them, install and use them elsewhere; ARGS='--extras all' or --lowest
	@$(BIN)/python .ci/package.py $(ARGS)

examples: $(INSTALLED) ## run the scripts in examples/: each less than two minutes
	@set -e; for script in examples/*.py; do echo; echo "$$script"; $(BIN)/python -W ignore "$$script"; done

check: $(INSTALLED) ## lint, format and types, in under a minute
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(INSTALLED) ## let ruff format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

reference: $(INSTALLED) ## train the bundled run again (half an hour on two cores) and record its numbers
	@$(BIN)/landscape train $(REFERENCE)/recipe.yaml --out $(REFERENCE)/mini-pythia --overwrite
	@$(BIN)/python $(REFERENCE)/record.py

bench-slices: .venv/peers ## pictures from few evaluations beside dense ones, cells and memory; ARGS='--only cell'
	@$(BIN)/python -W ignore benchmarks/slices.py $(ARGS)

bench-quantize: $(INSTALLED) ## ΔQ by method and bits, seconds per million parameters, memory; ARGS='--only loss --group 32'
	@$(BIN)/python -W ignore benchmarks/quantize.py $(ARGS)

bench-training: $(INSTALLED) ## tokens per second beside a plain loop; ARGS='--repeats 5'
	@$(BIN)/python -W ignore benchmarks/training.py $(ARGS)

bench-explorer: $(INSTALLED) ## sizes of pages, and how soon headless Chromium shows them; ARGS='--cells 201'
	@$(BIN)/python benchmarks/explorer.py $(ARGS)

bench-begin: $(INSTALLED) ## processor time of whole small commands: how they begin and end; ARGS='--repeats 9'
	@$(BIN)/python benchmarks/begin.py $(ARGS)

bench-ranks: $(INSTALLED) ## two ranks on two cores beside two threads; ARGS='--only slice --repeats 5'
	@$(BIN)/python -W ignore benchmarks/ranks.py $(ARGS)

bench-beyond: $(INSTALLED) ## a model larger than memory, under a limit (as root): evaluated, sliced, trace and λ_max; ARGS='--limit 512'
	@$(BIN)/python -W ignore benchmarks/beyond_memory.py $(ARGS)

bench-curvature: .venv/peers ## products, eigenvalues, traces and memory beside other packages; ARGS='--only product --repeats 3'
	@$(BIN)/python -W ignore benchmarks/curvature.py $(ARGS)

bench-plans: $(INSTALLED) ## bytes and operations that plans count, beside measured ones, at three sizes; ARGS='--only 16M'
	@$(BIN)/python -W ignore benchmarks/plans.py $(ARGS)

soak: $(INSTALLED) ## ten minutes of kills, full disks, dead ranks and damaged files: nothing lost, nothing wrong; ARGS='--minutes 60 --seed 1'
	@$(BIN)/python -W ignore benchmarks/soak.py $(ARGS)

fuzz: $(INSTALLED) ## damaged and hostile files by the hundred thousand: each read, or refused by name; ARGS='--inputs 20000 --seed 1'
	@$(BIN)/python -W ignore benchmarks/fuzz.py $(ARGS)

clean: ## remove what make made, but not your slices
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache

.venv/docs: $(INSTALLED)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt
	@echo 'installing into .venv (once)'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'needs Python 3.11 or newer: make PYTHON=python3.12'; exit 2; }
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
