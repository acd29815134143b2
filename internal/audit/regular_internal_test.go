package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

func typical() Row {
	return Row{
		Event: Succeeded, At: time.Date(2026, 3, 4, 12, 0, 0, 250_000_000, time.UTC), Tenant: "acme",
		Actor: Actor{Kind: KindKey, KeyID: "01J8ZQ4T7V"}, Front: "rest", RequestID: "req_01J8ZQ4T7VQ2W3E4R5T6Y7U8I9",
		TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", ActionID: "act_01J8ZQ4T7VQ2W3E4R5T6Y7U8I9",
		Connection: "billing", Action: "create_invoice", Identity: "9f2c000000000000", KeySource: "derived",
		Outcome: "succeeded", VendorStatus: 201, DurationMS: 112, Meta: map[string]string{"run": "7", "step": "naïve 3"},
	}
}

// Rows as they come are looked past at the small price.
func TestOrdinaryRowsAreRegular(t *testing.T) {
	for _, r := range []Row{
		typical(),
		{Event: Lapsed, At: typical().At, Actor: System()},
		{Event: Lapsed, At: typical().At},
		{Event: "x", At: time.Date(2028, 2, 29, 23, 59, 59, 999_000_000, time.UTC)},
		{Event: ConnectionUpdated, At: typical().At, Subject: "s", Changed: []string{"paused", "config"}},
		{Event: Claimed, At: typical().At, Meta: map[string]string{"": ""}},
	} {
		row, ok := regular(string(r.Encode()))
		require.True(t, ok, "%s", r.Encode())
		require.Equal(t, r, row)
	}
}

func isRegular(data string) bool {
	_, ok := regular(data)
	return ok
}

// What is not exactly what Encode writes is left to Decode.
func TestOtherBytesAreNotRegular(t *testing.T) {
	r := typical()
	r.Changed = []string{"a", "b"}
	good := string(r.Encode())
	require.True(t, isRegular(good))
	for i := range good {
		require.False(t, isRegular(good[:i]), "cut at %d", i)
		require.False(t, isRegular(good[:i]+"\x00"+good[i:]), "inserted at %d", i)
	}
	require.False(t, isRegular(good+"}"))
	for name, change := range map[string][2]string{
		"other version":      {`"v":1`, `"v":2`},
		"no event":           {`"event":"succeeded"`, `"event":""`},
		"empty member":       {`"billing"`, `""`},
		"no word":            {`"billing"`, `"bil ling"`},
		"long word":          {`"billing"`, `"` + strings.Repeat("a", MaxWord+1) + `"`},
		"other order":        {`"connection":"billing","action":"create_invoice"`, `"action":"create_invoice","connection":"billing"`},
		"unknown member":     {`"connection"`, `"connectoin"`},
		"zero":               {`201`, `0`},
		"leading zero":       {`201`, `0201`},
		"no digits":          {`201`, ``},
		"fraction":           {`201`, `201.5`},
		"too exact":          {`112`, `9007199254740993`},
		"no day":             {`03-04T`, `03-00T`},
		"no such day":        {`2026-03-04T`, `2026-02-29T`},
		"no month":           {`03-04T`, `13-04T`},
		"no hour":            {`T12:`, `T24:`},
		"no minute":          {`:00:00.`, `:60:00.`},
		"leap second":        {`:00:00.`, `:00:60.`},
		"labels unordered":   {`"run":"7","step":"naïve 3"`, `"step":"naïve 3","run":"7"`},
		"label twice":        {`"run":"7"`, `"run":"7","run":"7"`},
		"no labels":          {`{"run":"7","step":"naïve 3"}`, `{}`},
		"label not closed":   {`"naïve 3"}`, `"naïve 3",}`},
		"label of 257 bytes": {`"7"`, `"` + strings.Repeat("x", MaxMetaBytes+1) + `"`},
		"needless escape":    {`"7"`, `"\u0037"`},
		"unescaped <":        {`"7"`, `"<"`},
		"unescaped U+2028":   {`"7"`, "\"\u2028\""},
		"invalid UTF-8":      {`"7"`, "\"\xff\""},
		"no changes":         {`["a","b"]`, `[]`},
		"comma too many":     {`["a","b"]`, `["a","b",]`},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		require.NotEqual(t, good, bad, name)
		require.False(t, isRegular(bad), name)
	}
	for name, n := range map[string]int{"labels": MaxMeta + 1, "changes": maxChanged + 1} {
		many := strings.Replace(good, `"run":"7"`, `"run":"7"`+strings.Repeat(`,"z":""`, n), 1)
		if name == "changes" {
			many = strings.Replace(good, `["a"`, `["a"`+strings.Repeat(`,"a"`, n), 1)
		}
		require.False(t, isRegular(many), name)
	}
}

// The fast way reads what the slow one does, and only what has one spelling.
func FuzzRegular(f *testing.F) {
	f.Add(typical().Encode())
	f.Add(Row{Event: Held, At: typical().At, Changed: []string{"a", ""}}.Encode())
	f.Add(Row{Event: Held, At: typical().At, Meta: map[string]string{"a": "", "b": "é"}}.Encode())
	f.Add([]byte(`{"v":1,"event":"x","at":"2026-02-29T12:00:00.250Z","actor":{"kind":""},"vendor_status":9}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		row, ok := regular(string(data))
		if !ok {
			return
		}
		strict, err := decode(data)
		require.NoError(t, err)
		require.Equal(t, strict, row)
		require.Equal(t, string(data), string(row.Encode()))
	})
}

// No filter misses a row that it selects, however the row is spelt.
func FuzzPickFindsWhatTheFilterSelects(f *testing.F) {
	f.Add("billing", "create", "run", "7", "claimed")
	f.Add("a", "a", "<\u2028>", "\"\\\x00", "x")
	f.Add("", "", "connection\":\"x", "", "x")
	f.Fuzz(func(t *testing.T, connection, action, name, value, event string) {
		if event == "" {
			return
		}
		stored := ledger.Row{Data: Row{
			Event: Event(event), At: typical().At, Connection: connection, Action: action, Outcome: value,
			Meta: map[string]string{name: value, "other": "x"},
		}.Encode()}
		r, err := Decode(stored.Data)
		require.NoError(t, err)
		var terms []string
		EachTerm(r, func(term []byte) { terms = append(terms, string(term)) })
		for _, filter := range []Filter{
			{Event: r.Event}, {Connection: r.Connection}, {Action: r.Action}, {Outcome: r.Outcome}, {Meta: r.Meta},
			{Meta: map[string]string{label(name): r.Meta[label(name)]}, Connection: r.Connection},
		} {
			e, ok := filter.Pick(stored)
			require.True(t, ok)
			require.Equal(t, r, e.Row)
			require.Subset(t, terms, filter.Terms())
		}
		other := Filter{Connection: connection + "!"}
		_, ok := other.Pick(stored)
		require.Equal(t, connection+"!" == r.Connection, ok)
	})
}

func BenchmarkPick(b *testing.B) {
	stored := ledger.Row{Cursor: "c", Data: typical().Encode()}
	for name, f := range map[string]Filter{
		"selected":    {Connection: "billing"},
		"looked past": {Connection: "crm", Meta: map[string]string{"run": "8"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(stored.Data)))
			for b.Loop() {
				f.Pick(stored)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	data := typical().Encode()
	for name, decode := range map[string]func([]byte) (Row, error){"any": Decode, "slow way": decode} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = decode(data)
			}
		})
	}
}
