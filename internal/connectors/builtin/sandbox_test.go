package builtin_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/connectortest"
	"holdfast.dev/gateway/internal/sandbox"
)

// The manifest and the vendor are written apart; here they meet.
func TestSandboxManifestAgainstTheSandbox(t *testing.T) {
	vendor, err := sandbox.Start("127.0.0.1:0", sandbox.Options{Token: "t"})
	require.NoError(t, err)
	defer vendor.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	c := load(t, "sandbox@1")

	send := func(r connectors.Request) (connectors.Answer, error) {
		require.NoError(t, c.Spec().Auth.Apply(&r, map[string]string{"token": "t"}))
		req, err := http.NewRequestWithContext(t.Context(), r.Method, r.URL, bytes.NewReader(r.Body))
		require.NoError(t, err)
		req.Header = r.Header
		res, err := client.Do(req)
		if err != nil {
			return connectors.Answer{}, err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return connectors.Answer{Status: res.StatusCode, Header: res.Header, Body: body, Whole: true}, nil
	}
	for behave, want := range map[string]connectors.Outcome{
		"ok": connectors.Succeeded, "slow": connectors.Succeeded, "refuse": connectors.Refused,
		"rate_limit": connectors.Retryable, "fail_before_commit": connectors.Unknown,
	} {
		op := connectortest.Op(t, c, "create_invoice", `{"customer":"c","amount":120,"currency":"eur","memo":"m","behave":"`+behave+`","delay_ms":1}`)
		op.BaseURL = vendor.URL
		require.NoError(t, c.Spec().ValidateInput(op.Action, op.Params))
		r, err := c.Plan(t.Context(), op)
		require.NoError(t, err)
		a, err := send(r)
		require.NoError(t, err)
		v, err := c.Judge(t.Context(), op, a)
		require.NoError(t, err)
		require.Equal(t, want, v.Outcome, behave)
	}

	op := connectortest.Op(t, c, "create_invoice", `{"customer":"c","amount":120,"currency":"eur","behave":"lose_answer"}`)
	op.BaseURL, op.Marker = vendor.URL, "fedcba9876543210"
	steps, err := c.Check(t.Context(), op)
	require.NoError(t, err)
	lookup := func() connectors.FoundKind {
		a, err := send(steps[0].Request)
		require.NoError(t, err)
		found, err := c.MatchLookup(t.Context(), op, 0, a)
		require.NoError(t, err)
		return found.Kind
	}
	require.Equal(t, connectors.FoundNone, lookup())
	for _, want := range []connectors.FoundKind{connectors.FoundOne, connectors.FoundMany} {
		r, err := c.Plan(t.Context(), op)
		require.NoError(t, err)
		_, err = send(r)
		require.Error(t, err, "the answer is lost")
		require.Equal(t, want, lookup())
	}
}
