package actions

import (
	"context"
	"fmt"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// checkOf describes how a held write can be found out about, from what was kept
// of it. A check that cannot be described is a person's work, never an error:
// the answer that carries it must not fail.
func (s *Service) checkOf(ctx context.Context, scope ledger.Scope, rec *dedupe.Record) *Check {
	if !rec.State.Unsettled() {
		return nil
	}
	manual := manualCheck(rec)
	sealed, err := s.claims.Request(ctx, scope, rec.ID)
	if err != nil {
		s.log.WarnContext(ctx, "kept request not readable", "action_id", rec.ID.String(), "error", err)
		return manual
	}
	kept, err := s.openRequest(scope, rec.ID, sealed)
	if err != nil {
		s.log.WarnContext(ctx, "kept request not readable", "action_id", rec.ID.String(), "error", err)
		return manual
	}
	connector, err := s.catalog.Exact(ctx, rec.ConnectorSum)
	if err != nil {
		s.log.WarnContext(ctx, "connector version not available", "action_id", rec.ID.String(), "error", err)
		return manual
	}
	return s.describeCheck(ctx, guarded{connector}, kept.Op, rec)
}

// describeCheck puts the connector's first check step in words.
func (s *Service) describeCheck(ctx context.Context, c connectors.Connector, op connectors.Op, rec *dedupe.Record) *Check {
	steps, err := c.Check(ctx, op)
	if err != nil || len(steps) == 0 {
		return manualCheck(rec)
	}
	step := steps[0]
	for _, other := range steps {
		// A look-up can be done by whoever reads this; a resend only by the gateway.
		if other.Kind == connectors.Lookup {
			step = other
			break
		}
	}
	check := &Check{How: string(step.Kind), Settle: step.Settle, Match: step.Match}
	if step.Kind == connectors.Resend {
		check.Detail = fmt.Sprintf("Ask an operator: within %s of %s the same bytes under the same vendor key can be sent once more without a second effect.",
			step.Within, rec.Created.Format(timeForm))
		return check
	}
	check.Method, check.URL = step.Request.Method, step.Request.URL
	check.Detail = fmt.Sprintf("Look at the vendor with the given request, not before %s; a record that carries the marker %s means it was done. Finding none proves nothing by itself.",
		rec.Created.Add(step.Settle).Format(timeForm), rec.Marker)
	return check
}

const timeForm = "2006-01-02T15:04:05.000Z07:00"

func manualCheck(rec *dedupe.Record) *Check {
	return &Check{How: "manual", Detail: fmt.Sprintf(
		"Look in the account at the vendor for the effect of %s at about %s, then tell the gateway what was found with resolve.",
		rec.Action, rec.Created.Format(timeForm))}
}
