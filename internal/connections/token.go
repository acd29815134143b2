package connections

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/strictjson"
)

// Tokens that a vendor's authorization server issued for a connection stand
// beside it, sealed, so that all replicas use the same ones and a refresh token
// that may be used once is used once.

// Token is what an authorization server issued.
type Token struct {
	Access  string
	Refresh string    // "" if the server keeps to the one it was given
	Expires time.Time // the store's clock; zero: unknown
}

// Format implements fmt.Formatter: whatever the verb, no token is printed.
func (Token) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("token")) }

type sealedToken struct {
	Access  string `json:"access"`
	Refresh string `json:"refresh"`
}

type storedToken struct {
	V int `json:"v"`
	// Credentials is the version they were issued for: others have others.
	Credentials int64  `json:"credentials"`
	Expires     int64  `json:"expires"`
	Sealed      []byte `json:"sealed"`
}

const (
	tokenSuffix = "/token"
	leaseSuffix = "/refresh"
)

func tokenKey(name string) ledger.Key {
	return ledger.Key{Kind: ledger.Connection, ID: name + tokenSuffix}
}

func leaseKey(name string) ledger.Key {
	return ledger.Key{Kind: ledger.Connection, ID: name + leaseSuffix}
}

func tokenEntry(c *Connection) ledger.Entry {
	return ledger.Entry{Index: ledger.ByName, Score: c.CreatedAt, Member: memberPrefix + c.Name + tokenSuffix}
}

// tokenBound keeps a token apart from credentials, and binds it to the same.
func tokenBound(c *Connection) [][]byte { return append(boundTo(c), []byte("token")) }

// Token returns the tokens of a connection's present credentials, the zero Token
// if there are none. Tokens that do not open are none.
func (b *Book) Token(ctx context.Context, conn Connection) (Token, error) {
	snap, err := b.store.Read(ctx, conn.scope, ledger.Fetch{Key: tokenKey(conn.Name)})
	if err != nil {
		return Token{}, fmt.Errorf("read token: %w", err)
	}
	v, ok := snap.Get(tokenKey(conn.Name))
	if !ok {
		return Token{}, nil
	}
	var s storedToken
	if err := strictjson.Unmarshal(v.Data, &s); err != nil || s.V != storedVersion {
		return Token{}, ErrUnreadable
	}
	plain, err := b.sealer.Open(s.Sealed, tokenBound(&conn)...)
	if err != nil || s.Credentials != conn.CredentialVersion {
		return Token{}, nil //nolint:nilerr // of a lost key, or of a connection made again
	}
	var t sealedToken
	if err := strictjson.Unmarshal(plain, &t); err != nil {
		return Token{}, ErrUnreadable // the cause would quote the text
	}
	out := Token{Access: t.Access, Refresh: t.Refresh}
	if s.Expires > 0 {
		out.Expires = time.UnixMilli(s.Expires).UTC()
	}
	return out, nil
}

// Lease is the right to ask for new tokens of a connection.
type Lease struct{ version ledger.Version }

// LeaseRefresh takes the right to ask for new tokens, for at most hold, unless
// somebody has it.
func (b *Book) LeaseRefresh(ctx context.Context, conn Connection, hold time.Duration) (Lease, bool, error) {
	at := b.store.Now()
	key := leaseKey(conn.Name)
	for range 2 {
		step := ledger.Step{
			Nonce: ledger.NewNonce(), At: at,
			Expect: []ledger.Expect{{Key: key}},
			Put:    []ledger.Put{{Key: key, Data: []byte("1"), Expires: at.Add(hold)}},
			Fetch:  []ledger.Fetch{{Key: key}},
		}
		res, err := b.store.Apply(ctx, conn.scope, step)
		if err != nil {
			return Lease{}, false, fmt.Errorf("lease refresh: %w", err)
		}
		if res.Applied {
			return Lease{version: step.Nonce.Version()}, true, nil
		}
		if _, taken := res.Get(key); taken {
			return Lease{}, false, nil
		}
		at = res.Now
	}
	return Lease{}, false, nil
}

// EndRefresh gives the right back and, unless token is nil, stores what was
// issued. It stores it also if the connection was changed in the meantime or the
// right has run out: a token that is not stored may be lost for good.
func (b *Book) EndRefresh(ctx context.Context, caller audit.Caller, conn Connection, lease Lease, token *Token) error {
	if token == nil {
		_, err := b.store.Apply(ctx, conn.scope, ledger.Step{
			Nonce: ledger.NewNonce(), At: b.store.Now(),
			Expect: []ledger.Expect{{Key: leaseKey(conn.Name), Version: lease.version}},
			Delete: []ledger.Key{leaseKey(conn.Name)},
		})
		if err != nil {
			return fmt.Errorf("end refresh: %w", err)
		}
		return nil
	}
	plain, err := json.Marshal(sealedToken{Access: token.Access, Refresh: token.Refresh})
	if err != nil {
		return fmt.Errorf("encode token: %w", err)
	}
	s := storedToken{V: storedVersion, Credentials: conn.CredentialVersion, Sealed: b.sealer.Seal(plain, tokenBound(&conn)...)}
	if !token.Expires.IsZero() {
		s.Expires = token.Expires.UnixMilli()
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode token: %w", err)
	}
	_, err = audit.Change(ctx, b.store, conn.scope, []ledger.Fetch{{Key: keyOf(conn.Name)}, {Key: leaseKey(conn.Name)}},
		func(seen ledger.Snapshot, step *ledger.Step) error {
			now, err := find(seen, conn.scope, conn.Name)
			if err != nil {
				return err
			}
			if now.ID != conn.ID {
				return ErrNotFound
			}
			expect(step, now)
			if v, _ := seen.Get(leaseKey(conn.Name)); v.Version == lease.version {
				step.Expect = append(step.Expect, ledger.Expect{Key: leaseKey(conn.Name), Version: v.Version})
				step.Delete = []ledger.Key{leaseKey(conn.Name)}
			}
			step.Put = []ledger.Put{{Key: tokenKey(conn.Name), Data: data}}
			step.Index = []ledger.Entry{tokenEntry(now)}
			row := rowOf(caller, audit.ConnectionUpdated, now)
			row.Changed = []string{"token"}
			audit.Append(step, row)
			return nil
		})
	return err
}

// refreshToken seals a connection's token anew if it is outdated; nil: it is not,
// or there is none that opens.
func (b *Book) refreshToken(seen ledger.Snapshot, c *Connection) (*ledger.Put, error) {
	v, ok := seen.Get(tokenKey(c.Name))
	if !ok {
		return nil, nil
	}
	var s storedToken
	if err := strictjson.Unmarshal(v.Data, &s); err != nil || s.V != storedVersion {
		return nil, ErrUnreadable
	}
	plain, err := b.sealer.Open(s.Sealed, tokenBound(c)...)
	if err != nil || !b.sealer.Outdated(s.Sealed) {
		return nil, nil //nolint:nilerr // what does not open is no token
	}
	s.Sealed = b.sealer.Seal(plain, tokenBound(c)...)
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode token: %w", err)
	}
	return &ledger.Put{Key: tokenKey(c.Name), Data: data}, nil
}
