package connectortest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

// Case is one fixture of an action: what is planned for some params, what is
// made of some answer, or both.
type Case struct {
	Name   string
	Action string
	Params string
	Config string
	// Request is what Plan must give; nil: any request.
	Request *connectors.Request
	// Answer is judged if its Status is not zero. Whole is taken as true.
	Answer connectors.Answer
	// Outcome, Rule, Code and Result are what Judge must say of it. Rule is the
	// index of the rule that decides, or connectors.NoRule.
	Outcome connectors.Outcome
	Rule    int
	Code    string
	Result  string
}

// Run holds a connector to its contract: pure methods, no credential in what is
// planned, no doubt turned into an answer, and every rule of every action shown
// at work by a case.
func Run(t *testing.T, c connectors.Connector, base string, cases []Case) {
	t.Helper()
	require.NotEmpty(t, cases)
	s := suite{c: c, base: base}
	for _, one := range cases {
		t.Run(one.Action+"/"+one.Name, func(t *testing.T) { s.one(t, one) })
	}
	t.Run("every rule is shown at work", func(t *testing.T) { s.coverage(t, cases) })
	for action, params := range firstParams(cases) {
		op := s.op(t, params)
		t.Run(action+"/credentials stay out of the plan", func(t *testing.T) { s.credentials(t, op) })
		t.Run(action+"/doubt stays doubt", func(t *testing.T) { s.doubt(t, op) })
		t.Run(action+"/checks", func(t *testing.T) { s.checks(t, op) })
	}
}

// Conform holds a connector to what is asked of every action, whatever its
// rules: no credential in what is planned, no doubt turned into an answer, checks
// that are pure and read nothing into an unreadable answer.
func Conform(t *testing.T, c connectors.Connector, op connectors.Op) {
	t.Helper()
	s := suite{c: c, base: op.BaseURL}
	t.Run("credentials stay out of the plan", func(t *testing.T) { s.credentials(t, op) })
	t.Run("doubt stays doubt", func(t *testing.T) { s.doubt(t, op) })
	t.Run("checks", func(t *testing.T) { s.checks(t, op) })
}

type suite struct {
	c    connectors.Connector
	base string
}

func firstParams(cases []Case) map[string]Case {
	first := make(map[string]Case)
	for _, one := range cases {
		if _, ok := first[one.Action]; !ok {
			first[one.Action] = one
		}
	}
	return first
}

func (s suite) op(t *testing.T, one Case) connectors.Op {
	t.Helper()
	op := Op(t, s.c, one.Action, one.Params)
	op.Config, op.BaseURL = []byte(one.Config), s.base
	require.NoError(t, s.c.Spec().ValidateInput(op.Action, op.Params))
	require.NoError(t, s.c.Spec().ValidateConfig(op.Config))
	return op
}

func (s suite) one(t *testing.T, one Case) {
	op := s.op(t, one)
	planned := s.plan(t, op)
	if one.Request != nil {
		require.Equal(t, one.Request.Method, planned.Method)
		require.Equal(t, one.Request.URL, planned.URL)
		require.Equal(t, string(one.Request.Body), string(planned.Body))
		for name := range one.Request.Header {
			require.Equal(t, one.Request.Header.Get(name), planned.Header.Get(name), name)
		}
	}
	if one.Answer.Status == 0 {
		return
	}
	one.Answer.Whole = true
	v := s.judge(t, op, one.Answer)
	require.Equal(t, one.Outcome, v.Outcome)
	require.Equal(t, one.Rule, v.Rule)
	require.Equal(t, one.Code, v.Code)
	require.Equal(t, one.Result, string(v.Result))
}

func (s suite) plan(t *testing.T, op connectors.Op) connectors.Request {
	t.Helper()
	first, err := s.c.Plan(t.Context(), op)
	require.NoError(t, err)
	again, err := s.c.Plan(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, first, again, "Plan must be pure")
	base := s.base
	if base == "" {
		base = s.c.Spec().BaseURL.Default
	}
	require.True(t, strings.HasPrefix(first.URL, base+"/"), "the URL must lie below the base URL")
	return first
}

func (s suite) judge(t *testing.T, op connectors.Op, a connectors.Answer) connectors.Verdict {
	t.Helper()
	first, err := s.c.Judge(t.Context(), op, a)
	require.NoError(t, err)
	again, err := s.c.Judge(t.Context(), op, a)
	require.NoError(t, err)
	require.Equal(t, first, again, "Judge must be pure")
	return first
}

func (s suite) coverage(t *testing.T, cases []Case) {
	hit := make(map[string]map[int]bool)
	for _, one := range cases {
		if hit[one.Action] == nil {
			hit[one.Action] = make(map[int]bool)
		}
		hit[one.Action][one.Rule] = hit[one.Action][one.Rule] || one.Answer.Status != 0
	}
	for name, action := range s.c.Spec().Actions {
		for rule := range action.Outcomes {
			require.True(t, hit[name][rule], "no case shows rule %d of %s", rule, name)
		}
	}
}

const sentinel = "sentinel-credential-3f9a"

func (s suite) credentials(t *testing.T, op connectors.Op) {
	auth := s.c.Spec().Auth
	creds := make(map[string]string)
	for _, name := range auth.Credentials() {
		creds[name] = sentinel
	}
	if auth.OAuth() {
		creds[connectors.AccessToken] = sentinel
	}
	planned := s.plan(t, op)
	require.Empty(t, planned.Header.Get("Authorization"))
	sent := planned.Clone()
	err := auth.Apply(&sent, creds)
	require.NoError(t, err)
	require.NotEqual(t, planned, sent, "Apply must add the credential")
	require.Equal(t, planned.Body, sent.Body)
	again := sent.Clone()
	err = auth.Apply(&again, creds)
	require.Error(t, err, "a request that has a credential already is refused")
	require.NotContains(t, err.Error(), sentinel)
}

// doubt shows every action answers that prove nothing.
func (s suite) doubt(t *testing.T, op connectors.Op) {
	bodies := map[string]connectors.Answer{
		"none":     {Whole: true},
		"null":     {Whole: true, Body: []byte("null"), Header: jsonHeader()},
		"html":     {Whole: true, Body: []byte("<html>"), Header: http.Header{"Content-Type": {"text/html"}}},
		"list":     {Whole: true, Body: []byte("[]"), Header: jsonHeader()},
		"object":   {Whole: true, Body: []byte("{}"), Header: jsonHeader()},
		"not kept": {Header: jsonHeader()},
		"cut":      {Whole: true, Body: []byte(`{"id":"x","object":"inv`), Header: jsonHeader()},
		"cut bare": {Whole: true, Body: []byte(`{"id":"x","object":"inv`)},
	}
	ambiguous := []int{0, 99, 100, 101, 103, 199, 300, 301, 302, 303, 304, 307, 308, 408, 500, 501, 502, 503, 504, 520, 599, 600, 999}
	for name, a := range bodies {
		for _, status := range ambiguous {
			a.Status = status
			v := s.judge(t, op, a)
			require.NotEqual(t, connectors.Succeeded, v.Outcome, "%d %s", status, name)
			if status < 200 || status > 599 || status/100 == 3 {
				require.Equal(t, connectors.Unknown, v.Outcome, "%d %s", status, name)
			}
		}
		if strings.HasPrefix(name, "cut") {
			for _, status := range []int{200, 201, 202, 400, 404, 409, 422, 429} {
				a.Status = status
				require.Equal(t, connectors.Unknown, s.judge(t, op, a).Outcome, "%d %s", status, name)
			}
		}
	}
}

func jsonHeader() http.Header { return http.Header{"Content-Type": {"application/json"}} }

func (s suite) checks(t *testing.T, op connectors.Op) {
	steps, err := s.c.Check(t.Context(), op)
	require.NoError(t, err)
	again, err := s.c.Check(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, steps, again, "Check must be pure")
	require.Len(t, steps, len(s.c.Spec().Actions[op.Action].Checks))
	for i, step := range steps {
		if step.Kind == connectors.Resend {
			require.Empty(t, step.Request, "a resend sends the stored bytes, nothing planned anew")
			continue
		}
		if step.Request.Method == http.MethodGet {
			require.Nil(t, step.Request.Body)
		}
		require.Empty(t, step.Request.Header.Get("Authorization"))
		for _, a := range []connectors.Answer{
			{Status: 500, Whole: true}, {Status: 200, Whole: true, Body: []byte("<html>")}, {Status: 200},
			{Status: 200, Whole: true, Body: []byte(`{"data":[`), Header: jsonHeader()}, {Status: 302, Whole: true},
		} {
			found, err := s.c.MatchLookup(t.Context(), op, i, a)
			require.NoError(t, err)
			require.Equal(t, connectors.Doubtful, found.Kind)
		}
	}
}
