// Package audit owns the audit row: what one holds, how it is encoded, and how
// a scope's rows are read back.
//
// A row is a fixed struct of short words, numbers and the agent's own labels.
// It has no member that could take a body, a result, a raw key or a credential,
// and its words have a grammar that free text does not fit, so that nobody has
// to remember to leave such things out.
//
// Rows reach the store only inside the [ledger.Step] of the change they tell
// of: [Append] dates and adds them, and [Change] is the loop by which
// administration (tenants, keys, connections) changes state, which refuses a
// step that has no row. The rules of a write's life bring their own loop
// (dedupe) and use the row's encoding alone.
//
// The package leaves to its neighbours who may read which scope (api), when a
// row is due (dedupe, tenants, connections) and how rows are kept (ledger).
package audit
