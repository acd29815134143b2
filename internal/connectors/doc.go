// Package connectors is the contract between Holdfast and the vendors it
// writes to.
//
// A connector plans a request and judges an answer; it never performs I/O. The
// gateway owns the wire: it asks Plan for a request, adds the credential,
// sends once, and hands the whole answer to Judge. Because planning and judging
// are pure they can be repeated, tested from files, and run again years later
// on a stored answer by the exact version that planned the write.
//
// The package owns the words of that conversation (Spec, Op, Request, Answer,
// Verdict, CheckStep), the rules every connector shares whatever it is made of
// (credentials, base URLs, input schemas, vendor keys), and the Registry of
// loaded versions. How a manifest becomes a Connector is the business of
// package manifest, which vendors are built in that of package builtin, and
// what happens around a send that of package actions.
package connectors
