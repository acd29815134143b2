package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/tenants"
)

// Each state has its words, and none says more than is known.
func TestOutcomeOfEachState(t *testing.T) {
	for _, row := range []struct {
		state    dedupe.State
		phase    string
		resolved bool
		want     any
	}{
		{dedupe.InFlight, "", false, nil},
		{dedupe.Succeeded, "answered", false, "succeeded"},
		{dedupe.Refused, "answered", false, "refused"},
		{dedupe.Held, "sent_no_answer", false, "unknown"},
		{dedupe.Lapsed, "sent_no_answer", false, "unknown"},
		{dedupe.NotDone, "not_sent", false, "not_sent"},
		{dedupe.NotDone, "answered", false, "retryable"},
		{dedupe.NotDone, "sent_no_answer", true, "not_performed"},
	} {
		g := newGateway(t)
		g.get = func(tenants.Principal, string) (actions.View, error) {
			rec := succeeded()
			rec.State, rec.Outcome, rec.Resolved = row.state, dedupe.Outcome{Phase: row.phase}, row.resolved
			return actions.View{Record: rec}, nil
		}
		body := g.send("GET", "/v1/actions/"+actionID, "").json()
		outcome, _ := body["outcome"].(map[string]any)
		ended := row.state == dedupe.NotDone || row.state == dedupe.Lapsed
		require.Equal(t, !ended, body["replay_until"] != nil, "%s: what was not done is not replayed", row.state)
		require.Equal(t, row.want, outcome["kind"], "%s %s", row.state, row.phase)
	}
}

func TestHeldProblemCarriesTheCheck(t *testing.T) {
	g := newGateway(t)
	rec := held()
	rec.Previous = &dedupe.Previous{ID: dedupe.ActionID{1}, State: dedupe.Refused, At: created}
	a := g.answerWith(&actions.Error{Code: actions.OutcomeUnknown, Detail: "D.", Record: rec, Check: lookup(), Replayed: true})
	require.Equal(t, "true", a.header.Get("Idempotent-Replayed"))
	require.Equal(t, "/v1/actions/"+actionID, a.header.Get("Location"))
	require.Equal(t, `{"type":"/problems/outcome_unknown","title":"Outcome unknown","status":423,"code":"outcome_unknown","detail":"D.",`+
		`"next":"check_vendor","request_id":"`+a.header.Get("Request-Id")+`","action_id":"`+actionID+`",`+
		`"outcome":{"kind":"unknown","phase":"sent_no_answer","reason":"deadline"},"replayed":true,`+checkMember+`,`+
		`"previous_write":{"id":"act_01000000000000000000000000","state":"refused","at":"2026-11-29T16:04:05.678Z"}}`, string(a.body))
}

func TestRefusalCarriesTheVendorsWords(t *testing.T) {
	g := newGateway(t)
	rec := succeeded()
	rec.State = dedupe.Refused
	rec.Outcome = dedupe.Outcome{Phase: "answered", VendorStatus: 404, Code: "resource_missing", Message: `No "such" customer <x>`}
	a := g.answerWith(&actions.Error{Code: actions.VendorRefused, Record: rec, Next: actions.AskOperator})
	require.Contains(t, string(a.body), `"next":"ask_operator"`)
	require.Contains(t, string(a.body), `"outcome":{"kind":"refused","phase":"answered"},"replayed":false,`+
		`"vendor":{"status":404,"code":"resource_missing","message":"No \"such\" customer <x>"}}`)
}

// The other write's outcome is not this one's: an agent reads it literally.
func TestProblemsAboutAnotherWriteDoNotTellItsOutcome(t *testing.T) {
	for _, code := range []actions.Code{actions.KeyReused, actions.TwinUnsettled} {
		g := newGateway(t)
		a := g.answerWith(&actions.Error{Code: code, Record: succeeded()})
		require.Equal(t, actionID, a.json()["action_id"])
		for _, member := range []string{"outcome", "vendor", "replayed", "previous_write"} {
			require.NotContains(t, a.json(), member)
		}
	}
}

func TestAnswerNotSavedCarriesTheAnswer(t *testing.T) {
	rec := succeeded()
	rec.State = dedupe.InFlight
	for _, row := range []struct {
		unsaved *actions.Answer
		want    string
	}{
		{jsonAnswer(`{ "id" : 1.0 }`), `"unsaved_result":{ "id" : 1.0 }}`},
		{&actions.Answer{Kind: actions.ResultBinary, ContentType: "text/html", Data: []byte("<p>")}, `"unsaved_result_base64":"PHA+","unsaved_result_content_type":"text/html"}`},
		{&actions.Answer{Kind: actions.ResultOmitted, Reason: "too_large", Bytes: 9}, `"unsaved_result_omitted":{"reason":"too_large","bytes":9}}`},
	} {
		g := newGateway(t)
		a := g.answerWith(&actions.Error{Code: actions.AnswerNotSaved, Record: rec, Unsaved: row.unsaved})
		require.Contains(t, string(a.body), `"replayed":false,"vendor":{"status":201},`+row.want)
	}
}

func TestFieldProblemsOfThePathAreShown(t *testing.T) {
	g := newGateway(t)
	a := g.answerWith(&actions.Error{Code: actions.InvalidBody, Fields: []actions.FieldProblem{{Pointer: "/body/x", Reason: "r"}}})
	require.Contains(t, string(a.body), `"errors":[{"pointer":"/body/x","detail":"r"}]`)
}

// The words of the path of a write are written as errors are; an answer's are
// sentences.
func TestDetailsAreSentences(t *testing.T) {
	for given, want := range map[string]string{
		"nothing was sent; wait":     "Nothing was sent; wait.",
		"Nothing was sent.":          "Nothing was sent.",
		"why not?":                   "Why not?",
		"7 things":                   "7 things.",
		"éclair is no ASCII letter.": "éclair is no ASCII letter.",
	} {
		g := newGateway(t)
		require.Equal(t, want, g.answerWith(&actions.Error{Code: actions.NotSent, Detail: given}).json()["detail"])
	}
}
