package ledger

import (
	"errors"
	"fmt"
)

// ErrFormat means that a store was not written by this release or an earlier one.
var ErrFormat = errors.New("unknown store format")

// NewerFormat is what a driver says of a store whose marker names a later format
// of its layout than it knows. It wraps [ErrFormat].
//
// A marker is raised only for what an earlier release would misread, such as keys
// in another place: it would find nothing there and write a second time. A record
// that it merely cannot decode needs none, for that is refused as it stands.
func NewerFormat(found, known uint32) error {
	return fmt.Errorf("%w: written by a newer release (format %d; this one reads up to %d); "+
		"nothing is claimed: run that release again, or go back to a copy of the store from before it and accept the loss",
		ErrFormat, found, known)
}
