package connections

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Errors of a Book. None carries a name, a setting or a credential.
var (
	// ErrNotFound: the scope has no connection of that name.
	ErrNotFound = errors.New("no such connection")
	// ErrFixed: an update named another connector, config or base URL. The
	// wrapping error says which of them.
	ErrFixed = errors.New("fixed when the connection was created")
	// ErrUnsettled: a write on the connection is in flight or held.
	ErrUnsettled = errors.New("connection has unsettled writes")
	// ErrUnreadable: stored bytes are not a connection this release can read.
	ErrUnreadable = fmt.Errorf("stored connection: %w", ledger.ErrCorrupt)
	// ErrCredentials: the sealed credentials do not open; the wrapped error of
	// the sealer says why.
	ErrCredentials = errors.New("credentials cannot be opened")
)

// Connection is one tenant's account at one vendor, as it stood at one moment.
type Connection struct {
	// ID is opaque and random. It stays while credentials rotate; a connection
	// deleted and made again under the same name has another one.
	ID        string
	Name      string
	Connector string // name@major
	// Config is the connector's settings: a JSON object without white space
	// between its tokens, every digit as it was given.
	Config  []byte
	BaseURL string // "": the connector's default

	// Paused says that no new write may be claimed, because an operator said so
	// or because the connection is closing.
	Paused bool
	// Closing says that a deletion has begun and has not ended.
	Closing bool
	// AutoResend lets the reconciler send a held write once more under the
	// vendor's key.
	AutoResend bool
	// MCPTools offers each action as a tool of its own to agents that speak MCP.
	// It is no permission.
	MCPTools bool
	// Uncorrelated leaves the marker out of what is written, which could find it
	// again at the vendor. The vendor's own idempotency key is sent all the same.
	Uncorrelated bool
	// SendTrace names the caller's trace to the vendor (W3C Trace Context) with
	// each write. Without it nothing of a trace leaves.
	SendTrace bool

	CreatedAt time.Time // the store's clock, to the millisecond
	UpdatedAt time.Time // last change of what a caller may change

	// Version changes with everything above. A claim on this connection must
	// expect it.
	Version ledger.Version

	// Account says for people whose account it is; may be "".
	Account string

	CredentialNames []string // sorted
	// Fingerprint changes when the credentials do, and tells nothing else about
	// them: 16 hex digits of a keyed hash.
	Fingerprint string
	// CredentialVersion numbers the credentials in use, from 1. New ones get the
	// next number; going back to earlier ones goes back to their number.
	CredentialVersion int64
	CredentialsAt     time.Time // when they were given

	scope  ledger.Scope
	sealed []byte
	paused bool // the operator's word alone
}

// Format implements fmt.Formatter: whatever the verb, only the id, the name and
// the connector are printed.
func (c Connection) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "connection %s (%s, %s)", c.ID, c.Name, c.Connector)
}

// LogValue implements slog.LogValuer likewise.
func (c Connection) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", c.ID), slog.String("name", c.Name), slog.String("connector", c.Connector))
}

const idPrefix = "con_"

func newID() string { return idPrefix + rand.Text() }

func keyOf(name string) ledger.Key { return ledger.Key{Kind: ledger.Connection, ID: name} }
