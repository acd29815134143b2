package actions

import (
	"sync"
	"time"

	"holdfast.dev/gateway/internal/connectors"
)

// budgets keeps this process inside what a manifest allows itself of a vendor's
// rate limit (rate_limit.budget), before the vendor has to say so. It is asked
// after the claim, like the breaker, so it never stands before a replay. A budget
// is a courtesy and not a promise: each replica has its own.
type budgets struct {
	boot func() time.Duration

	mu   sync.Mutex
	full map[string]time.Duration // when a budget will be whole again, by boot clock
}

// maxBudgets bounds the memory of connections that come and go. Past it the
// budgets are whole again, which costs the vendor a burst.
const maxBudgets = 20_000

func newBudgets(boot func() time.Duration) *budgets {
	return &budgets{boot: boot, full: make(map[string]time.Duration)}
}

// take takes one request out of a budget, or says how long until there is one.
// The budget comes back evenly over its period, and can be used up at once (the
// generic cell rate algorithm).
func (b *budgets) take(limits connectors.RateLimits, connector, connectionID string) (wait time.Duration, ok bool) {
	if limits.BudgetRequests <= 0 || limits.BudgetPer <= 0 {
		return 0, true
	}
	key := "connection/" + connectionID
	if limits.Scope == "connector" {
		key = "connector/" + connector
	}
	every := max(limits.BudgetPer/time.Duration(limits.BudgetRequests), 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.boot()
	if now == clockFailed {
		return every, false
	}
	full := max(b.full[key], now) + every
	if over := full - now - time.Duration(limits.BudgetRequests)*every; over > 0 {
		return over, false
	}
	if len(b.full) >= maxBudgets {
		clear(b.full)
	}
	b.full[key] = full
	return 0, true
}
