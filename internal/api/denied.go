package api

import (
	"context"
	"errors"
	"net/http"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// journal takes rows that tell of no change.
type journal interface {
	Append(ctx context.Context, scope ledger.Scope, rows ...audit.Row) error
}

// attempted records that an authenticated caller wanted to change something and
// was refused. What only reads leaves no row, and a `do` that got as far as the
// path of writes has left its own.
func (f *front) attempted(c *call, rt route, err error) error {
	if err == nil || rt.method == http.MethodGet {
		return err
	}
	var recorded *actions.Error
	if rt.replays && errors.As(err, &recorded) {
		return err
	}
	code := problemOf(err).code
	if status := kinds[code].status; status < 400 || status > 499 || code == rateLimited {
		return err // a refusal by a limit has its own rows, and few of them
	}
	return f.denied(c, rt, err)
}

// denied records that an authenticated caller may not make a call. Without the
// row there is no answer: a caller who probes what a key may do must be seen.
func (f *front) denied(c *call, rt route, refusal error) error {
	row := c.caller().Row(audit.Denied)
	row.Reason, row.Subject = string(problemOf(refusal).code), rt.method+":"+rt.path
	if id := c.echo.Param("id"); id != "" {
		if _, err := dedupe.ParseActionID(id); err == nil {
			row.ActionID = id
		}
	}
	if err := f.journal.Append(context.WithoutCancel(c.ctx()), c.who.Scope, row); err != nil {
		return err
	}
	return refusal
}
