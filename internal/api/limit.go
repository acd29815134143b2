package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/tenants"
)

// Limits are what may be asked of the public API. The zero value limits nothing
// and believes no proxy.
type Limits struct {
	Tenants   *limits.Limiter   // what a tenant may use
	Addresses *limits.Addresses // what an address without a good key may ask
	Turns     *limits.Turns     // how many requests of a tenant are worked on at once
	Pauses    *limits.Pauses    // how long who asks too often waits for that answer
	// TrustedProxies may say in X-Forwarded-For whom they speak for.
	TrustedProxies []netip.Prefix
}

// limitAddress names the limit of an address in metrics.
const limitAddress = "address"

// Fields of draft-ietf-httpapi-ratelimit-headers-11.
const (
	headerRateLimit       = "RateLimit"
	headerRateLimitPolicy = "RateLimit-Policy"
)

// client finds out whose request it is. Without trusted proxies it is the
// address of the connection: what a client says of itself is not believed. With
// them it is the last address in X-Forwarded-For that is none of theirs.
func client(proxies []netip.Prefix) echo.IPExtractor {
	if len(proxies) == 0 {
		return echo.ExtractIPDirect()
	}
	options := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, p := range proxies {
		options = append(options, echo.TrustIPRange(ipNet(p)))
	}
	return echo.ExtractIPFromXFFHeader(options...)
}

func ipNet(p netip.Prefix) *net.IPNet {
	addr := p.Addr().Unmap()
	bits := p.Bits()
	if p.Addr().Is4In6() {
		bits = max(bits-96, 0)
	}
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}
}

// admitAddress counts a request against its address before anything is done for
// it, unless its key was good a moment ago. A key that turns out to be good gives
// back what was counted (authenticated).
func (f *front) admitAddress(c *call) error {
	if f.limits.Addresses == nil {
		return nil
	}
	if key, ok := bearer(c.r.Header.Values("Authorization")); ok && f.who.Known(key) {
		return nil
	}
	wait, ok := f.limits.Addresses.Take(c.echo.RealIP())
	if !ok {
		f.metrics.limited.WithLabelValues(limitAddress).Inc()
		f.pause(c, c.echo.RealIP())
		p := refuse(rateLimited, "Too many requests without a good API key came from this address, so nothing was done. Wait as long as Retry-After says.")
		p.retryAfter = wait
		return p
	}
	c.counted = true
	return nil
}

// authenticated gives back what was counted against the address of a caller whose
// key is good, or could not be looked up.
func (f *front) authenticated(c *call, err error) {
	if !c.counted {
		return
	}
	var p *problem
	if bad := errors.Is(err, tenants.ErrUnauthenticated) || errors.As(err, &p); !bad {
		f.limits.Addresses.Back(c.echo.RealIP())
	}
}

// admitTenant counts a request of a tenant and sees to the fields that tell it
// what is left.
func (f *front) admitTenant(c *call) error {
	if c.who.Platform {
		return nil
	}
	c.mostBody = f.limits.Tenants.MaxBody(c.who)
	c.echo.Response().Before(func() {
		if policy, left := f.limits.Tenants.Headers(c.who); policy != "" {
			c.w.Header().Set(headerRateLimitPolicy, policy)
			c.w.Header().Set(headerRateLimit, left)
		}
	})
	over := f.limits.Tenants.Request(c.who)
	if over == nil {
		return nil
	}
	return f.limited(c, over)
}

// limited refuses a request of a tenant, after a moment.
func (f *front) limited(c *call, over *limits.Exceeded) error {
	f.metrics.limited.WithLabelValues(over.Limit).Inc()
	if err := f.note(c, over); err != nil {
		return err
	}
	f.pause(c, c.who.TenantID)
	p := refuse(rateLimited, "")
	p.retryAfter = max(over.Wait, time.Second)
	return p
}

// pause lets a refused caller wait. Where too many wait already its connection is
// closed instead, which makes it at least dial again.
func (f *front) pause(c *call, who string) {
	if !f.limits.Pauses.Wait(c.ctx(), who) {
		c.w.Header().Set("Connection", "close")
	}
}

// admitWork waits for the request's turn, or leaves that to the reading of its
// body: a client that sends slowly must not keep a turn.
func (f *front) admitWork(c *call, rt route) error {
	if rt.bodiless || c.r.ContentLength == 0 || c.r.Method == http.MethodGet || c.r.Method == http.MethodDelete {
		return f.takeTurn(c)
	}
	c.admit = func() error { return f.takeTurn(c) }
	return nil
}

// takeTurn waits until the request may be worked on, once what there is of it is
// here. The turn ends with the first byte of the answer, or where a long wait
// begins.
func (f *front) takeTurn(c *call) error {
	turn, over := f.limits.Turns.Take(c.ctx(), c.who)
	if over != nil {
		return f.limited(c, over)
	}
	if turn != nil {
		c.turn = turn
		c.r = c.r.WithContext(limits.WithTurn(c.ctx(), turn))
		c.echo.Response().Before(turn.Leave)
	}
	return nil
}

// note records a refusal by a limit, though not each of a flood.
func (f *front) note(c *call, over *limits.Exceeded) error {
	suppressed, write := f.limits.Tenants.Note(c.who, over.Limit)
	if !write {
		return nil
	}
	row := c.caller().Row(audit.RateLimited)
	row.Reason = over.Limit
	if suppressed > 0 {
		row.Subject = "suppressed:" + strconv.FormatInt(suppressed, 10)
	}
	return f.journal.Append(context.WithoutCancel(c.ctx()), c.who.Scope, row)
}
