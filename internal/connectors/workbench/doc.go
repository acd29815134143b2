// Package workbench is what a connector's author works with: it lints a
// manifest, runs its fixtures, plays the faults of a vendor against it over the
// real wire, and writes a file to start from.
//
// Fixtures lie beside a manifest: fixtures.yaml beside connector.yaml, and
// name.fixtures.yaml beside name.yaml. They say what the vendor answers and
// what must be made of it, in the words of the manifest itself.
//
// What a manifest means is the business of package manifest, what leaves of it
// that of package wire; nothing here is asked while the gateway serves.
package workbench
