package connections

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/strictjson"
)

// Credentials maps the names that a connector's auth refers to to their values.
// It prints, logs and encodes as its names alone.
type Credentials map[string]string

// Names returns the sorted names; of none, an empty list and not nil.
func (c Credentials) Names() []string {
	names := slices.AppendSeq(make([]string, 0, len(c)), maps.Keys(c))
	slices.Sort(names)
	return names
}

// Format implements fmt.Formatter: whatever the verb, no value is printed.
func (c Credentials) Format(s fmt.State, _ rune) { _, _ = fmt.Fprintf(s, "credentials%q", c.Names()) }

// LogValue implements slog.LogValuer likewise.
func (c Credentials) LogValue() slog.Value { return slog.AnyValue(c.Names()) }

// MarshalJSON implements json.Marshaler likewise.
func (c Credentials) MarshalJSON() ([]byte, error) { return json.Marshal(c.Names()) }

// Sealer seals credentials and makes their fingerprints. *seal.Ring is one.
type Sealer interface {
	Seal(plaintext []byte, aad ...[]byte) []byte
	Open(sealed []byte, aad ...[]byte) ([]byte, error)
	// Outdated says whether a value that opens is sealed under a key that seals
	// no more.
	Outdated(sealed []byte) bool
	MAC(label string, fields ...[]byte) [32]byte
}

// Labels keep these uses of the sealer apart from everybody else's.
const (
	labelSeal        = "connection credentials"
	labelFingerprint = "connection credentials fingerprint"
)

const fingerprintBytes = 8

// plain is the form that is sealed: a JSON object, its names sorted.
func (c Credentials) plain() ([]byte, error) {
	text, err := json.Marshal(map[string]string(c))
	if err != nil {
		return nil, fmt.Errorf("encode credentials: %w", err)
	}
	return text, nil
}

// boundTo lists what sealed credentials belong to: whose they are, and what
// decides where they are sent. All of it is fixed when a connection is created.
func boundTo(c *Connection) [][]byte {
	return [][]byte{[]byte(labelSeal), c.scope[:], []byte(c.ID), []byte(c.Connector), []byte(c.BaseURL), c.Config}
}

// change says what giving a connection credentials came to.
type change int

const (
	unchanged change = iota
	resealed         // the same ones, sealed under the first secret key now
	replaced         // other ones
)

// setCredentials gives a connection its credentials. The same ones again stay
// the version they are; sealed under a secret key that is not the first any more
// they are sealed afresh, so that putting a connection again is enough to let an
// old key go.
func (b *Book) setCredentials(c *Connection, creds Credentials, at time.Time) (change, error) {
	plain, err := creds.plain()
	if err != nil {
		return unchanged, err
	}
	mark := b.fingerprint(c, plain)
	what := replaced
	if old, err := b.sealer.Open(c.sealed, boundTo(c)...); err == nil && subtle.ConstantTimeCompare(old, plain) == 1 {
		if mark == c.Fingerprint && !b.sealer.Outdated(c.sealed) {
			return unchanged, nil
		}
		what = resealed
	}
	c.CredentialNames, c.Fingerprint = creds.Names(), mark
	c.sealed = b.sealer.Seal(plain, boundTo(c)...)
	if what == replaced {
		c.CredentialsAt = at
	}
	return what, nil
}

// fingerprint is made for each connection apart, so that nobody can tell from
// two of them that an account is shared.
func (b *Book) fingerprint(c *Connection, plain []byte) string {
	sum := b.sealer.MAC(labelFingerprint, c.scope[:], []byte(c.ID), plain)
	return fmt.Sprintf("%x", sum[:fingerprintBytes])
}

// Credentials opens a connection's credentials. It needs no store. The error
// wraps ErrCredentials.
func (b *Book) Credentials(conn Connection) (map[string]string, error) {
	plain, err := b.sealer.Open(conn.sealed, boundTo(&conn)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	creds, sound := textsOf(plain)
	if !sound {
		return nil, fmt.Errorf("%w: %w", ErrCredentials, ledger.ErrCorrupt) // a cause would quote the text
	}
	return creds, nil
}

// textsOf reads an object that holds nothing but strings.
func textsOf(plain []byte) (texts map[string]string, sound bool) {
	if strictjson.Check(plain) != nil {
		return nil, false
	}
	texts = map[string]string{}
	err := strictjson.EachMember(plain, func(name, value []byte) bool {
		var text []byte
		text, sound = strictjson.Text(value)
		texts[string(name)] = string(text)
		return sound
	})
	return texts, err == nil && (sound || len(texts) == 0)
}
