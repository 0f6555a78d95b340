# Pinfold
#
#   make demo     build, and show what it does in a scratch project
#   make test     everything that CI runs
#   make test-long  what takes too long for that: all of it for root too, and with -race
#   make test-systemd  the package on real systemd, in a container; as root
#   make test-agents  real coding agents against a scripted model; takes npm
#   make build    bin/pinfoldd, bin/pinfold and bin/pinfold-mcp
#   make install  into $(DESTDIR)$(PREFIX)/bin
#   make deb rpm  dist/pinfold_VERSION_amd64.deb and dist/pinfold-VERSION.amd64.rpm; ARCH=arm64 for the other
#   make test-vm  the suite in virtual machines: old and new kernels, real systemd: testdata/vm/README.md
#   make test-vm-one  one kernel, the least of it; KERNEL=6.1 for another
#   make test-vagrant  the Vagrantfile, with a box that is built here
#   make bench    figures, side by side with plain spawning
#   make friction how often agents' commands would be asked about or denied
#   make fuzz     each fuzz test for FUZZTIME
#
# demo and test install what is missing of compiler, headers, git and python3, and
# test the programs whose facts it checks,
# when they run as root on a machine with apt-get.

PREFIX   ?= /usr/local
VERSION  ?= 0.1.0
FUZZTIME ?= 20s

ARCH     ?= amd64

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The id of a build begins with the time of its source, so that ids of commits
# can be told older from newer; the rest is a hash of what is compiled.
SOURCES = $(shell find . -path ./bin -prune -o -path ./dist -prune -o \( -name '*.go' -o -name '*.[ch]' -o -name '*.toml' -o -name '*.yaml' -o -name '*.json' -o -name 'go.*' \) -type f -print | LC_ALL=C sort)
BUILD   = $(shell git log -1 --format=%ct 2>/dev/null || echo 0)-$(shell cat $(SOURCES) | sha256sum | cut -c1-12)
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.build=$(BUILD)

.DELETE_ON_ERROR:
.PHONY: all build demo test test-long test-agents test-systemd check unit unit-as-user test-vm test-vm-one test-vagrant install deb rpm bench friction fuzz clean deps

all: build

build:
	CGO_ENABLED=1 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/pinfoldd ./cmd/pinfoldd
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/pinfold ./cmd/pinfold
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags mcp -ldflags '$(LDFLAGS)' -o bin/pinfold-mcp ./cmd/pinfold

deps:
	@sh .ci/deps

demo: deps
	@$(MAKE) --no-print-directory build
	@bash cmd/pinfold/demo.sh bin

# Recipes that compile are in makes of their own, so that they see what deps
# has installed.
test: deps
	@sh .ci/tools
	@$(MAKE) --no-print-directory build check unit
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory unit-as-user; fi

check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:" $$unformatted; exit 1; fi
	@for name in $$(grep -o '\bTest[A-Za-z0-9]*' SECURITY.md | sort -u); do \
		grep -rq --include='*_test.go' "func $$name(" . || { echo "SECURITY.md names $$name, which is no test"; exit 1; }; \
	done
	$(GO) vet ./...
	$(GO) vet -tags mcp ./cmd/pinfold
	$(GO) vet ./testdata/vm/...
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags mcp ./cmd/pinfold

# -p 1: some tests measure time, and two cores are soon shared too often.
# root's tests run commands as an ordinary user, too. The race detector makes policy,
# shparse and redact, which start no goroutine, five times slower: they do without.
# The client's tests start programs that were built without it.
unit:
	@if [ "$$(id -u)" = 0 ] && ! id -u pinfold-test >/dev/null 2>&1; then useradd --create-home --shell /bin/bash pinfold-test; fi
	PINFOLD_BIN='$(CURDIR)/bin' $(GO) test -race -short -p 1 -timeout 20m $$($(GO) list ./... | grep -vE '/(confine|policy|shparse|redact|cmd/pinfold)$$')
	PINFOLD_BIN='$(CURDIR)/bin' $(GO) test -short -timeout 20m ./cmd/pinfold
	$(GO) test -p 1 -timeout 20m ./shparse ./policy ./trace/redact
	$(GO) test -short -timeout 20m ./confine
	$(GO) test -race -timeout 20m -run 'TestManyAtOnce|TestKilled|TestSpare|TestKeeper[A-Z][a-z]*$$|TestReplacedName' -short ./confine
	PINFOLD_BIN='$(CURDIR)/bin' $(GO) test -tags mcp -run MCP ./cmd/pinfold
	$(GO) test -tags pinfold_break -run 'TestLayerLeftOut|TestKeeperBefore' ./confine

# What behaves differently without privilege, once more as an ordinary user.
unit-as-user:
	bash .ci/as-user ./cmd/pinfoldd ./cmd/pinfoldd/server
	RUN='Attacks|Named|Git|Hidden|Linked|Forged|Pinned|Grant|Runs|Killed|Leave|Limits|Bounded' bash .ci/as-user ./confine
	RUN='Table|Approvals|Killed|Sessions|Stream|Scripts|Hooks' bash .ci/as-user ./cmd/pinfold
	TAGS=pinfold_break RUN='TestLayerLeftOut|TestKeeperBefore' bash .ci/as-user ./confine

# What takes minutes: confine's tests for every caller and under the race detector,
# and every allowed command with every hostile word.
test-long: build
	$(GO) test -race -timeout 60m ./confine ./policy ./shparse
	PINFOLD_BIN='$(CURDIR)/bin' $(GO) test -race -timeout 60m ./cmd/pinfold
	if [ "$$(id -u)" = 0 ]; then bash .ci/as-user ./trace ./confine ./cmd/pinfold; fi
	PINFOLD_HOSTILE=all $(GO) test -timeout 60m -run TestHostileWords -v ./confine
	PINFOLD_BIN='$(CURDIR)/bin' PINFOLD_SNIPPETS=all $(GO) test -count=1 -timeout 30m -run TestSnippets ./cmd/pinfold
	PINFOLD_STRESS=full $(GO) test -race -count=1 -timeout 30m -run TestStress -v ./cmd/pinfoldd/server
	PINFOLD_FUZZ=5m $(GO) test -count=1 -timeout 30m -run TestKeeperFuzz -v ./confine
	@if command -v aarch64-linux-gnu-gcc >/dev/null; then bash .ci/cross bin/arm64; else echo "not built for arm64: no aarch64-linux-gnu-gcc"; fi

# Virtual machines, by emulation: see testdata/vm/README.md.
KERNEL ?= 7.3
test-vm test-vm-one test-vagrant: deps
	@sh testdata/vm/deps $@
	@$(MAKE) --no-print-directory deb
	@case $@ in \
	test-vm) testdata/vm/run ;; \
	test-vm-one) testdata/vm/run smoke $(KERNEL) ;; \
	test-vagrant) testdata/vm/vagrant/run ;; \
	esac

# Real agents, which npm installs by name, against a scripted model. AGENTS is a
# directory that has their node_modules already; PINFOLD_AGENT picks some by name.
AGENTS ?= $(CURDIR)/bin/agents
test-agents: build
	@[ -d '$(AGENTS)/node_modules' ] || { mkdir -p '$(AGENTS)' && cp testdata/agents/package.json '$(AGENTS)/' && cd '$(AGENTS)' && npm install --no-package-lock --no-audit --no-fund; }
	PINFOLD_AGENTS='$(AGENTS)' PINFOLD_BIN='$(CURDIR)/bin' $(GO) test -count=1 -tags agents -timeout 60m -run 'TestAgents' -v ./cmd/pinfold

install: build
	install -D -m 0755 bin/pinfoldd '$(DESTDIR)$(PREFIX)/bin/pinfoldd'
	install -D -m 0755 bin/pinfold '$(DESTDIR)$(PREFIX)/bin/pinfold'
	install -D -m 0755 bin/pinfold-mcp '$(DESTDIR)$(PREFIX)/bin/pinfold-mcp'

# The binaries of another architecture are built by .ci/cross; the manual pages are
# printed by those of this one.
deb rpm: build
	@if [ '$(ARCH)' = "$$($(GO) env GOARCH)" ]; then bash cmd/pinfoldd/package/build $@ $(ARCH) $(VERSION) bin; \
	else LDFLAGS='$(LDFLAGS)' bash .ci/cross bin/$(ARCH) && bash cmd/pinfoldd/package/build $@ $(ARCH) $(VERSION) bin/$(ARCH); fi

# The package on real systemd, in a container on this machine's kernel.
test-systemd: deb
	bash cmd/pinfoldd/package/test-systemd dist/pinfold_$(VERSION)_$(ARCH).deb bin

bench: build
	$(GO) run ./cmd/pinfoldd/bench
	$(GO) test -run "^$$" -bench . ./trace/redact ./confine/door

# By verdict, rule and first word, under the default and under workspace.
friction:
	@$(GO) test -count=1 -run '^TestFriction$$' -v ./policy | sed -n 's/^ *friction_test.go:[0-9]*: //p'

fuzz:
	@for package in $$($(GO) list ./...); do \
		for name in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$package || exit 1; \
		done; \
	done

clean:
	rm -rf bin dist
