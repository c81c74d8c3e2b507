# Go and make are enough, and a C compiler for the race detector. PostgreSQL
# is found or fetched by internal/pg, unless DATABASE_URL names a server.

# The major version for test and test-long, such as PG=15; empty: the
# newest found.
PG ?=
# The seed of torture-short: another one looks elsewhere.
SEED ?= 1
# The versions that test-matrix runs on.
MAJORS ?= 14,15,16,17,18

withpg := go run ./internal/cmd/withpg
tool := go tool -modfile=tools/go.mod

.PHONY: demo test test-matrix test-long torture torture-short bench bench-quick bench-full bench-report lab lint fumpt vet staticcheck build oldcode

demo: ## the main job, with real processes that die and pause
	go run ./cmd/fencepost demo

test: ## all tests, with the race detector
	$(withpg) $(if $(PG),-major $(PG)) -- go test -race -timeout 25m ./...

test-matrix: ## all tests on every version, and in every exec mode of pgx on the newest found
	$(withpg) -major $(MAJORS) -- go test -race -timeout 25m ./...
	for mode in cache_describe describe_exec exec simple_protocol; do \
		echo "default_query_exec_mode=$$mode"; \
		FENCEPOST_EXEC_MODE=$$mode $(withpg) $(if $(PG),-major $(PG)) -- go test -race ./... || exit 1; \
	done

test-long: ## all tests, with many more rounds
	FENCEPOST_LONG=1 $(withpg) $(if $(PG),-major $(PG)) -- go test -race -timeout 2h ./...

torture: ## all faults and controls, and River beside: about half an hour
	cd lab && go run ./torture full

torture-short: ## at least 12 faults and 4 controls: less than 5 minutes
	cd lab && go run ./torture short --seed $(SEED)

bench: ## every suite, beside the queues that its targets name: hours; goes on where it was stopped
	cd lab && go run ./bench --resume

bench-quick: ## a look at floors, ourselves and River, one round: less than 5 minutes
	cd lab && go run ./bench --quick --out bench-out-quick

bench-full: ## every suite beside every queue, at their defaults too: many hours
	cd lab && go run ./bench --full --resume --out bench-out-full

bench-report: ## docs/benchmarks: the page and the charts of what make bench has found
	cd lab && go run ./bench report

lab: ## vet and test the nested module, and the program that may do without guards
	cd lab && go vet ./... && go vet -tags torture ./...
	cd lab && $(subst tools/,../tools/,$(tool)) staticcheck ./... && $(subst tools/,../tools/,$(tool)) staticcheck -tags torture ./...
	go vet -tags torture ./... && $(tool) staticcheck -tags torture . ./claim ./internal/torture
	$(withpg) $(if $(PG),-major $(PG)) -- go test -race -tags torture -run TestWeakenedStatements ./claim
	cd lab && go test -race -timeout 25m ./...

lint: fumpt vet staticcheck

fumpt:
	@unformatted=$$($(tool) gofumpt -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then \
		echo "not as gofumpt wants it:"; echo "$$unformatted"; exit 1; \
	fi

vet:
	go vet ./...

staticcheck:
	$(tool) staticcheck ./...

build: ## for this system, and a check that the others build
	go build ./...
	GOOS=darwin GOARCH=arm64 go vet ./...
	GOOS=windows GOARCH=amd64 go vet ./...
	GOOS=darwin GOARCH=arm64 go build ./...
	GOOS=windows GOARCH=amd64 go build ./...

# What a build of the command needs, as it was in revision REV, which knew no
# more than version N of the schema. For the last commit before a new migration:
# TestRollingUpgrade runs it beside the newest.
oldcode: ## keep old code for the upgrade test: make oldcode REV=v0.1.0 N=1
	git -c tar.tar.gz.command='gzip -9n' archive --format=tar.gz -o cmd/fencepost/testdata/oldcode/$(N).tar.gz $(REV) -- \
		go.mod go.sum ':(glob)**/*.go' ':(glob)**/*.sql' ':(exclude,glob)**/*_test.go' \
		':(exclude)internal/pgtest' ':(exclude)internal/faultproxy' ':(exclude)internal/cmd' ':(exclude)tools' ':(exclude)lab'
