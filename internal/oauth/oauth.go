// Package oauth gets access tokens of OAuth 2 (RFC 6749) for connections whose
// connector asks for them: client credentials (section 4.4) and refresh tokens
// (section 6), which may change with each use.
//
// It owns when a token is asked for and by whom: at most one request for a
// connection is on its way, whatever the number of replicas and writes, because
// many servers take the second use of a refresh token for a theft. A token
// request is no part of a write: it happens after the claim and before the first
// byte, and if it fails the write is not sent.
//
// It leaves to its neighbours how tokens are kept (connections), how a request
// leaves (wire) and how a token is shown to a vendor (connectors).
package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/wire"
)

// ErrToken means that no token could be had. The wrapping error says why in
// fixed words.
var ErrToken = errors.New("no access token")

// Book keeps tokens; *connections.Book is one.
type Book interface {
	Token(ctx context.Context, conn connections.Connection) (connections.Token, error)
	LeaseRefresh(ctx context.Context, conn connections.Connection, hold time.Duration) (connections.Lease, bool, error)
	EndRefresh(ctx context.Context, caller audit.Caller, conn connections.Connection, lease connections.Lease, token *connections.Token) error
}

// Sender is the wire.
type Sender interface {
	Send(ctx context.Context, req wire.Request, permit wire.Permit) wire.Exchange
}

// Config is what Tokens are made of; all of it is required.
type Config struct {
	Book   Book
	Sender Sender
	Now    func() time.Time // the store's clock
	Logger *slog.Logger
}

// Tokens hands out access tokens. It is safe for concurrent use.
type Tokens struct {
	c Config

	mu     sync.Mutex
	byConn map[string]*entry
}

// entry is what one process knows of one connection's tokens.
type entry struct {
	turn  chan struct{} // holds one value while somebody looks for a token
	token connections.Token
	of    int64 // version of the credentials

	rejected string // an access token that the vendor did not take
	failure  error
	failedAt time.Time
}

const (
	// skew is how long before its end a token is not used any more: it must last
	// until the request has arrived.
	skew = 30 * time.Second
	// requestTimeout bounds one request for a token, and leaseFor, which is
	// longer, how long others wait for one who died.
	requestTimeout = 10 * time.Second
	leaseFor       = 20 * time.Second
	// patience bounds the whole search for a token, less than a write's lease.
	patience  = 15 * time.Second
	pollEvery = 100 * time.Millisecond
	// failureLife keeps the writes that waited for a request that failed from
	// making it once more each.
	failureLife = time.Second
	maxEntries  = 10_000
)

// New returns tokens over a book. It starts nothing.
func New(c Config) *Tokens { return &Tokens{c: c, byConn: map[string]*entry{}} }

func (t *Tokens) entry(id string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byConn[id]
	if !ok {
		if len(t.byConn) >= maxEntries {
			clear(t.byConn) // the store has them
		}
		e = &entry{turn: make(chan struct{}, 1)}
		t.byConn[id] = e
	}
	return e
}

// Access returns an access token that is good for now. The error wraps ErrToken,
// or is one of the store's.
func (t *Tokens) Access(ctx context.Context, conn connections.Connection, auth connectors.Auth, creds map[string]string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e := t.entry(conn.ID)
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("%w: the token of this connection is being asked for", ErrToken)
	}
	if e.of != conn.CredentialVersion {
		e.token, e.of, e.rejected, e.failure = connections.Token{}, conn.CredentialVersion, "", nil
	}
	if t.good(e, e.token) {
		return e.token.Access, nil
	}
	if e.failure != nil && time.Since(e.failedAt) < failureLife {
		return "", e.failure
	}
	token, err := t.find(ctx, e, conn, auth, creds)
	if err != nil {
		e.failure, e.failedAt = err, time.Now()
		return "", err
	}
	e.token, e.failure = token, nil
	return token.Access, nil
}

// Rejected tells that a vendor did not take an access token: the next write asks
// for another, unless another replica has one already.
func (t *Tokens) Rejected(conn connections.Connection, access string) {
	e := t.entry(conn.ID)
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.rejected = access
}

func (t *Tokens) good(e *entry, token connections.Token) bool {
	return token.Access != "" && token.Access != e.rejected &&
		(token.Expires.IsZero() || t.c.Now().Add(skew).Before(token.Expires))
}

// find takes the token that is stored, or gets one if nobody else is about to.
func (t *Tokens) find(ctx context.Context, e *entry, conn connections.Connection, auth connectors.Auth, creds map[string]string) (connections.Token, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		stored, err := t.c.Book.Token(ctx, conn)
		if err != nil {
			return stored, err
		}
		if t.good(e, stored) {
			return stored, nil
		}
		lease, mine, err := t.c.Book.LeaseRefresh(ctx, conn, leaseFor)
		if err != nil {
			return stored, err
		}
		if mine {
			return t.refresh(ctx, e, conn, lease, auth, creds)
		}
		select {
		case <-ctx.Done():
			return stored, fmt.Errorf("%w: another gateway asks for it and has not come back", ErrToken)
		case <-tick.C:
		}
	}
}

// refresh asks for a token, under the lease. Whoever had the lease before may
// have stored one since this process looked.
func (t *Tokens) refresh(ctx context.Context, e *entry, conn connections.Connection, lease connections.Lease, auth connectors.Auth, creds map[string]string) (connections.Token, error) {
	// Once the request is made, what comes of it must be stored, whoever waits.
	ctx = context.WithoutCancel(ctx)
	stored, err := t.c.Book.Token(ctx, conn)
	if err == nil && t.good(e, stored) {
		return stored, t.c.Book.EndRefresh(ctx, caller(), conn, lease, nil)
	}
	var token connections.Token
	if err == nil {
		refresh := stored.Refresh
		if e.token.Refresh != "" && e.token.Expires.After(stored.Expires) {
			refresh = e.token.Refresh // one the store did not take
		}
		token, err = t.request(ctx, auth, creds, refresh)
	}
	if err != nil {
		return token, errors.Join(err, t.c.Book.EndRefresh(ctx, caller(), conn, lease, nil))
	}
	t.keep(ctx, conn, lease, token)
	return token, nil
}

// keepTries is how often a token is given to a store that does not take it, with
// growing pauses: about six seconds in all.
const keepTries = 6

// keep stores a token. If the store does not take it, this process still has it.
func (t *Tokens) keep(ctx context.Context, conn connections.Connection, lease connections.Lease, token connections.Token) {
	wait := 100 * time.Millisecond
	for try := 1; ; try++ {
		err := t.c.Book.EndRefresh(ctx, caller(), conn, lease, &token)
		if err == nil || errors.Is(err, connections.ErrNotFound) {
			return
		}
		if try == keepTries {
			t.c.Logger.ErrorContext(ctx, "token not stored; this process alone has it", "connection", conn.Name, "error", err)
			return
		}
		<-time.NewTimer(wait).C
		wait *= 2
	}
}

func caller() audit.Caller { return audit.Caller{Actor: audit.System(), Front: "oauth"} }
