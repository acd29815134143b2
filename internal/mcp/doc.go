// Package mcp lets agents that speak the Model Context Protocol use the API of
// Holdfast as tools.
//
// The package owns the tools, the words in which an agent is told what happened
// to a write, and how strictly the envelope of a message is read. A tool makes
// one request to the REST API, with the raw bytes of its arguments as the body,
// and returns the answer as it came: there is one decoder, one set of rules and
// one encoder, those of api, so an identity cannot differ between the two. The
// API is reached in process (the front that api mounts) or over HTTP (the bridge
// of `gateway mcp`).
//
// Who asks, what they may do, and what becomes of a write is left to api and to
// what stands behind it; the protocol itself to the official SDK.
package mcp
