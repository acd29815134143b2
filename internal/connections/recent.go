package connections

import (
	"context"
	"sync"

	"holdfast.dev/gateway/internal/ledger"
)

const (
	// recentSize is how many connections are remembered.
	recentSize = 4096
	// recentBytes is how large a connection is remembered; together they bound the
	// memory at 64 MB. Most are a tenth of it, and one that is larger, up to half a
	// megabyte, is read for each call.
	recentBytes = 16 << 10
)

// Recent remembers connections as they were read, for the path of a write, which
// would otherwise read and decode the same one for each call. What it recalls may
// have changed since, here or on another replica. So nothing may be decided on it
// alone: whoever recalls a connection expects its version in the step that decides
// ([Connection.Expect]), and reads it again before he says no. Credentials are
// remembered as they are stored, sealed.
//
// It may be used from many goroutines.
type Recent struct {
	*Book

	most int

	mu    sync.Mutex
	known map[recentKey]Connection
}

type recentKey struct {
	scope ledger.Scope
	name  string
}

// NewRecent returns a memory over a book. It holds nothing yet.
func NewRecent(b *Book) *Recent {
	return &Recent{Book: b, most: recentSize, known: map[recentKey]Connection{}}
}

// Recall returns a connection as it is remembered, or else as Get has it. Recalled
// says which. The errors are those of Get.
func (r *Recent) Recall(ctx context.Context, scope ledger.Scope, name string) (c Connection, recalled bool, err error) {
	key := recentKey{scope, name}
	r.mu.Lock()
	c, recalled = r.known[key]
	r.mu.Unlock()
	if recalled {
		return c, true, nil
	}
	if c, err = r.Get(ctx, scope, name); err != nil {
		return Connection{}, false, err
	}
	if c.size() > recentBytes {
		return c, false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= r.most {
		for victim := range r.known { // any: one that is in use is soon back
			delete(r.known, victim)
			break
		}
	}
	r.known[key] = c
	return c, false, nil
}

// Forget drops what is remembered of a connection, so that it is read anew.
func (r *Recent) Forget(scope ledger.Scope, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, recentKey{scope, name})
}

// size is about how much memory the connection takes, without what each takes.
func (c Connection) size() int {
	n := len(c.Config) + len(c.BaseURL) + len(c.Account) + len(c.sealed)
	for _, name := range c.CredentialNames {
		n += len(name)
	}
	return n
}

// Expect is the condition that the connection is still as it was read.
func (c Connection) Expect() ledger.Expect {
	return ledger.Expect{Key: keyOf(c.Name), Version: c.Version}
}
