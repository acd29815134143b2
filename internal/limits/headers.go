package limits

import (
	"fmt"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/tenants"
)

// Headers are the fields that tell a client what it may use and what is left:
// RateLimit-Policy and RateLimit, lists of structured items
// (draft-ietf-httpapi-ratelimit-headers-11, sections 3 and 4). Empty: there is no
// limit.
func (l *Limiter) Headers(p tenants.Principal) (policy, left string) {
	if l == nil || p.Platform || p.TenantID == "" {
		return "", ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, limit := l.of(p)
	var policies, states []string
	add := func(name string, quota int64, how string, left int64, wait time.Duration) {
		if quota > 0 {
			policies = append(policies, fmt.Sprintf("%q;q=%d%s", name, quota, how))
			states = append(states, fmt.Sprintf("%q;r=%d;t=%d", name, max(left, 0), int64((wait+time.Second-1)/time.Second)))
		}
	}
	if q := limit.RequestsPerSecond; q > 0 {
		add(Requests, q, ";w=1", s.requests.left(rate(q), s.seen), time.Second)
	}
	if q := limit.WritesPerSecond; q > 0 {
		add(Writes, q, ";w=1", s.writes.left(rate(q), s.seen), time.Second)
	}
	today, used := l.store(), s.count
	if s.day != dayOf(today) {
		used = 0
	}
	add(NewWrites, limit.NewWrites, ";w=86400", limit.NewWrites-used, dayEnd(today).Sub(today))
	add(Calls, limit.ConcurrentCalls, `;qu="concurrent-requests"`, limit.ConcurrentCalls-s.running, time.Second)
	return strings.Join(policies, ", "), strings.Join(states, ", ")
}
