package connections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// maxDeletions bounds how often a deletion begins again because somebody else
// changed the connection while it ran.
const maxDeletions = 8

// reopenPatience bounds how long a deletion that was given up tries to say so.
const reopenPatience = 5 * time.Second

// errMoved: the connection is not as this deletion left it.
var errMoved = errors.New("connection changed meanwhile")

// Delete removes a connection on which no write is unsettled. unsettled is asked
// while no new write can be claimed on it; dedupe's answers that question.
//
// The error is ErrNotFound, ErrUnsettled or audit.ErrClosed, or wraps
// unsettled's, ErrUnreadable or one of the store's. After ErrUnsettled and an
// error of unsettled's the connection is as before, except that its version is
// new. After an error of the store it may be as before, closing, or gone;
// repeating the call is right in each case.
func (b *Book) Delete(
	ctx context.Context, caller audit.Caller, scope ledger.Scope, name string,
	unsettled func(ctx context.Context, scope ledger.Scope, connectionID string) (bool, error),
) error {
	if !nameForm.MatchString(name) {
		return ErrNotFound
	}
	var c *Connection
	for range maxDeletions {
		var err error
		if c, err = b.close(ctx, caller, scope, name, c); err != nil || c == nil {
			return err
		}
		open, err := unsettled(ctx, scope, c.ID)
		if err != nil || open {
			return b.giveUp(ctx, caller, c, err)
		}
		if err := b.remove(ctx, caller, c); !errors.Is(err, errMoved) {
			return err
		}
	}
	return fmt.Errorf("connection kept being changed: %w", ledger.ErrUnavailable)
}

// close ends new claims on a connection by marking it. A mark that is there
// already, left by a process that died or set by a deletion beside this one,
// serves as well: the version it carries is what this deletion stands on.
//
// before is what this deletion closed the last time round, nil the first time.
// If that one is gone the result is nil: what was to be deleted no longer
// exists, and one made since under its name is not what the caller meant.
func (b *Book) close(ctx context.Context, caller audit.Caller, scope ledger.Scope, name string, before *Connection) (*Connection, error) {
	var closing *Connection
	step, err := audit.Change(ctx, b.store, scope, []ledger.Fetch{{Key: keyOf(name)}},
		func(seen ledger.Snapshot, step *ledger.Step) error {
			c, err := find(seen, scope, name)
			if before != nil && (errors.Is(err, ErrNotFound) || err == nil && c.ID != before.ID) {
				closing = nil
				return nil
			}
			if err != nil {
				return err
			}
			if closing = c; c.Closing {
				return nil
			}
			expect(step, c)
			c.Closing, c.Paused = true, true
			audit.Append(step, rowOf(caller, audit.ConnectionClosing, c))
			return put(step, c)
		})
	if err != nil {
		return nil, err
	}
	if len(step.Put) > 0 {
		closing.Version = step.Nonce.Version()
	}
	return closing, nil
}

// remove deletes a closing connection if it is still exactly as it was when its
// writes were found settled; otherwise errMoved.
func (b *Book) remove(ctx context.Context, caller audit.Caller, c *Connection) error {
	_, err := audit.Change(ctx, b.store, c.scope, []ledger.Fetch{{Key: keyOf(c.Name)}, {Key: keptKey(c.Name)}},
		func(seen ledger.Snapshot, step *ledger.Step) error {
			if v, _ := seen.Get(keyOf(c.Name)); v.Version != c.Version {
				return errMoved
			}
			expect(step, c)
			step.Delete = []ledger.Key{keyOf(c.Name)}
			step.Unindex = []ledger.Entry{entryOf(c)}
			past, err := keptIn(seen, c.Name)
			if err != nil {
				return err
			}
			past.forget(step, c)
			// Nobody can ask for a token of a connection that is not there.
			step.Delete = append(step.Delete, tokenKey(c.Name), leaseKey(c.Name))
			step.Unindex = append(step.Unindex, tokenEntry(c))
			audit.Append(step, rowOf(caller, audit.ConnectionDeleted, c))
			return nil
		})
	return err
}

// giveUp takes the mark off and returns why. It does so although the caller has
// gone: the connection would stay closed without anybody wanting it.
func (b *Book) giveUp(ctx context.Context, caller audit.Caller, c *Connection, cause error) error {
	if cause != nil {
		cause = fmt.Errorf("look for unsettled writes: %w", cause)
	} else {
		cause = ErrUnsettled
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reopenPatience)
	defer cancel()
	_, err := audit.Change(ctx, b.store, c.scope, []ledger.Fetch{{Key: keyOf(c.Name)}},
		func(seen ledger.Snapshot, step *ledger.Step) error {
			if v, _ := seen.Get(keyOf(c.Name)); v.Version != c.Version {
				return nil // somebody else opened or deleted it
			}
			open := *c
			open.Closing, open.Paused = false, c.paused
			expect(step, c)
			audit.Append(step, rowOf(caller, audit.ConnectionReopened, &open))
			return put(step, &open)
		})
	if err != nil {
		return errors.Join(cause, fmt.Errorf("reopen connection: %w", err))
	}
	return cause
}
