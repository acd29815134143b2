package oauth_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/oauth"
	"holdfast.dev/gateway/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book is a store of one connection's token that several Tokens share.
type book struct {
	mu    sync.Mutex
	token connections.Token
	until time.Time // of the lease
	fails int       // how many times a token is not taken
	kept  int
}

func (b *book) Token(context.Context, connections.Connection) (connections.Token, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.token, nil
}

func (b *book) LeaseRefresh(_ context.Context, _ connections.Connection, hold time.Duration) (connections.Lease, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.until) {
		return connections.Lease{}, false, nil
	}
	b.until = time.Now().Add(hold)
	return connections.Lease{}, true, nil
}

func (b *book) EndRefresh(_ context.Context, _ audit.Caller, _ connections.Connection, _ connections.Lease, t *connections.Token) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t != nil {
		if b.fails > 0 {
			b.fails--
			return ledger.ErrUnavailable
		}
		b.token = *t
		b.kept++
	}
	b.until = time.Time{}
	return nil
}

// server is an authorization server behind a wire.
type server struct {
	mu     sync.Mutex
	asked  []wire.Request
	answer func(n int) wire.Exchange
}

func (s *server) Send(_ context.Context, r wire.Request, _ wire.Permit) wire.Exchange {
	s.mu.Lock()
	s.asked = append(s.asked, r)
	n := len(s.asked)
	s.mu.Unlock()
	<-time.After(time.Second) // of the bubble
	return s.answer(n)
}

func (s *server) form(t *testing.T, i int) url.Values {
	t.Helper()
	v, err := url.ParseQuery(string(s.asked[i].Body))
	require.NoError(t, err)
	return v
}

func body(status int, text string) wire.Exchange {
	return wire.Exchange{Phase: wire.Answered, Status: status, Body: wire.Body{State: wire.Complete, Bytes: []byte(text)}}
}

func issued(n int) wire.Exchange {
	return body(200, fmt.Sprintf(`{"access_token":"a%d","token_type":"bearer","expires_in":3600,"refresh_token":"r%d"}`, n, n))
}

func tokens(b *book, s *server) *oauth.Tokens {
	return oauth.New(oauth.Config{Book: b, Sender: s, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
}

var (
	conn    = connections.Connection{ID: "con_1", Name: "c", CredentialVersion: 1}
	creds   = map[string]string{"id": "i:d", "secret": "s&cret", "refresh": "r0"}
	rotates = connectors.Auth{Type: connectors.OAuth2Refresh, TokenURL: "https://a.example/t", ClientID: "id", ClientSecret: "secret", RefreshToken: "refresh", Rotates: true}
)

// Many writes on two replicas make one request each time a token ends, always
// with the refresh token of the one before.
func TestOneRequestHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &book{}, &server{answer: issued}
		replicas := []*oauth.Tokens{tokens(b, s), tokens(b, s)}
		for round := 1; round <= 3; round++ {
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					access, err := replicas[i%2].Access(t.Context(), conn, rotates, creds)
					require.NoError(t, err)
					require.Equal(t, fmt.Sprint("a", round), access)
				})
			}
			all.Wait()
			require.Len(t, s.asked, round)
			require.Equal(t, fmt.Sprint("r", round-1), s.form(t, round-1).Get("refresh_token"))
			<-time.After(time.Hour)
		}
		require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte("i%3Ad:s%26cret")), s.asked[0].Header.Get("Authorization"))
		require.True(t, s.asked[0].FreshConnection)
	})
}

// A store that is away for a while does not lose a token, and one that stays away
// leaves it with this process.
func TestTokenThatTheStoreDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &book{fails: 3}, &server{answer: issued}
		tk := tokens(b, s)
		access, err := tk.Access(t.Context(), conn, rotates, creds)
		require.NoError(t, err)
		require.Equal(t, "a1", access)
		require.Equal(t, "r1", b.token.Refresh)

		<-time.After(time.Hour)
		b.fails = 100
		access, err = tk.Access(t.Context(), conn, rotates, creds)
		require.NoError(t, err)
		require.Equal(t, "a2", access)
		require.Equal(t, "r1", b.token.Refresh)
		b.fails = 0
		<-time.After(time.Hour)
		access, err = tk.Access(t.Context(), conn, rotates, creds)
		require.NoError(t, err)
		require.Equal(t, "a3", access)
		require.Equal(t, "r2", s.form(t, 2).Get("refresh_token"), "the one that only this process had")
	})
}

// Whoever died with the lease holds it up for a while, and not for ever.
func TestDeadHolderOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &book{until: time.Now().Add(20 * time.Second)}, &server{answer: issued}
		tk := tokens(b, s)
		_, err := tk.Access(t.Context(), conn, rotates, creds)
		require.ErrorIs(t, err, oauth.ErrToken, "a write does not wait longer than its lease")
		require.Empty(t, s.asked)
		<-time.After(5 * time.Second)
		_, err = tk.Access(t.Context(), conn, rotates, creds)
		require.NoError(t, err)
	})
}

// What the vendor does not take is replaced, by what another replica has if there
// is such a one; other credentials begin anew.
func TestRejectedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := &book{}, &server{answer: issued}
		here, there := tokens(b, s), tokens(b, s)
		for _, tk := range []*oauth.Tokens{here, there} {
			_, err := tk.Access(t.Context(), conn, rotates, creds)
			require.NoError(t, err)
			tk.Rejected(conn, "a1")
		}
		for _, tk := range []*oauth.Tokens{here, there} {
			access, err := tk.Access(t.Context(), conn, rotates, creds)
			require.NoError(t, err)
			require.Equal(t, "a2", access)
		}
		require.Len(t, s.asked, 2)
		b.token = connections.Token{} // as the book has it for other credentials
		other := conn
		other.CredentialVersion = 2
		access, err := here.Access(t.Context(), other, rotates, map[string]string{"id": "i", "secret": "s", "refresh": "fresh"})
		require.NoError(t, err)
		require.Equal(t, "a3", access)
		require.Equal(t, "fresh", s.form(t, 2).Get("refresh_token"))
	})
}

// Answers that are no token are errors that repeat nothing, and a burst of writes
// makes the request once.
func TestAnswersThatAreNoToken(t *testing.T) {
	for name, x := range map[string]wire.Exchange{
		"refused":    body(400, `{"error":"invalid_grant","error_description":"SENTINEL"}`),
		"no JSON":    body(200, `SENTINEL`),
		"no token":   body(200, `{"token_type":"bearer","SENTINEL":1}`),
		"other type": body(200, `{"access_token":"SENTINEL","token_type":"mac"}`),
		"redirect":   body(302, `SENTINEL`),
		"silence":    {Phase: wire.SentNoAnswer, Reason: wire.ReasonCut},
		"not sent":   {Phase: wire.NotSent, Reason: wire.ReasonEgressDenied},
		"cut":        {Phase: wire.Answered, Status: 200, Body: wire.Body{State: wire.Cut, Bytes: []byte(`{"access_token":"SENTINEL"}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, s := &book{}, &server{answer: func(int) wire.Exchange { return x }}
				tk := tokens(b, s)
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						_, err := tk.Access(t.Context(), conn, rotates, creds)
						require.ErrorIs(t, err, oauth.ErrToken)
						require.NotContains(t, err.Error(), "SENTINEL")
					})
				}
				all.Wait()
				require.Len(t, s.asked, 1)
				require.Zero(t, b.kept)
				require.True(t, b.until.IsZero(), "the lease is given back")
			})
		})
	}
}
