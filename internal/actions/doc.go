// Package actions is the one path of a write: identify, prepare, claim, make
// ready, send, judge, settle. REST, and any front that follows, calls
// [Service.Do]; there is no second way to a vendor.
//
// The package owns the order of those steps and what may be said after each of
// them. It leaves the rules of a claim to dedupe, what a vendor's request and
// answer mean to connectors, the bytes on the wire to wire, accounts and their
// credentials to connections, and every word of HTTP to api.
package actions
