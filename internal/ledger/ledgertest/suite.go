// Package ledgertest is the conformance suite of [ledger.Store]: one named test
// for each sentence of the contract, run unchanged against every driver.
//
// It owns what a driver must do; how a driver survives its own failures (a torn
// file, a lost server) is tested beside that driver. The suite reads the store
// through the contract alone, so a driver that passes it is one the packages
// above cannot tell from another.
//
// There is nothing to opt out of, save what a driver has no second client for.
package ledgertest

import (
	"testing"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Harness is one store under test and the few things the suite must do to it
// that the contract has no words for.
//
// Every case works in scopes of its own, made at random, so a driver may hand
// out harnesses over one shared server. The store's clock may run or stand
// still between calls; the suite assumes neither.
type Harness struct {
	// Store is open and answers. The harness's maker closes it, and whatever
	// Reopen and Peer returned, when the test ends; a second Close is allowed.
	Store ledger.Store

	// Advance moves the store's clock forward at once, for every client of the
	// same data and across Reopen. The next answer of the store shows it.
	Advance func(d time.Duration)

	// Reopen closes the store (or drops its client) and opens it again on the
	// same data. The Store above is not used after it.
	Reopen func(t *testing.T) ledger.Store

	// Peer opens a second client of the same data beside the first. Nil when
	// the driver allows one client only.
	Peer func(t *testing.T) ledger.Store

	// Corrupt replaces what is stored under the key by bytes the driver would
	// never write.
	Corrupt func(t *testing.T, scope ledger.Scope, key ledger.Key)
}

// Run runs the whole suite. Open is called once for each case.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	groups := []struct {
		name  string
		cases func() []testCase
	}{
		{"values", valueCases},
		{"conditions", conditionCases},
		{"nonces", nonceCases},
		{"voids", voidCases},
		{"counters", counterCases},
		{"indexes", indexCases},
		{"ranges", rangeCases},
		{"rows", rowCases},
		{"row trimming", trimRowCases},
		{"expiry", expiryCases},
		{"follow", followCases},
		{"scopes", scopeCases},
		{"contention", contentionCases},
		{"failures", failureCases},
		{"lifecycle", lifecycleCases},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases() {
				t.Run(c.name, func(t *testing.T) { c.run(newFixture(t, open(t))) })
			}
		})
	}
}

// testCase is one sentence of the contract.
type testCase struct {
	name string
	run  func(f *fixture)
}
