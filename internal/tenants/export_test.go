package tenants

import "holdfast.dev/gateway/internal/ledger"

// Mint makes the text of a key that no store knows.
func Mint(scope ledger.Scope) string {
	text, _, _ := mint(scope)
	return text
}

// SetMemorySize bounds what a directory remembers.
func SetMemorySize(d *Directory, most int) { d.known = newMemory(most) }

// Remembered counts what a directory remembers.
func Remembered(d *Directory) int { return len(d.known.keys) }
