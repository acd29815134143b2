// Package strictjson reads JSON that must mean exactly one thing.
//
// It owns the guard in front of every body an agent sends: the raw bytes are
// checked before anything decodes them, so that no later reader (the identity,
// a schema validator, an expression, the vendor) can understand another
// document than its neighbour did. It owns the canonical form (RFC 8785) that
// identities are made of, the reading of raw tokens, which keeps every digit
// and every byte as it was sent, and a typed decode that forgives nothing.
//
// It is a leaf. It does not know what a request, a connector or a vendor is;
// which answer a refusal becomes is its callers' business.
//
// All functions are safe for concurrent use and keep no reference to their
// input beyond what they say they return.
package strictjson
