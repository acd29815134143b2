// Package archive seals audit rows: it turns the rows of a scope into segments
// that prove themselves whole, keeps them in a folder or a bucket, reads them
// back, verifies them, and lets them go when their time is over.
//
// # Proof
//
// Every row of a scope has a number, from 1 and without gaps, and a hash that
// covers the row and the hash of the row before it (see [Hash.Next]). A
// [Checkpoint] signs the hash of one row and with it every row up to there.
// Whoever keeps a checkpoint can hold any later copy of the log against it.
//
// # Segments
//
// A segment is a run of rows between a header and a checkpoint, one JSON value
// in each line, compressed as a whole in storage. Segments one after another are
// the log; so an export is that, and [Verify] reads exactly that.
//
// # Sealing
//
// Rows are written once, in the step of the change they tell of. Everything here
// is derived from them afterwards, by a [Sealer] in every replica: it reads the
// rows behind the scope's head, stores a segment, reads it back, and then moves
// the head in one atomic step that expects the head it began with. So of two that
// seal the same rows one is recorded, whatever was stored before that step counts
// for nothing, and whatever came after it can be done again.
//
// The package leaves to its neighbours what a row holds (audit), which rows a
// caller asks for (audit, api), and what else is derived from rows (usage: the
// program hands it in as a [Derivation]).
package archive
