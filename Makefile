SERVERS := testdata/servers.sh
WITH_SERVERS := set -a; . ./.dev/env;

.PHONY: help build up down test demo crash soak bench dist dist-test check compiler

help:
	@echo 'make build  bin/relay, one static binary'
	@echo 'make up     start MySQL, MariaDB and RabbitMQ, wait until all answer, write .dev/env'
	@echo 'make down   stop them; their data stays'
	@echo 'make test   every test, race detector on, against the real servers'
	@echo 'make demo   writer, relay, consumers and kills, then the table (SEED=n, ARGS=...)'
	@echo 'make crash  20 minutes of faults on servers of its own, then the table (SEED=n, DURATION=3m, ARGS=...)'
	@echo 'make soak   memory and time of one transaction of 1,000,000 rows, and of a backfill of a table of 10,000,000'
	@echo 'make bench  how fast, how cheap, beside what else could do it: one table, 40 minutes (ARGS="-only drain -runs 1", ARGS=-quick)'
	@echo 'make dist   the release of this commit: .tar.gz and .deb for linux on amd64 and arm64, in dist/'
	@echo 'make dist-test  build it twice, compare, install it in a throw-away Debian, run it under systemd'
	@echo 'make check  gofmt, vet, staticcheck, go mod tidy'

build:
	CGO_ENABLED=0 go build -trimpath -buildvcs=auto -o bin/relay .

up:
	@$(SERVERS) up

down:
	@$(SERVERS) down

# The longest package comes first, and most tests wait for something: four at a time keep two cores busy.
test: compiler up
	@$(WITH_SERVERS) CGO_ENABLED=1 go test -race -count=1 -timeout 30m -parallel 4 ./relay/cli ./...

demo: up build
	@$(WITH_SERVERS) go run ./relay/relaytest/demo $(if $(SEED),-seed $(SEED)) $(ARGS)

crash: build
	@go run ./relay/relaytest/crash $(if $(SEED),-seed $(SEED)) $(if $(DURATION),-duration $(DURATION)) $(ARGS)

soak: up
	@$(WITH_SERVERS) RELAY_TEST_SOAK=1 go test -v -count=1 -timeout 3h -run '^TestFaultRelay(Memory|Backfill)$$' ./relay/cli

bench: up build
	@$(WITH_SERVERS) go run ./relay/relaytest/bench $(ARGS)

dist:
	@testdata/dist.sh

dist-test: up
	@testdata/dist-test.sh

check:
	@files=$$(gofmt -l $$(find . -name '.?*' -prune -o -name '*.go' -print)); [ -z "$$files" ] || { echo "to type: gofmt -w" $$files >&2; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	go mod tidy -diff

# The race detector needs cgo, and so a C compiler with its headers.
compiler:
	@try() { echo '#include <stdlib.h>' | $(CC) -x c -fsyntax-only - 2>/dev/null; }; \
	try || { apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev; } >&2; \
	try || { echo 'the race detector needs a C compiler: sudo apt-get install gcc libc6-dev' >&2; exit 1; }
