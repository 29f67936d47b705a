package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// job is the tests of one package in one guest.
type job struct {
	guest, pkg string
	// tests are the top-level tests to run; none means all.
	tests []string
	// sub chooses subtests by a regular expression, where a test has any.
	sub string
	// skip are tests that cannot pass there.
	skip []string
	// run is a pattern from the command line, in place of both.
	run string
	// verbose has the tests tell what they log and how long they take.
	verbose bool
}

// chosen is what every "make test" runs in guests. Both kernels are Linux 6.1 and have what the machine's own may lack:
// bonding and ip6tnl. User-mode Linux has no nft whatsoever, cannot end connections, and starts programs slowly; QEMU
// without KVM has everything and computes ten to thirty times slower. So tests that race against the clock stay on the
// machine's own kernel.
var chosen = []job{
	{guest: "uml", pkg: "test/ha", tests: []string{"TestLifeOfTheVPN"}, sub: "legacy"},
	{guest: "qemu", pkg: "test/ha", sub: "nft"},
	{guest: "qemu", pkg: "routes/rtnl", tests: []string{"TestInstallIsIdempotentAndRemoveRestores"}},
	{guest: "qemu", pkg: "sockets"},
	{guest: "qemu", pkg: "firewall/xtables", tests: []string{"TestPassingAgreesWithTheKernel", "TestTakenSetNameFallsBackToPlainRules"}},
}

// all is what "make test-vm" runs.
var all = []job{
	{guest: "uml", pkg: "test/ha", sub: "legacy"},
	{guest: "qemu", pkg: "test/ha"},
	{guest: "qemu", pkg: "routes/rtnl"},
	{guest: "qemu", pkg: "sockets"},
	{guest: "qemu", pkg: "firewall/nfnetlink"},
	// Ten thousand rules one by one take longer there than any program gets.
	{guest: "qemu", pkg: "firewall/xtables", skip: []string{"TestTenThousandPlainRules"}},
	{guest: "qemu", pkg: "test/rig"},
	// Those that wait for the agent no longer than it takes there.
	{guest: "qemu", pkg: "test/fence", tests: []string{"TestReach", "TestVPNRoutesOfAnyLength", "TestAllowedPartStaysReachable",
		"TestSignalsLeaveTheFence", "TestInitLeavesTheFence", "TestCleanupOpensAgain", "TestCleanupKeepsForeignRules", "TestForeignPaths",
		"TestDegraded", "TestOneFamilyBroken", "TestHostNetworkOfAPod", "TestHostNetworkOfThisMachine"}},
}

// testTimeout bounds the tests of one package. What hangs says where before the guest's own limit.
const testTimeout = 10 * time.Minute

// line is the job in the guest's list.
func (j job) line() string {
	args := []string{"run", quote(j.pkg), "-test.timeout=" + testTimeout.String()}
	if j.verbose {
		args = append(args, "-test.v")
	}
	if len(j.skip) > 0 {
		args = append(args, quote("-test.skip=^("+strings.Join(j.skip, "|")+")$"))
	}
	if pattern := j.pattern(); pattern != "" {
		args = append(args, quote("-test.run="+pattern))
	}
	return strings.Join(args, " ") + "\n"
}

func (j job) pattern() string {
	if j.run != "" {
		return j.run
	}
	pattern := ""
	if len(j.tests) > 0 {
		pattern = "^(" + strings.Join(j.tests, "|") + ")$"
	}
	if j.sub != "" {
		pattern += "/" + j.sub
	}
	return pattern
}

// selection is what the command line asks for.
type selection struct {
	guest, run   string
	all, verbose bool
	packages     []string
}

// jobs are those that a selection means, by guest.
func (s selection) jobs(g guest) []job {
	from := chosen
	if s.all || len(s.packages) > 0 {
		from = all
	}
	var out []job
	for _, j := range from {
		if j.guest != g.name || (s.guest != "" && s.guest != g.name) || (len(s.packages) > 0 && !slices.Contains(s.packages, j.pkg)) {
			continue
		}
		j.verbose, j.run = s.verbose, s.run
		out = append(out, j)
	}
	return out
}

// check complains about what the plan does not know, as "nothing to do" would pass for success.
func (s selection) check() error {
	for _, p := range s.packages {
		if !slices.ContainsFunc(all, func(j job) bool { return j.pkg == p && (s.guest == "" || s.guest == j.guest) }) {
			return fmt.Errorf("package %s has no tests for guest %q", p, s.guest)
		}
	}
	if s.guest != "" && !slices.ContainsFunc(guests, func(g guest) bool { return g.name == s.guest }) {
		return fmt.Errorf("no guest %s", s.guest)
	}
	return nil
}
