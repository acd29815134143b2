package ledgertest

import (
	"bytes"
	"strings"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// valueCases: put, read and delete, the bytes as they were given, and the order
// of a step's parts.
func valueCases() []testCase {
	return []testCase{
		{"a put value is read back", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(key("a"), "one"), put(key("b"), "two")}})
			f.holds(key("a"), "one")
			f.holds(key("b"), "two")
		}},
		{"the version of a value is the head of the nonce that put it", func(f *fixture) {
			n := f.must(ledger.Step{Put: []ledger.Put{put(key("a"), "one")}})
			v, _ := f.get(key("a"))
			require.Equal(f, n.Version(), v.Version)

			n = f.must(ledger.Step{Put: []ledger.Put{put(key("a"), "one")}})
			v, _ = f.get(key("a"))
			require.Equal(f, n.Version(), v.Version)
		}},
		{"a second put replaces the value", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(key("a"), "one, and longer")}})
			f.must(ledger.Step{Put: []ledger.Put{put(key("a"), "two")}})
			f.holds(key("a"), "two")
		}},
		{"values that do not exist are left out", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(key("a"), "one")}})
			snap := f.read(fetch(key("a"), key("b"))...)
			require.Len(f, snap.Values, 1)
			_, ok := snap.Get(key("b"))
			require.False(f, ok)
		}},
		{"a read of nothing tells the time", func(f *fixture) {
			first := f.read()
			require.Empty(f, first.Values)
			require.False(f, f.read().Now.Before(first.Now))
		}},
		{"a deleted value does not exist", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(key("a"), "one")}})
			f.must(ledger.Step{Delete: []ledger.Key{key("a")}})
			f.lacks(key("a"))
		}},
		{"deleting what does not exist is no fault", func(f *fixture) {
			f.must(ledger.Step{Delete: []ledger.Key{key("a")}})
			f.lacks(key("a"))
		}},
		{"kinds with the same id are different values", func(f *fixture) {
			k1, k2 := ledger.Key{Kind: ledger.Action, ID: "x"}, ledger.Key{Kind: ledger.Answer, ID: "x"}
			f.must(ledger.Step{Put: []ledger.Put{put(k1, "action"), put(k2, "answer")}})
			f.must(ledger.Step{Delete: []ledger.Key{k1}})
			f.lacks(k1)
			f.holds(k2, "answer")
		}},
		{"an applied step reads nothing", func(f *fixture) {
			res := f.apply(ledger.Step{
				Put:   []ledger.Put{put(key("a"), "one")},
				Fetch: fetch(key("a")),
			})
			require.True(f, res.Applied)
			require.Empty(f, res.Values)
		}},
		{"a step without parts is applied", func(f *fixture) {
			require.True(f, f.apply(ledger.Step{}).Applied)
		}},
		{"bytes come back as they were given", bytesSurvive},
		{"ids are any bytes", binaryIDs},
		{"what the caller does to its bytes afterwards changes nothing", func(f *fixture) {
			data := []byte("one")
			f.must(ledger.Step{Put: []ledger.Put{{Key: key("a"), Data: data}}, Rows: [][]byte{data}})
			copy(data, "XXX")
			v, _ := f.get(key("a"))
			copy(v.Data, "YYY")
			f.holds(key("a"), "one")
			require.Equal(f, []string{"one"}, f.rowData(ledger.RowRange{}))
		}},
		{"delete comes before put", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(key("a"), "one")}})
			n := f.must(ledger.Step{Delete: []ledger.Key{key("a")}, Put: []ledger.Put{put(key("a"), "two")}})
			v, ok := f.get(key("a"))
			require.True(f, ok)
			require.Equal(f, n.Version(), v.Version)
			require.Equal(f, "two", string(v.Data))
		}},
		{"delete comes before add", func(f *fixture) {
			f.must(ledger.Step{Add: []ledger.Add{{Key: counter("n"), Delta: 5}}})
			res := f.apply(ledger.Step{
				Delete: []ledger.Key{counter("n")},
				Add:    []ledger.Add{{Key: counter("n"), Delta: 2}},
			})
			require.Equal(f, []int64{2}, res.Counters)
		}},
		{"unindex comes before index", func(f *fixture) {
			now := f.now()
			e := ledger.Entry{Index: ledger.ByLease, Score: now, Member: "m"}
			f.must(ledger.Step{Index: []ledger.Entry{e}})
			f.must(ledger.Step{Unindex: []ledger.Entry{e}, Index: []ledger.Entry{e}})
			require.Equal(f, []string{"m"}, f.entries(ledger.EntryRange{Index: ledger.ByLease}))
		}},
		{"parts of one list are applied in order", func(f *fixture) {
			res := f.apply(ledger.Step{
				Put:  []ledger.Put{put(key("a"), "one"), put(key("a"), "two")},
				Add:  []ledger.Add{{Key: counter("n"), Delta: 1}, {Key: counter("n"), Delta: 10}},
				Rows: rows("r1", "r2", "r3"),
			})
			require.Equal(f, []int64{1, 11}, res.Counters)
			f.holds(key("a"), "two")
			require.Equal(f, []string{"r1", "r2", "r3"}, f.rowData(ledger.RowRange{}))
		}},
		{"a step the contract does not allow is an error and changes nothing", refusesBadSteps},
	}
}

// bytesSurvive names the shapes that stores and scripts are known to bend: an
// empty array (a Lua table cannot tell it from an object), integers beyond a
// double, bytes that are no text.
func bytesSurvive(f *fixture) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, data := range map[string][]byte{
		"empty": {}, "array": []byte("[]"), "object": []byte("{}"), "null": []byte("null"),
		"integer": []byte("12345678901234567"), "digits": []byte(`{"a":12345678901234567,"b":1.10}`),
		"zero byte": {0}, "binary": all, "lines": []byte("a\r\nb\n"), "1 MiB": big,
	} {
		f.must(ledger.Step{Put: []ledger.Put{{Key: key(name), Data: data}}, Rows: [][]byte{data}})
		v, ok := f.get(key(name))
		require.True(f, ok, name)
		require.True(f, bytes.Equal(data, v.Data), name)
		row := f.rows(ledger.RowRange{Newest: true, Limit: 1})
		require.Len(f, row, 1, name)
		require.True(f, bytes.Equal(data, row[0].Data), name)
	}
}

func awkwardIDs() []string {
	return []string{
		"", "\x00", "\x00\x00", "\xff", "\xff\xff", ":", "{", "}", "{}", "{a}:b", "a", "a\x00", "a\x00b",
		"a\xff", " ", "\r\n", "*", strings.Repeat("\xff", 255), strings.Repeat("k", 255),
	}
}

func binaryIDs(f *fixture) {
	var step ledger.Step
	for _, name := range awkwardIDs() {
		step.Put = append(step.Put, put(key(name), "value of "+name))
		step.Index = append(step.Index, ledger.Entry{Index: ledger.ByName, Score: f.now(), Member: name})
		step.Add = append(step.Add, ledger.Add{Key: counter(name), Delta: int64(len(name)) + 1})
	}
	f.must(step)
	for _, name := range awkwardIDs() {
		f.holds(key(name), "value of "+name)
		require.Equal(f, int64(len(name))+1, f.countOf(counter(name)))
	}
	require.ElementsMatch(f, awkwardIDs(), f.entries(ledger.EntryRange{Index: ledger.ByName}))
}

func refusesBadSteps(f *fixture) {
	long := strings.Repeat("k", 256)
	for name, s := range map[string]ledger.Step{
		"zero nonce":      {},
		"long put id":     {Nonce: ledger.NewNonce(), Put: []ledger.Put{put(key(long), "x")}},
		"long delete id":  {Nonce: ledger.NewNonce(), Delete: []ledger.Key{key(long)}},
		"long expect id":  {Nonce: ledger.NewNonce(), Expect: []ledger.Expect{absent(key(long))}},
		"long counter id": {Nonce: ledger.NewNonce(), Add: []ledger.Add{{Key: counter(long), Delta: 1}}},
		"long member":     {Nonce: ledger.NewNonce(), Index: []ledger.Entry{{Index: ledger.ByName, Member: long}}},
	} {
		s.At = f.now()
		s.Put = append(s.Put, put(key("a"), "one"))
		s.Rows = rows("row")
		res, err := f.Store.Apply(f.Context(), f.scope, s)
		require.Error(f, err, name)
		require.False(f, res.Applied, name)
	}
	f.lacks(key("a"))
	require.Empty(f, f.rows(ledger.RowRange{}))
}
