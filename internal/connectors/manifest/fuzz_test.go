package manifest_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

// A manifest is refused with a reason or works; it never panics, and what it
// plans stays on its own host.
func FuzzManifest(f *testing.F) {
	f.Add(small)
	for _, name := range []string{"slack.yaml", "github.yaml"} {
		f.Add(testdata(f, name))
	}
	for _, seed := range []string{"a: &a [*a]", "? {a: b}\n: c", "{<<: {}}", "--- \n...\n---\n", "!!binary x", "%YAML 1.2\n---\na", "a: |\n b", "\x00", "- - - -"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, yaml string) {
		c, err := compile(t, yaml)
		if err != nil {
			var bad *connectors.ManifestError
			require.ErrorAs(t, err, &bad)
			require.NotEmpty(t, bad.Problems)
			for _, p := range bad.Problems {
				require.NotEmpty(t, p.Reason)
			}
			return
		}
		spec := c.Spec()
		for name, a := range spec.Actions {
			require.GreaterOrEqual(t, connectors.MaxTimeout, a.Timeout)
			require.True(t, json.Valid(a.Input.JSON()))
			op := makeOp(`{"id":"x"}`)
			op.Action, op.BaseURL = name, "https://host.example"
			if a.Idempotency == nil {
				op.VendorKey = ""
			}
			r, err := c.Plan(t.Context(), op)
			if err == nil {
				require.Regexp(t, `^https://host\.example/[^ ]*$`, r.URL)
			}
			_, _ = c.Check(t.Context(), op)
			_, _ = c.Judge(t.Context(), op, answer(200, `{"id":1}`))
		}
	})
}

// Whatever a vendor answers, judging ends, repeats itself, and says succeeded
// only for a status a rule names.
func FuzzJudge(f *testing.F) {
	for _, body := range append([]string{
		`{"ok":true}`, `{"ok":false,"error":"x"}`, `{"data":[{"m":"` + marker + `"}]}`, `{`, `[`, `"`, "null", "\xff", `{"id":1e999999999999}`,
		`{"a":{"a":{"a":[]}}}`, `{"ok":true,"ok":false}`, `{"\ud800":1}`, `<html>`, ``,
	}, tokens...) {
		f.Add(200, "application/json", "7", []byte(body))
		f.Add(400, "", "Mon, 04 May 2026 03:02:01 GMT", []byte(body))
	}
	var all []connectors.Connector
	for _, yaml := range []string{small, testdata(f, "slack.yaml"), testdata(f, "github.yaml")} {
		all = append(all, mustCompile(f, yaml))
	}
	f.Fuzz(func(t *testing.T, status int, kind, wait string, body []byte) {
		for _, c := range all {
			for name := range c.Spec().Actions {
				op := makeOp(`{"id":"x","channel":"C1","text":"t","owner":"o","repo":"r","title":"t"}`)
				op.Action = name
				a := answer(status, string(body), "Content-Type", kind, "Retry-After", wait)
				v, err := c.Judge(t.Context(), op, a)
				require.NoError(t, err)
				again, err := c.Judge(t.Context(), op, a)
				require.NoError(t, err)
				require.Equal(t, v, again)
				if v.Outcome == connectors.Succeeded {
					require.Contains(t, []int{200, 201}, status)
				}
				if v.Result != nil {
					require.True(t, json.Valid(v.Result), "%q", v.Result)
				}
				for step := range c.Spec().Actions[name].Checks {
					found, err := c.MatchLookup(t.Context(), op, step, a)
					if errors.Is(err, connectors.ErrPlan) {
						continue // a resend
					}
					require.NoError(t, err)
					require.True(t, found.Result == nil || json.Valid(found.Result))
				}
			}
		}
	})
}

// Whatever an agent sends, what is planned is JSON, copies its tokens and
// repeats itself.
func FuzzPlan(f *testing.F) {
	for _, token := range tokens {
		f.Add([]byte(`{"v":` + token + `}`))
	}
	for _, v := range hostile {
		f.Add([]byte(quoted(f, v)))
	}
	whole := mustCompile(f, requestTo(`path: "/v1/{params.v}", encoding: json, query: {q: {$: params.v}}, headers: {X-V: {$: params.v}}, body: {a: {$: params.v}, b: {$: "[params.v]"}}`))
	f.Fuzz(func(t *testing.T, params []byte) {
		r, err := plan(t, whole, string(params))
		if err != nil {
			return
		}
		require.True(t, json.Valid(r.Body), "%q", r.Body)
		again, err := plan(t, whole, string(params))
		require.NoError(t, err)
		require.Equal(t, r, again)
		got := received(t, r)
		require.Equal(t, "api.acme.example", got.Host)
		require.Len(t, got.Header, 5)
	})
}
