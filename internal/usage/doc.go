// Package usage counts audit rows: what a tenant's agents did, per day,
// connection, action and API key.
//
// A figure here is by definition a count of audit rows, and each row counts
// where [CountRows] says. So nothing is counted in the path of a write, and
// nothing can be counted twice: rows are folded into the values of their days
// ([Fold]) in order, in one step that also moves the mark up to which rows have
// been folded. [Reader] adds the rows behind the mark to the values, at one
// instant, and so is exact at any time and cheap whenever the mark is near.
//
// The package leaves to its neighbours what a row holds (audit), when rows are
// folded (whoever seals them), and who may see which scope (api).
package usage
