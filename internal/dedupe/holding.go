package dedupe

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"holdfast.dev/gateway/internal/ledger"
)

// Holding is how much of a scope is held.
type Holding struct {
	Held   int           // writes
	Oldest time.Duration // since the oldest of them was claimed; 0: none
}

// holdingPage is how many entries are read at once.
const holdingPage = 1000

// Holding counts the held writes of a scope. It reads the index alone: an
// action's id says when it was claimed.
func (c *Claims) Holding(ctx context.Context, scope ledger.Scope) (Holding, error) {
	var h Holding
	r := ledger.EntryRange{Index: ledger.ByHold, Limit: holdingPage}
	for {
		page, err := c.store.Entries(ctx, scope, r)
		if err != nil {
			return Holding{}, fmt.Errorf("count held writes: %w", err)
		}
		now := c.store.Now()
		for _, e := range page {
			h.Held++
			if len(e.Member) == len(ActionID{}) {
				h.Oldest = max(h.Oldest, now.Sub(ActionID([]byte(e.Member)).claimed()))
			}
		}
		if len(page) < holdingPage {
			return h, nil
		}
		r.After = &page[len(page)-1]
	}
}

// claimed is about when the action was claimed.
func (id ActionID) claimed() time.Time { return ulid.Time(ulid.ULID(id).Time()) }
