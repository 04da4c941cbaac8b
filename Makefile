# The tasks of contributors and CI. Requires Rust, Go, Node, bash and make. `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Cargo.lock applies to every build, so that the tested versions are the built ones.
CARGO := cargo
LOCKED := --locked

# A snapshot that differs is a failure; `make snapshots` writes them again.
export INSTA_UPDATE ?= no

# Behaviour tests mostly wait: two of them share a core, and more while the machine is idle (tests/support/turn.rs). The others wait for
# their turn in threads of their own.
TURNS := RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(shell echo $$((32 * $$(getconf _NPROCESSORS_ONLN))))}

# The control plane of tests collects garbage less often. Otherwise that is a third of its processor time. The benchmark measures the default.
RELAXED := GOGC=400

# Tools are built once, and kept outside of the repository, by version.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/relaybook
DENY_VERSION := 0.20.2
DENY := $(CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
FUZZ_VERSION := 0.13.2
FUZZ := $(CACHE)/tools/cargo-fuzz-$(FUZZ_VERSION)/bin/cargo-fuzz
CYCLONEDX_VERSION := 0.5.9
CYCLONEDX := $(CACHE)/tools/cargo-cyclonedx-$(CYCLONEDX_VERSION)/bin/cargo-cyclonedx

PROMTOOL_VERSION := $(shell awk '$$1 == "github.com/prometheus/prometheus" { print $$2 }' hack/promtool/go.mod)
PROMTOOL := $(CACHE)/tools/promtool-$(PROMTOOL_VERSION)/bin/promtool

# Tools that run for seconds are not optimised.
INSTALL := CARGO_PROFILE_DEV_DEBUG=false $(CARGO) install --debug --locked

# The launcher of the local control plane.
LAUNCHER := target/control-plane

.PHONY: help
help: ## List the targets
	@printf 'make TARGET\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' Makefile
	@printf '\nThe first demo, test or cluster builds a Kubernetes control plane from source, once: 5 to 11 minutes on two cores,\n'
	@printf 'and keeps it. KUBEBUILDER_ASSETS names a folder with etcd, kube-apiserver and kubectl to use instead.\n'

.PHONY: demo
demo: ## Run the demo: real rollouts, an unavailable receiver, a killed controller; DEMO=keep leaves it running, CLUSTER=current uses the cluster of kubectl
	@bash hack/demo.sh

.PHONY: demo-check
demo-check: ## Check the demo with CLUSTER=current, on a control plane of its own: its promises, and that it leaves nothing
	@bash hack/demo-check.sh

.PHONY: demo-promotions
demo-promotions: ## Run the demo of promotions: a pull request at a real Gitea, its merge, the rollout; DEMO=keep leaves it running
	@bash hack/demo-promotions.sh

.PHONY: try
try: ## Run Relaybook to try it, until Ctrl-C: rollouts, a chat in the browser, the audit page; CLUSTER=current uses the cluster of kubectl
	@bash hack/try.sh

.PHONY: tutorial
tutorial: ## Run each command of docs/tutorial.md
	@bash hack/tutorial.sh

.PHONY: test
test: assets schemas helm gitea ## Run all tests, on a real API server
	@printf 'test: compiling; without a cache this needs about 6 minutes on two cores\n'
	@failed=0; \
	$(CARGO) test $(LOCKED) --workspace --no-fail-fast --lib --bins --test architecture --test contract --test simulation || failed=1; \
	$(TURNS) $(RELAXED) $(CARGO) test $(LOCKED) --workspace --no-fail-fast --test it || failed=1; \
	$(CARGO) test $(LOCKED) --workspace --doc || failed=1; \
	exit $$failed

.PHONY: simulation
simulation: ## Run the program in virtual time, in random histories; HISTORIES=5000 FIRST=1
	$(CARGO) test $(LOCKED) --workspace --test simulation -- --histories $(or $(HISTORIES),80) --first $(or $(FIRST),1)

.PHONY: rights
rights: assets helm gitea ## Run the behaviour tests with only the permissions of the chart; ONLY=cluster TESTS='order:: quiet::'
	@$(TURNS) $(RELAXED) CARGO='$(CARGO)' ONLY=$(ONLY) bash hack/rights.sh $(TESTS)

.PHONY: snapshots
snapshots: schemas ## Record what the built-in templates send; read the difference before you commit it
	INSTA_UPDATE=always $(CARGO) test $(LOCKED) --test contract -- snapshots

.PHONY: page
page: assets ## Test the audit page in a real Chromium; screenshots are in target/page. ARGS='-g overview', ARGS=--stay leaves it running
	@RELAYBOOK_CHROMIUM=$$(bash hack/browser.sh) && export RELAYBOOK_CHROMIUM && \
	$(RELAXED) $(CARGO) test $(LOCKED) --test page -- $(ARGS)

.PHONY: screenshots
screenshots: page ## Take the screenshots of docs/page again; look at them before you commit them
	@mkdir -p docs/page && cp target/page/*-light.png target/page/*-dark.png docs/page/ && node hack/palette.mjs docs/page/*.png

.PHONY: chaos
chaos: assets helm ## Test three replicas under load and faults for two minutes; KILLS=100 for long, SEED=n repeats a run, RIGHTS=namespaced
	$(RELAXED) RELAYBOOK_TEST_RIGHTS=$(or $(RIGHTS),cluster) $(CARGO) test $(LOCKED) --test chaos -- $(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS)) \
		$(if $(SECONDS),--seconds $(SECONDS))

.PHONY: chaos-proof
chaos-proof: assets ## Check that chaos and the simulation find defects: they must fail programs that break a promise
	@$(RELAXED) CARGO='$(CARGO) --color never' bash hack/chaos-proof.sh

.PHONY: upgrade
upgrade: assets ## Upgrade from the last tag, or the commit before, under load, and back; FROM=REVISION
	@CARGO='$(CARGO) --color never' bash hack/upgrade.sh $(FROM)

# The copy has its own cache folder, which leads to the same tools.
.PHONY: rename-check
rename-check: schemas helm ## Give a copy of the product another name, and run its tests that need no cluster
	@copy=$(CURDIR)/target/renamed && rm -rf "$$copy" && git clone --quiet . "$$copy/tree" && \
	mkdir "$$copy/cache" && ln -s $(CACHE) "$$copy/cache/signalbook" && cd "$$copy/tree" && \
	export XDG_CACHE_HOME=$$copy/cache CARGO_TARGET_DIR=$(CURDIR)/target && \
	bash hack/rename.sh signalbook org.signalbook.example sb && \
	$(CARGO) test $(LOCKED) --workspace --lib --test architecture --test contract && node hack/prose/check.mjs

.PHONY: fuzz
fuzz: $(FUZZ) ## Fuzz templates, URLs, setters, Git answers and conversions for a minute; SECONDS=600 for long, INPUT=FILE repeats one input
	@CARGO_FUZZ=$(FUZZ) bash fuzz/run.sh $(or $(INPUT),$(SECONDS),60)

# Arguments of the benchmark, from the variables of the command line.
BENCH := $(if $(ONLY),--only $(ONLY)) $(if $(BASE),--base $(abspath $(BASE))) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(QUICK),--quick) $(if $(JSON),--json $(abspath $(JSON)))

.PHONY: bench
bench: $(if $(filter render,$(ONLY)),,assets) ## Measure the figures of docs/contributing/benchmarks.md, for about an hour; ONLY=throughput ROUNDS=1 QUICK=1 JSON=FILE BASE=PROGRAM
	@printf 'bench: compiling for release; without a cache this needs about 30 minutes on two cores\n'
	$(CARGO) bench $(LOCKED) --bench figures -- $(BENCH)

.PHONY: image
image: ## Build the image with docker, podman or buildah
	@bash hack/image.sh build

.PHONY: image-archive
image-archive: ## Build target/image/relaybook.tar, an OCI archive, with buildah and without a base image
	@bash hack/image.sh archive

.PHONY: image-check
image-check: assets ## Run the static program in an empty root directory, on a real API server; FILE=PROGRAM uses an existing one. Linux only
	@LAUNCHER=$(CURDIR)/$(LAUNCHER) bash hack/image-check.sh $(FILE)

.PHONY: krew-check
krew-check: assets ## Install the program as a plugin of kubectl with the real krew, and run it on a real API server; FILE=PROGRAM uses an existing one
	@LAUNCHER=$(CURDIR)/$(LAUNCHER) bash hack/krew-check.sh $(FILE)

.PHONY: sbom
sbom: $(CYCLONEDX) ## Write target/sbom/relaybook.cdx.json, the software bill of materials; FILE=PROGRAM also checks a program
	@CARGO_CYCLONEDX=$(CYCLONEDX) bash hack/sbom.sh $(FILE)

.PHONY: lint
lint: $(DENY) ## Check format, lints, documentation, prose, licences, bans, sources and the chart
	$(CARGO) fmt --all --check
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	$(CARGO) metadata $(LOCKED) --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	$(CARGO) clippy $(LOCKED) --features broken --lib --test chaos -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(LOCKED) --workspace --no-deps --lib --document-private-items
	$(DENY) --locked check licenses bans sources
	$(MAKE) rules
	cd hack/control-plane && go vet .
	cd hack/gotemplate && go vet .
	cd hack/image && go vet .
	cd hack/receiver && go vet .
	cd hack/request && go vet .
	@unformatted=$$(gofmt -l hack/control-plane hack/gotemplate hack/image hack/receiver hack/request); \
	[[ -z $$unformatted ]] || { printf 'lint: run gofmt on %s\n' $$unformatted >&2; exit 1; }
	@for script in hack/*.sh fuzz/*.sh .ci/run; do bash -n "$$script"; done
	@for script in hack/*.mjs hack/*/*.mjs; do node --check "$$script"; done
	@node hack/release/krew.mjs --self-test >/dev/null
	$(MAKE) prose
	@helm=$$(bash hack/tool.sh helm); for values in charts/relaybook/ci/*-values.yaml; do \
		"$$helm" lint --strict --quiet charts/relaybook --values "$$values" && \
		"$$helm" template relaybook charts/relaybook --values "$$values" >/dev/null || \
		{ printf 'lint: the chart is wrong with %s\n' "$$values" >&2; exit 1; }; \
	done

.PHONY: prose
prose: ## Check the prose of documents, comments and messages: words per sentence, terms, spelling; FIGURES=1 prints how long sentences are
	@node hack/prose/check.mjs $(if $(FIGURES),--figures)

RULES := charts/relaybook/files/rules.yaml

.PHONY: rules
rules: $(PROMTOOL) ## Check when each alert fires, and that each query of the dashboard returns data
	$(PROMTOOL) check rules --lint-fatal $(RULES)
	$(PROMTOOL) test rules hack/rules/*.yaml
	@work=$$(mktemp -d); \
	trap 'rm -rf "$$work"' EXIT; \
	node hack/rules/dashboard.mjs charts/relaybook/files/dashboard.json hack/rules/recorded.txt >"$$work/dashboard.yaml" && \
	$(PROMTOOL) test rules "$$work/dashboard.yaml"

# Tests that together make every kind of call. All tests would need 35 minutes.
CALLS := order:: promotions::once promotions::ended::the_newest pull_requests::once recover:: redeliver:: retention:: global_config:: layers::recreated replicas::one clusters::references remote::kinds sets::followed::follow sets::a_pipeline

# `ci` has the stages that most changes can break. `full` also has those that build the program in other ways, or need other permissions.
# `nightly` has the stages that need hours.
.PHONY: ci
ci: ## Run everything that must pass before a merge: lint, generated files, tests, the page in a browser, a short chaos
	@bash hack/stages.sh lint generated test page 'chaos SECONDS=20'

.PHONY: full
full: ci ## Run ci, and what a change of permissions, delivery, dependencies or the image needs: rights, fuzz, upgrade, krew, chaos, image, sbom
	@bash hack/stages.sh "rights TESTS='$(CALLS)'" 'fuzz SECONDS=30' upgrade rename-check tutorial demo-check krew-check chaos chaos-proof 'chaos RIGHTS=namespaced SECONDS=20' image-check sbom

.PHONY: nightly
nightly: ## Run what needs hours: all tests with the permissions of the chart, a long fuzz, hundreds of kills, the optimised program
	$(MAKE) rights
	$(MAKE) fuzz SECONDS=1800
	$(MAKE) chaos KILLS=100
	CARGO_PROFILE_DEV_OPT_LEVEL=1 $(MAKE) simulation HISTORIES=20000 FIRST=$$RANDOM
	RELAYBOOK_KILLS=200 $(RELAXED) $(CARGO) test $(LOCKED) --test it -- random_kills_open generated::kills
	PROFILE=release $(MAKE) image-check
	$(MAKE) bench

.PHONY: crds
crds: ## Generate crds/ from the types in crates/api/src
	@bash hack/crds.sh crds

.PHONY: receivers
receivers: ## Generate docs/receivers/ from the built-in templates
	@bash hack/receivers.sh docs/receivers

.PHONY: reference
reference: ## Generate the tables of docs/api.md and docs/reference from the types, and docs/commands.md; tests compare them
	RELAYBOOK_REFERENCE=write $(CARGO) test $(LOCKED) --quiet --workspace --lib -- manifests::docs::fields::the_tables manifests::docs::api::the_tables cli::docs::the_page

.PHONY: recorded
recorded: assets ## Record the metrics with which `make rules` evaluates the dashboard
	RELAYBOOK_RECORD=write $(CARGO) test $(LOCKED) --test it -- monitoring::queried

.PHONY: chart
chart: ## Generate the generated parts of charts/relaybook, and deploy/kustomize
	RELAYBOOK_REFERENCE=write $(CARGO) test $(LOCKED) --quiet --workspace --lib -- manifests::docs::chart::helm
	@bash hack/chart.sh .

.PHONY: durations
durations: ## Write the durations of docs/contributing/durations.tsv into the documents that name them
	@node hack/durations.mjs --write

.PHONY: generated
generated: ## Check that crds/, docs/receivers/, charts/, deploy/ and durations in documents are up to date
	@node hack/durations.mjs
	@work=$$(mktemp -d); \
	trap 'rm -rf "$$work"' EXIT; \
	bash hack/crds.sh "$$work/crds" && bash hack/receivers.sh "$$work/receivers" && bash hack/chart.sh "$$work" || exit; \
	$(CARGO) test $(LOCKED) --quiet --workspace --lib -- manifests::docs::chart::helm || exit; \
	diff -ru crds "$$work/crds" || { printf 'generated: crds/ is out of date; run make crds and commit it\n' >&2; exit 1; }; \
	diff -ru docs/receivers "$$work/receivers" || \
		{ printf 'generated: docs/receivers/ is out of date; run make receivers and commit it\n' >&2; exit 1; }; \
	for part in charts/relaybook/README.md charts/relaybook/files/crds deploy; do \
		diff -ru "$$part" "$$work/$$part" || \
			{ printf 'generated: %s is out of date; run make chart and commit it\n' "$$part" >&2; exit 1; }; \
	done

.PHONY: cluster
cluster: $(LAUNCHER) ## Run a local control plane until Ctrl-C; prints its KUBECONFIG. With ROLLOUTS=1, Deployments roll out
	@exec $(LAUNCHER) run --human $(if $(ROLLOUTS),--rollouts)

.PHONY: clean
clean: ## Remove build results; the cache of all clones is ~/.cache/relaybook
	$(CARGO) clean
	rm -rf .demo

# --- what the targets need ---------------------------------------------------------------------------------------------

# The programs of the control plane; built once.
.PHONY: assets
assets: $(LAUNCHER)
	@$(LAUNCHER) build >/dev/null

# The API schemas that receivers publish, for the contract tests; downloaded once.
.PHONY: schemas
schemas:
	@node hack/schemas/fetch.mjs >/dev/null

# Helm, which renders the chart; built once.
.PHONY: helm
helm:
	@bash hack/tool.sh helm >/dev/null

# Gitea, the Git forge of the tests with pull requests; built once.
.PHONY: gitea
gitea:
	@bash hack/gitea.sh >/dev/null

$(LAUNCHER): $(wildcard hack/control-plane/*.go hack/control-plane/go.* hack/control-plane/*.yaml hack/control-plane/programs/*.go)
	@mkdir -p $(@D)
	cd hack/control-plane && go build -o $(CURDIR)/$@ .

$(DENY):
	@printf 'lint: building cargo-deny %s into %s, once; about a minute on two cores\n' $(DENY_VERSION) $(@D)
	$(INSTALL) cargo-deny --version $(DENY_VERSION) --root $(CACHE)/tools/cargo-deny-$(DENY_VERSION)

$(PROMTOOL):
	@printf 'rules: building promtool %s into %s, once; about 2 minutes on two cores\n' $(PROMTOOL_VERSION) $(@D)
	@mkdir -p $(@D)
	# Without service discovery, which would compile the clients of every cloud.
	cd hack/promtool && CGO_ENABLED=0 go build -trimpath -tags remove_all_sd -o $@ github.com/prometheus/prometheus/cmd/promtool

$(FUZZ):
	@printf 'fuzz: building cargo-fuzz %s into %s, once; about a minute on two cores\n' $(FUZZ_VERSION) $(@D)
	$(INSTALL) cargo-fuzz --version $(FUZZ_VERSION) --root $(CACHE)/tools/cargo-fuzz-$(FUZZ_VERSION)

$(CYCLONEDX):
	@printf 'sbom: building cargo-cyclonedx %s into %s, once; about a minute on two cores\n' $(CYCLONEDX_VERSION) $(@D)
	$(INSTALL) cargo-cyclonedx --version $(CYCLONEDX_VERSION) --root $(CACHE)/tools/cargo-cyclonedx-$(CYCLONEDX_VERSION)
