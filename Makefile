.DEFAULT_GOAL := help
.PHONY: help deps deps-demo build demo demo-stop test test-conductor race bench model fuzz faults crash soak roundtrip page check-deploy test-short lint vet staticcheck fmt-check

# The suites share one Conductor and one lakeFS, so no more than two packages
# run at once, whatever the machine. Within a package most tests wait for a
# server, so more of them run at once than there are processors.
GO_TEST_FLAGS := -race -shuffle=on -count=1 -p 2 -parallel 6 -timeout 40m

# Which Conductor everything below runs on: CONDUCTOR=VERSION, one of those that the
# tests know, or CONDUCTOR_JAR=FILE, any boot jar. Without either it is the newest.
ifdef CONDUCTOR
export PERAGO_TEST_CONDUCTOR_VERSION := $(CONDUCTOR)
endif
ifdef CONDUCTOR_JAR
export PERAGO_TEST_CONDUCTOR_JAR := $(abspath $(CONDUCTOR_JAR))
endif

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what is missing (Java, Maven, PostgreSQL) and fetch both servers, once
	@e2e/stack/deps.sh

build: ## build the workers, the command line and the example into ./bin
	go build -o bin/ ./cmd/... ./examples/...

deps-demo: # what the demo needs of deps
	@e2e/stack/deps.sh demo

demo: deps-demo build ## run three workflows on real servers; KEEP=1 leaves all of it running
	go run ./e2e/demo $(if $(filter 1,$(KEEP)),-keep)

demo-stop: ## stop what `make demo KEEP=1` left running
	go run ./e2e/demo -stop

test: deps fmt-check vet staticcheck check-deploy ## all checks and tests, on the real servers
	go run ./e2e/stack/with-stack -- go test $(GO_TEST_FLAGS) ./...

test-conductor: deps ## the suites that meet Conductor, on another one: CONDUCTOR=3.21.14, or CONDUCTOR_JAR=FILE
	go run ./e2e/stack/with-stack -- go test $(GO_TEST_FLAGS) ./e2e ./e2e/faults ./pkg/conductor/... ./pkg/definition ./cmd/perago

race: deps ## sixteen publishers race for one head, ROUNDS times (50)
	PERAGO_TEST_RACE_ROUNDS=$(or $(ROUNDS),50) go run ./e2e/stack/with-stack -- go test -race -count=1 -v -timeout 60m -run TestSixteenPublishersRaceForOneHead ./e2e

roundtrip: deps ## random trees come back as they were, CASES of them (200)
	PERAGO_TEST_CASES=$(or $(CASES),200) go run ./e2e/stack/with-stack -- go test -race -count=1 -v -timeout 20m ./e2e/roundtrip

faults: deps ## each request of a chain meets each fault, on the real servers; SEED=N, ONLY=REGEXP
	go run ./e2e/stack/with-stack -- go run ./e2e/faults $(if $(SEED),-seed $(SEED)) $(if $(ONLY),-only '$(ONLY)')

crash: deps ## the worker is killed before and after each request of a chain; SEED=N, ONLY=REGEXP
	go run ./e2e/stack/with-stack -- go run ./e2e/faults -crash $(if $(SEED),-seed $(SEED)) $(if $(ONLY),-only '$(ONLY)')

soak: ## a fleet publishes while a nemesis breaks what it can; DURATION=20m, SEED=N, STORE=Redis
	@e2e/stack/deps.sh $(if $(filter Redis,$(STORE)),redis)
	go run ./e2e/soak $(if $(STORE),-store $(STORE)) $(if $(DURATION),-duration $(DURATION)) $(if $(SEED),-seed $(SEED))

model: ## every order of the calls of several actors, within bounds; REPLAY=FILE goes one schedule
	go test -c -o bin/model.test ./e2e/model
	cd e2e/model && ../../bin/model.test $(if $(REPLAY),-test.run '^TestReplay$$' -replay '$(abspath $(REPLAY))',-test.run '^(TestModel|TestProtections|TestKeptSchedules|TestTheModelIsTheMemoryServer)$$' -test.timeout 60m -full)

fuzz: ## every fuzz target in turn, SECONDS of each (60)
	@list=$$(go test -list '^Fuzz' ./pkg/...) || { echo "$$list"; exit 1; }; n=0; failed=0; \
	for target in $$(echo "$$list" | awk '/^Fuzz/ { name[++n] = $$1 } /^ok/ { for (i = 1; i <= n; i++) print $$2 ":" name[i]; n = 0 }'); do \
		n=$$((n + 1)); \
		go test -run '^$$' -fuzz "^$${target#*:}$$" -fuzztime $(or $(SECONDS),60)s -fuzzminimizetime 5s "$${target%:*}" || failed=$$((failed + 1)); \
	done; \
	echo "fuzz: $$n targets, $$failed failures"; [ $$n -gt 0 ] && [ $$failed -eq 0 ]

bench: ## measure staging and publishing against other ways; ROUNDS=N, ONLY=REGEXP, STORE=Redis
	@e2e/stack/deps.sh bench $(if $(filter Redis,$(STORE)),redis)
	TMPDIR=$(if $(wildcard /dev/shm),/dev/shm,$${TMPDIR:-/tmp}) go run ./e2e/bench $(if $(STORE),-store $(STORE)) $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(ONLY),-only '$(ONLY)')

page: ## the page of perago explain in headless Chromium
	@e2e/stack/deps.sh page
	go test -count=1 -tags chromium ./e2e/page

check-deploy: deps ## render the chart, try the alert rules, verify the units, start the binaries from nothing
	cd deploy/check && go test -shuffle=on -count=1 -timeout 20m ./...

test-short: ## the tests that need no server
	go test -short -race -shuffle=on ./...

lint: fmt-check vet staticcheck ## the checks without the tests

vet: ## go vet
	go vet ./...

staticcheck: ## staticcheck, at the version in go.mod
	go tool staticcheck ./...

fmt-check: ## fail where gofmt would change something
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
