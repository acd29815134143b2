// Package connectortest serves the tests of connectors and of what uses them.
//
// It owns a Fake whose every answer a test can set, a small real manifest whose
// rules look at the status alone, and a suite that holds any Connector to its
// contract by fixtures. It is never linked into the binary.
package connectortest
