package audit_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 4, 12, 0, 0, 250_000_000, time.UTC)

func full() audit.Row {
	return audit.Row{
		Event: audit.Succeeded, At: noon, Tenant: "acme",
		Actor: audit.Actor{Kind: audit.KindKey, KeyID: "k1"}, Front: "rest",
		RequestID: "req_1", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
		ActionID: "act_1", Connection: "billing", Action: "create_invoice",
		Identity: "9f2c000000000000", KeySource: "derived",
		Outcome: "succeeded", Reason: "answered", VendorStatus: 201, DurationMS: 12,
		Subject: "s", Changed: []string{"paused", "credentials"},
		Meta: map[string]string{"run": "7", "call": "a\"b\n"},
	}
}

// The form is public: exports and sealed segments are these bytes.
func TestEncodedForm(t *testing.T) {
	require.Equal(t, `{"v":1,"event":"succeeded","at":"2026-03-04T12:00:00.250Z","tenant":"acme",`+
		`"actor":{"kind":"key","key_id":"k1"},"front":"rest","request_id":"req_1",`+
		`"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","action_id":"act_1","connection":"billing",`+
		`"action":"create_invoice","identity":"9f2c000000000000","key_source":"derived",`+
		`"outcome":"succeeded","reason":"answered","vendor_status":201,"duration_ms":12,`+
		`"subject":"s","changed":["paused","credentials"],"meta":{"call":"a\"b\n","run":"7"}}`,
		string(full().Encode()))

	require.Equal(t, `{"v":1,"event":"lapsed","at":"2026-03-04T12:00:00.250Z","actor":{"kind":"system"}}`,
		string(audit.Row{Event: audit.Lapsed, At: noon, Actor: audit.System()}.Encode()))
}

func TestDecodeReturnsWhatWasEncoded(t *testing.T) {
	for _, row := range []audit.Row{full(), {Event: audit.Held, At: noon, Actor: audit.System()}} {
		got, err := audit.Decode(row.Encode())
		require.NoError(t, err)
		require.Equal(t, row, got)
	}
}

func TestTimesAreKeptToTheMillisecondInUTC(t *testing.T) {
	row := full()
	row.At = time.Date(2026, 3, 4, 13, 0, 0, 250_999_999, time.FixedZone("", 3600))
	got, err := audit.Decode(row.Encode())
	require.NoError(t, err)
	require.Equal(t, noon, got.At)
}

// What no member exists for cannot be recorded by mistake.
func TestRowHasNoPlaceForPayloads(t *testing.T) {
	allowed := map[string]bool{}
	for _, name := range strings.Fields("Event At Tenant Actor Front RequestID TraceID ActionID Connection Action " +
		"Identity KeySource Outcome Reason VendorStatus DurationMS Subject Changed Meta") {
		allowed[name] = true
	}
	for f := range reflect.TypeFor[audit.Row]().Fields() {
		require.True(t, allowed[f.Name], "member %s: is there no way to do without? A row goes to people who may not see payloads", f.Name)
		require.NotContains(t, []reflect.Kind{reflect.Interface, reflect.Pointer, reflect.Func}, f.Type.Kind())
		require.NotEqual(t, reflect.TypeFor[[]byte](), f.Type)
	}
}

// Every text but the labels is a word, whoever fills it in.
func TestTextThatIsNoWordIsReplaced(t *testing.T) {
	for name, text := range map[string]string{
		"a body":         `{"amount":100}`,
		"blanks":         "two words",
		"a line break":   "a\nb",
		"a quote":        `a"b`,
		"a backslash":    `a\b`,
		"not ASCII":      "naïve",
		"invalid UTF-8":  "a\xffb",
		"a long text":    strings.Repeat("a", audit.MaxWord+1),
		"a NUL":          "a\x00",
		"a DEL":          "a\x7f",
		"only one blank": " ",
	} {
		t.Run(name, func(t *testing.T) {
			var row audit.Row
			v := reflect.ValueOf(&row).Elem()
			for i := range v.NumField() {
				if v.Field(i).Kind() == reflect.String {
					v.Field(i).SetString(text)
				}
			}
			row.At, row.Actor, row.Changed = noon, audit.Actor{Kind: text, KeyID: text}, []string{text}

			got, err := audit.Decode(row.Encode())

			require.NoError(t, err)
			v = reflect.ValueOf(got)
			for i := range v.NumField() {
				if v.Field(i).Kind() == reflect.String {
					require.Equal(t, audit.InvalidWord, v.Field(i).String(), v.Type().Field(i).Name)
				}
			}
			require.Equal(t, audit.Actor{Kind: audit.InvalidWord, KeyID: audit.InvalidWord}, got.Actor)
			require.Equal(t, []string{audit.InvalidWord}, got.Changed)
		})
	}
}

func TestLabelsAreBounded(t *testing.T) {
	row := full()
	row.Meta = map[string]string{"long": strings.Repeat("é", audit.MaxMetaBytes), "bad": "a\xffb"}
	for i := range 40 {
		row.Meta[fmt.Sprintf("z%02d", i)] = "x"
	}
	got, err := audit.Decode(row.Encode())
	require.NoError(t, err)
	require.Len(t, got.Meta, audit.MaxMeta)
	require.Equal(t, strings.Repeat("é", audit.MaxMetaBytes/2), got.Meta["long"])
	require.Equal(t, "a\uFFFDb", got.Meta["bad"])

	row.Changed = slices.Repeat([]string{"paused"}, 1000)
	row.Meta = map[string]string{"odd": "x" + strings.Repeat("é", audit.MaxMetaBytes)}
	got, err = audit.Decode(row.Encode())
	require.NoError(t, err)
	require.True(t, utf8.ValidString(got.Meta["odd"]), "cut at a character's border")
	require.Len(t, got.Meta["odd"], audit.MaxMetaBytes-1)
}

func TestRowIsOneLine(t *testing.T) {
	row := full()
	row.Meta = map[string]string{"a": "line\nbreak\r\u2028\u2029"}
	require.NotContains(t, string(row.Encode()), "\n")
	require.NotContains(t, string(row.Encode()), "\r")
	require.NotContains(t, string(row.Encode()), "\u2028")
}

func manyLabels() string {
	var labels []string
	for i := range audit.MaxMeta {
		labels = append(labels, fmt.Sprintf(`"%d":""`, i))
	}
	return strings.Join(labels, ",")
}

func TestDecodeForgivesNothing(t *testing.T) {
	good := string(full().Encode())
	for name, bad := range map[string]string{
		"nothing":        "",
		"not JSON":       "claimed",
		"cut":            good[:len(good)-1],
		"trailing":       good + "{}",
		"unknown member": strings.Replace(good, `"tenant"`, `"body"`, 1),
		"other case":     strings.Replace(good, `"tenant"`, `"Tenant"`, 1),
		"twice":          strings.Replace(good, `"tenant":"acme"`, `"tenant":"acme","tenant":"evil"`, 1),
		"other version":  strings.Replace(good, `"v":1`, `"v":2`, 1),
		"no version":     strings.Replace(good, `"v":1,`, ``, 1),
		"no event":       strings.Replace(good, `"event":"succeeded",`, ``, 1),
		"no time":        strings.Replace(good, `"at":"2026-03-04T12:00:00.250Z",`, ``, 1),
		"other time":     strings.Replace(good, `12:00:00.250Z`, `12:00:00.25Z`, 1),
		"zone":           strings.Replace(good, `12:00:00.250Z`, `12:00:00.250+01:00`, 1),
		"comma":          strings.Replace(good, `00.250Z`, `00,250Z`, 1),
		"many labels":    strings.Replace(good, `"run":"7"`, manyLabels(), 1),
		"no word":        strings.Replace(good, `"acme"`, `"ac me"`, 1),
		"negative":       strings.Replace(good, `201`, `-201`, 1),
		"fraction":       strings.Replace(good, `201`, `201.5`, 1),
		"string number":  strings.Replace(good, `201`, `"201"`, 1),
		"null":           strings.Replace(good, `"acme"`, `null`, 1),
		"meta no string": strings.Replace(good, `"run":"7"`, `"run":7`, 1),
		"long label":     strings.Replace(good, `"run":"7"`, `"run":"`+strings.Repeat("x", 257)+`"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := audit.Decode([]byte(bad))
			require.ErrorIs(t, err, audit.ErrUnreadable)
			require.ErrorIs(t, err, ledger.ErrCorrupt)
			require.NotContains(t, err.Error(), "acme")
		})
	}
}

func TestEventsOfANewerReleaseAreRead(t *testing.T) {
	row := full()
	row.Event = "store.failed_over"
	got, err := audit.Decode(row.Encode())
	require.NoError(t, err)
	require.Equal(t, row, got)
	require.False(t, got.Event.Known())
}

func TestEventsAreTheContracts(t *testing.T) {
	const ofDo = "claimed, succeeded, refused, held, not_sent, released, replayed, in_flight, key_reused, twin_refused, " +
		"recovered, lease_lost, late_answer, held_repeat, lapsed, not_done, checked, resolved, denied, rate_limited"
	var plain []string
	for _, e := range audit.Events() {
		require.True(t, e.Known())
		kind, what, admin := strings.Cut(string(e), ".")
		if !admin {
			plain = append(plain, string(e))
			continue
		}
		require.Contains(t, []string{"tenant", "key", "connection", "connector", "store"}, kind)
		require.NotEmpty(t, what)
	}
	require.Equal(t, ofDo, strings.Join(plain, ", "))
}

// The archive keeps the terms of a segment's rows to know where not to look.
func TestTermsOfARow(t *testing.T) {
	require.Equal(t, []string{
		"event=succeeded", "connection=billing", "action=create_invoice", "action_id=act_1", "key_id=k1",
		"identity=9f2c000000000000", "outcome=succeeded", "meta.call=a\"b\n", "meta.run=7",
	}, termsOf(full()))
	require.Equal(t, []string{"event=lapsed"}, termsOf(audit.Row{Event: audit.Lapsed, Actor: audit.System(), Subject: "s"}))
	require.Equal(t, []string{"key_id=k1", "meta.a="}, audit.Filter{KeyID: "k1", Meta: map[string]string{"a": ""}}.Terms())
	require.Empty(t, audit.Filter{Since: noon, Until: noon}.Terms())
}

func termsOf(r audit.Row) (terms []string) {
	audit.EachTerm(r, func(term []byte) { terms = append(terms, string(term)) })
	return terms
}

func TestAppendDatesRowsWithTheStep(t *testing.T) {
	step := ledger.Step{At: noon}
	caller := audit.Caller{Tenant: "acme", Actor: audit.Actor{Kind: audit.KindKey, KeyID: "k1"}, Front: "mcp", RequestID: "r", TraceID: "t"}
	audit.Append(&step, caller.Row(audit.KeyCreated), caller.Row(audit.KeyRevoked))

	require.Len(t, step.Rows, 2)
	got, err := audit.Decode(step.Rows[1])
	require.NoError(t, err)
	require.Equal(t, audit.Row{
		Event: audit.KeyRevoked, At: noon, Tenant: "acme", Actor: caller.Actor, Front: "mcp", RequestID: "r", TraceID: "t",
	}, got)
}

func FuzzDecode(f *testing.F) {
	f.Add(full().Encode())
	f.Add(audit.Row{Event: audit.Held, At: noon}.Encode())
	f.Add([]byte(`{"v":1,"event":"x","at":"2026-03-04T12:00:00.250Z","actor":{"kind":""},"meta":{"":""}}`))
	f.Add([]byte(`{"at":"0000-01-01T00:00:00.000Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		row, err := audit.Decode(data)
		if err != nil {
			return
		}
		again, err := audit.Decode(row.Encode())
		require.NoError(t, err, "what was read can be written and read")
		require.True(t, bytes.Equal(row.Encode(), again.Encode()))
	})
}

func FuzzEncodeNeverFails(f *testing.F) {
	f.Add("claimed", "acme", "label", "value", 200)
	f.Add("a\"b", "\xff", "", "\u2028", -1)
	f.Fuzz(func(t *testing.T, event, tenant, name, value string, status int) {
		if event == "" {
			return
		}
		row := audit.Row{Event: audit.Event(event), At: noon, Tenant: tenant, VendorStatus: status, Meta: map[string]string{name: value}}
		_, err := audit.Decode(row.Encode())
		require.NoError(t, err)
		require.NotContains(t, string(row.Encode()), "\n")
	})
}

func BenchmarkEncode(b *testing.B) {
	row := full()
	row.Meta, row.Changed = nil, nil
	b.ReportAllocs()
	for b.Loop() {
		row.Encode()
	}
}
