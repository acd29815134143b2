// Package trail reads a scope's audit rows as one log, whether they are still in
// the store or sealed away in the archive: page by page ([Log.Query]) and as a
// stream ([Log.Export]).
//
// A row's place is its cursor in the store, which a segment keeps. So a place
// stays good while rows are added behind it and while the row itself moves into
// the archive. What is sealed is read from the archive, also while the store
// still has it: there the terms of a segment say which ones to leave unopened.
//
// The package leaves to its neighbours what a row holds and which a filter
// selects (audit), how segments are made and proven (archive), and who may read
// which scope (api).
package trail
