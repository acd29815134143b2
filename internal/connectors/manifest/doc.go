// Package manifest makes connectors out of data.
//
// A manifest is one YAML document that says how to write to one vendor: trees
// of literals and CEL expressions become a request, an ordered list of CEL
// rules reads the answer. Compile checks all of it once: its shape against a
// schema, its expressions against their types, its headers, hosts, windows and
// keys against the rules of the gateway. What it returns is a
// connectors.Connector that can only compute.
//
// The package owns everything between the bytes of a manifest and that
// interface. It reads no files, opens no connections and knows no credential;
// which manifests exist is the Registry's and package builtin's business.
//
// # Numbers
//
// An expression that is a plain selection, such as params.amount or
// body.?lines[0].id, copies the JSON token it selects, digit for digit. Any
// other expression computes, and sees numbers by their value: one with an
// integral value, however it is spelt, is an int (or a uint above the largest
// int), any other a double. One that none of these holds exactly can be passed
// on and compared for equality, and to compute with it is an error. Nothing is
// rounded in silence.
package manifest
