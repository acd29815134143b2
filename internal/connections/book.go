package connections

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/strictjson"
)

// Config is what a Book is made of. All of it is required unless it says
// otherwise.
type Config struct {
	Store  ledger.Store
	Sealer Sealer
	// Validate says whether a connector takes a spec: that it exists, that the
	// config fits its schema, that the base URL is one it may use and that the
	// credentials are those it needs. It is asked about a new connection and
	// about new credentials, always with all members present, and not about
	// anything else, so that a connection can be paused while its connector is
	// broken. It must be pure and fast, and its error must hold no credential;
	// Put returns it as it is.
	Validate func(Spec) error
	// MayUncorrelate says whether the connector of a pin can write without the
	// gateway's marker; nil: each can. Its error is returned as Validate's is.
	MayUncorrelate func(pin string) error
}

// Book keeps the connections of all tenants. It holds no state of its own and
// may be used from many goroutines.
type Book struct {
	store    ledger.Store
	sealer   Sealer
	validate func(Spec) error

	uncorrelate func(pin string) error
}

// NewBook returns a book over a store.
func NewBook(c Config) (*Book, error) {
	if c.Store == nil || c.Sealer == nil || c.Validate == nil {
		return nil, errors.New("connections: store, sealer and validate are required")
	}
	if c.MayUncorrelate == nil {
		c.MayUncorrelate = func(string) error { return nil }
	}
	return &Book{store: c.Store, sealer: c.Sealer, validate: c.Validate, uncorrelate: c.MayUncorrelate}, nil
}

// Get returns a connection, paused and closing ones too: what was written on
// them still replays. The error is ErrNotFound, wraps ErrUnreadable, or is one
// of the store's.
func (b *Book) Get(ctx context.Context, scope ledger.Scope, name string) (Connection, error) {
	if !nameForm.MatchString(name) {
		return Connection{}, ErrNotFound // nor could the store spell it
	}
	snap, err := b.store.Read(ctx, scope, ledger.Fetch{Key: keyOf(name)})
	if err != nil {
		return Connection{}, fmt.Errorf("read connection: %w", err)
	}
	c, err := find(snap, scope, name)
	if err != nil {
		return Connection{}, err
	}
	return *c, nil
}

// Put creates the connection or brings the existing one to what spec says, and
// says whether it created one. A spec that changes nothing succeeds, leaves the
// version as it is and no audit row. Putting a connection that is closing opens
// it again.
//
// Once Put has returned, no claim that expects an earlier version can be made.
// Writes that were claimed before go on.
//
// The error is a *SpecError, one of Validate's, audit.ErrClosed if the tenant has
// been deleted, or wraps ErrFixed, ErrUnreadable or one of the store's. After ledger.ErrUnavailable the change may have been
// made or not; repeating the call is right either way.
func (b *Book) Put(ctx context.Context, caller audit.Caller, scope ledger.Scope, name string, spec Spec) (conn Connection, created bool, err error) {
	if !nameForm.MatchString(name) {
		return Connection{}, false, bad("", "it must be 1 to 63 lower-case letters, digits, dashes or underscores and begin with a letter or digit")
	}
	if spec, err = spec.checked(); err != nil {
		return Connection{}, false, err
	}
	id := newID()
	var next *Connection
	step, err := audit.Change(ctx, b.store, scope, []ledger.Fetch{{Key: keyOf(name)}, {Key: keptKey(name)}},
		func(seen ledger.Snapshot, step *ledger.Step) error {
			current, err := find(seen, scope, name)
			created = errors.Is(err, ErrNotFound)
			switch {
			case created:
				next, err = b.create(caller, step, &Connection{ID: id, Name: name, scope: scope}, spec)
			case err == nil:
				next, err = b.update(caller, step, seen, current, spec)
			}
			return err
		})
	if err != nil {
		return Connection{}, false, err
	}
	if len(step.Put) > 0 {
		next.Version = step.Nonce.Version()
	}
	return *next, created, nil
}

func (b *Book) create(caller audit.Caller, step *ledger.Step, c *Connection, spec Spec) (*Connection, error) {
	spec, err := spec.complete()
	if err != nil {
		return nil, err
	}
	if err := b.validate(spec); err != nil {
		return nil, err
	}
	c.Connector, c.Config, c.BaseURL = spec.Connector, spec.Config, spec.BaseURL
	c.paused, c.AutoResend = isTrue(spec.Paused), isTrue(spec.AutoResend)
	c.MCPTools = isTrue(spec.MCPTools)
	c.SendTrace = isTrue(spec.SendTrace)
	if c.Uncorrelated = spec.Correlation != nil && !*spec.Correlation; c.Uncorrelated {
		if err := b.uncorrelate(c.Connector); err != nil {
			return nil, err
		}
	}
	c.Paused = c.paused
	c.CreatedAt, c.UpdatedAt = step.At, step.At
	if spec.Account != nil {
		c.Account = *spec.Account
	}
	if _, err := b.setCredentials(c, spec.Credentials, step.At); err != nil {
		return nil, err
	}
	c.CredentialVersion = 1
	step.Expect = []ledger.Expect{{Key: keyOf(c.Name)}}
	step.Index = []ledger.Entry{entryOf(c)}
	audit.Append(step, rowOf(caller, audit.ConnectionCreated, c))
	return c, put(step, c)
}

// update brings a connection to what spec says. If it is that already, the step
// stays empty.
func (b *Book) update(caller audit.Caller, step *ledger.Step, seen ledger.Snapshot, current *Connection, spec Spec) (*Connection, error) {
	if err := current.fixed(spec); err != nil {
		return nil, err
	}
	past, err := keptIn(seen, current.Name)
	if err != nil {
		return nil, err
	}
	next := *current
	changed, err := b.alter(&next, past, spec, step.At)
	if err != nil {
		return nil, err
	}
	if len(changed) == 0 && !current.Closing {
		return current, nil
	}
	if current.Closing {
		next.Closing = false
		audit.Append(step, rowOf(caller, audit.ConnectionReopened, &next))
	}
	if len(changed) > 0 {
		next.UpdatedAt = step.At
		row := rowOf(caller, audit.ConnectionUpdated, &next)
		row.Changed = changed
		audit.Append(step, row)
	}
	next.Paused = next.paused
	expect(step, current)
	if err := put(step, &next); err != nil {
		return nil, err
	}
	return &next, past.save(step, current)
}

// fixed refuses to change what cannot be: a write's identity, and what its
// credentials are sealed to, stand on it.
func (c *Connection) fixed(spec Spec) error {
	if spec.Connector != "" && spec.Connector != c.Connector {
		return fmt.Errorf("connector: %w", ErrFixed)
	}
	if spec.BaseURL != "" && spec.BaseURL != c.BaseURL {
		return fmt.Errorf("base_url: %w", ErrFixed)
	}
	if spec.Config == nil {
		return nil
	}
	given, err := strictjson.Canonical(spec.Config)
	if err != nil {
		return bad("/config", "it is not acceptable JSON")
	}
	have, err := strictjson.Canonical(c.Config)
	if err != nil {
		return ErrUnreadable
	}
	if !bytes.Equal(given, have) {
		return fmt.Errorf("config: %w", ErrFixed)
	}
	return nil
}

// alter changes what may change, and names what it changed.
func (b *Book) alter(c *Connection, past *kept, spec Spec, at time.Time) (changed []string, err error) {
	other, err := b.alterCredentials(c, past, spec, at)
	if err != nil {
		return nil, err
	}
	if other {
		changed = append(changed, "credentials")
	}
	if spec.Account != nil && *spec.Account != c.Account {
		c.Account = *spec.Account
		changed = append(changed, "account")
	}
	if spec.Paused != nil && *spec.Paused != c.paused {
		c.paused = *spec.Paused
		changed = append(changed, "paused")
	}
	if spec.AutoResend != nil && *spec.AutoResend != c.AutoResend {
		c.AutoResend = *spec.AutoResend
		changed = append(changed, "auto_resend")
	}
	if spec.MCPTools != nil && *spec.MCPTools != c.MCPTools {
		c.MCPTools = *spec.MCPTools
		changed = append(changed, "mcp_tools")
	}
	if spec.Correlation != nil && *spec.Correlation == c.Uncorrelated {
		if !*spec.Correlation {
			if err := b.uncorrelate(c.Connector); err != nil {
				return nil, err
			}
		}
		c.Uncorrelated = !*spec.Correlation
		changed = append(changed, "correlation")
	}
	if spec.SendTrace != nil && *spec.SendTrace != c.SendTrace {
		c.SendTrace = *spec.SendTrace
		changed = append(changed, "send_trace")
	}
	return changed, nil
}

// alterCredentials replaces credentials by new ones or by earlier ones.
func (b *Book) alterCredentials(c *Connection, past *kept, spec Spec, at time.Time) (changed bool, err error) {
	goBack := spec.CredentialVersion != 0 && spec.CredentialVersion != c.CredentialVersion
	if spec.Credentials == nil && !goBack {
		return false, nil
	}
	before := *c
	if goBack {
		if err := past.restore(c, spec.CredentialVersion); err != nil {
			return false, err
		}
		if spec.Credentials, err = b.Credentials(*c); err != nil {
			return false, err
		}
	}
	spec.Connector, spec.Config, spec.BaseURL = c.Connector, c.Config, c.BaseURL
	if err := b.validate(spec); err != nil {
		return false, err
	}
	what, err := b.setCredentials(c, spec.Credentials, at)
	if err != nil {
		return false, err
	}
	switch {
	case goBack:
		past.add(&before)
	case what == replaced:
		c.CredentialVersion = past.next(&before)
		if _, err := b.Credentials(before); err == nil { // what does not open is no way back
			past.add(&before)
		}
	}
	return goBack || what != unchanged, nil
}

func put(step *ledger.Step, c *Connection) error {
	data, err := encode(c)
	if err != nil {
		return err
	}
	step.Put = []ledger.Put{{Key: keyOf(c.Name), Data: data}}
	return nil
}

func expect(step *ledger.Step, c *Connection) {
	step.Expect = []ledger.Expect{{Key: keyOf(c.Name), Version: c.Version}}
}

func rowOf(caller audit.Caller, e audit.Event, c *Connection) audit.Row {
	row := caller.Row(e)
	row.Connection, row.Subject = c.Name, c.ID
	return row
}
