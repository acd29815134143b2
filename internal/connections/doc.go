// Package connections owns a tenant's accounts at vendors: which connector, with
// which settings and which sealed credentials, under which name.
//
// A [Book] keeps them in the ledger. Two rules shape it:
//
// A write must never be claimed on a connection that is paused, closing, changed
// or gone. Every change of a connection puts a new [ledger.Version], and a claim
// expects the version that its write was planned from, so whichever of the two
// reaches the store first, the other one notices. Deletion therefore goes in
// three steps: mark the connection as closing, which ends new claims; ask
// whether a write on it is unsettled; delete it, or take the mark off again. A
// process that dies in between leaves the mark, which reads as paused until the
// connection is deleted again or put again.
//
// A credential goes nowhere but into the sealed bytes, and comes out of them by
// [Book.Credentials] alone. They are sealed to the tenant's scope, the
// connection's id and everything that decides where a credential is sent, none
// of which ever changes: bytes moved to another connection, or a base URL
// altered in the store, do not open.
//
// The package leaves to its neighbours what a connector is and accepts
// ([Config].Validate), which writes are unsettled (dedupe), who may call
// (tenants, api), and when a credential is needed (actions).
package connections
