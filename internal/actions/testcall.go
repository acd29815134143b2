package actions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/wire"
)

// Verdicts of a connection's test.
const (
	testPassed   = "passed"
	testFailed   = "failed"    // the vendor answered otherwise
	testNoAnswer = "no_answer" // it gave none, or was not reached
	testNone     = "untested"  // the connector has no test call
)

// TestResult is what the test of a connection came to: fixed words and numbers,
// nothing of what the vendor said.
type TestResult struct {
	Connection string
	Verdict    string // passed, failed, no_answer, untested
	Detail     string // one plain sentence
	Status     int    // of the vendor's answer; 0: none came
	Duration   time.Duration
}

// TestConnection makes the harmless read that the connector of a connection
// declares, once. It is no write: nothing is claimed, a paused connection may be
// tested, and the breaker neither stops it nor learns from it.
func (s *Service) TestConnection(ctx context.Context, p tenants.Principal, name, requestID, front string) (TestResult, error) {
	if !s.begin() {
		return TestResult{}, fail(Draining, "this gateway is shutting down; nothing was sent, repeat the request and another one answers").after(time.Second)
	}
	defer s.running.Done()
	limits.TurnOf(ctx).Leave() // a vendor may take its time
	conn, connector, e := s.testable(ctx, p, name)
	if e != nil {
		return TestResult{}, e
	}
	if !connector.Spec().Tests {
		return TestResult{Connection: name, Verdict: testNone, Detail: "The connector of this connection has no test call, so nothing was sent."}, nil
	}
	// It takes a place among the tenant's calls, and counts as one of a second.
	place, over := s.limits.Write(p)
	if over != nil {
		return TestResult{}, fail(RateLimited, "this tenant makes too many calls at once; nothing was sent. Wait as long as Retry-After says").after(clampHint(over.Wait))
	}
	defer place.Done()
	result := s.test(ctx, conn, connector)
	row := s.baseRow(ctx, Request{Principal: p, RequestID: requestID, Front: front, Connection: name})
	row.Event, row.At = audit.ConnectionTested, s.claims.Now()
	row.Outcome, row.VendorStatus, row.DurationMS = result.Verdict, result.Status, result.Duration.Milliseconds()
	if err := s.journal.Append(context.WithoutCancel(ctx), p.Scope, row); err != nil {
		return TestResult{}, storeFailure(err)
	}
	s.log.InfoContext(ctx, "connection tested", "connection", name, "verdict", result.Verdict, "request_id", requestID)
	return result, nil
}

func (s *Service) testable(ctx context.Context, p tenants.Principal, name string) (connections.Connection, connectors.Connector, *Error) {
	conn, err := s.accounts.Get(ctx, p.Scope, name)
	if errors.Is(err, connections.ErrNotFound) {
		return conn, nil, fail(NotFound, "there is no connection of that name")
	}
	if err != nil {
		return conn, nil, storeFailure(err)
	}
	if p.Suspended {
		return conn, nil, fail(TenantSuspended, "this tenant is suspended; nothing new is sent for it")
	}
	loaded, err := s.catalog.Lookup(ctx, conn.Connector)
	if errors.Is(err, connectors.ErrUnknownConnector) {
		return conn, nil, connectorMissing().cause(err)
	}
	if err != nil {
		return conn, nil, storeFailure(err)
	}
	return conn, guarded{loaded.Connector}, nil
}

// test sends the test call and judges its answer.
func (s *Service) test(ctx context.Context, conn connections.Connection, connector connectors.Connector) TestResult {
	result := TestResult{Connection: conn.Name, Verdict: testNoAnswer}
	spec := connector.Spec()
	req, err := connector.PlanTest(ctx, conn.Config, conn.BaseURL)
	if err == nil {
		var creds map[string]string
		if creds, err = s.credentials(ctx, conn, spec.Auth); err == nil {
			req = req.Clone()
			err = spec.Auth.Apply(&req, creds)
		}
		defer func() {
			if result.Status == http.StatusUnauthorized && spec.Auth.OAuth() && s.tokens != nil {
				s.tokens.Rejected(conn, creds[connectors.AccessToken])
			}
		}()
	}
	if err != nil {
		s.log.WarnContext(ctx, "connection not testable", "connection", conn.Name, "error", err)
		result.Detail = "The test could not be made from this connection's settings and credentials, so it was not sent."
		return result
	}
	x := s.sender.Send(ctx, wire.Request{Method: req.Method, URL: req.URL, Header: req.Header, Body: req.Body, Timeout: lookupTimeout}, nil)
	result.Duration = x.Duration
	if x.Phase != wire.Answered || x.Body.State == wire.Cut {
		result.Detail = fmt.Sprintf("The vendor gave no whole answer to the test (%s).", firstWord(x.Reason, string(x.Phase)))
		return result
	}
	result.Status, result.Verdict = x.Status, testFailed
	passed, err := connector.JudgeTest(ctx, conn.Config, connectors.Answer{
		Status: x.Status, Header: x.Header, Body: x.Body.Bytes, Whole: x.Body.State == wire.Complete,
	})
	if err != nil {
		s.log.WarnContext(ctx, "test not judged", "connection", conn.Name, "error", err)
	}
	switch {
	case passed:
		result.Verdict, result.Detail = testPassed, "The vendor took this connection's credentials and settings in a harmless read."
	case x.Status == http.StatusUnauthorized || x.Status == http.StatusForbidden:
		result.Detail = fmt.Sprintf("The vendor refused this connection's credentials (status %d).", x.Status)
	default:
		result.Detail = fmt.Sprintf("The vendor answered the test with status %d, and not as it does where a connection works.", x.Status)
	}
	return result
}

func firstWord(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return "unknown"
}
