package benchtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// sizeContests measure what a finished write leaves behind. They are weighed, not
// timed, so one round would do.
func sizeContests(short bool) []Entry {
	count := 20_000
	if short {
		count = 100
	}
	return []Entry{
		{Name: "Redis memory", Open: func(t testing.TB, _ *Bench) Contest { return redisSizes(t, count) }},
		{Name: "embedded size", Open: func(_ testing.TB, b *Bench) Contest { return embeddedSizes(b, count) }},
	}
}

// rowless leaves audit rows out of each step, to tell what they take from what
// the records take.
type rowless struct{ ledger.Store }

func (s rowless) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	step.Rows = nil
	return s.Store.Apply(ctx, scope, step)
}

func redisSizes(t testing.TB, count int) Contest {
	server := redistest.Start(t)
	weigh := func(ctx context.Context, sh shape, bare bool) (float64, error) {
		return weighRedis(ctx, server, sh, bare, count)
	}
	return Contest{
		Name: "Redis memory",
		Contestants: []Contestant{{Name: "redis", Round: func(ctx context.Context) (Sample, error) {
			sh := shape{}.filled()
			record, err1 := weigh(ctx, sh, true)
			whole, err2 := weigh(ctx, sh, false)
			sh.json, sh.answer = true, 1024
			kilobyte, err3 := weigh(ctx, sh, true)
			answer := float64(len(invoices(sh.answer, 0)))
			return Sample{
				"above": record - 300, "rows": whole - record, "kilobyte": kilobyte, "answer": answer,
			}, errors.Join(err1, err2, err3)
		}}},
		Figures: []Figure{
			{Name: fmt.Sprintf("Redis memory of a finished record above an answer of 300 B, without its audit rows (%d records)", count), Unit: "B", Goal: AtMost(240), Of: Value("redis", "above")},
			{Name: "– its two audit rows, until they are sealed and let go", Unit: "B", Of: Value("redis", "rows")},
			{Name: "– a JSON answer of 1 KB, whole record ÷ answer", Unit: "B", Goal: AtMost(1.1), Of: func(r Round) (float64, float64) { return r["redis"]["kilobyte"], r["redis"]["answer"] }},
		},
		Close: func() { _ = server.Kill() },
	}
}

// weighRedis is what each of so many finished writes takes in an empty Redis.
func weighRedis(ctx context.Context, server *redistest.Server, sh shape, bare bool, count int) (each float64, err error) {
	if err := server.Flush(); err != nil {
		return 0, err
	}
	s, err := redisstore.Open(ctx, redisstore.Options{URL: server.URL(), Pipeline: true, Timeout: patience})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var store ledger.Store = s
	if bare {
		store = rowless{s}
	}
	w, err := newWrites(ctx, store, sh)
	if err != nil {
		return 0, err
	}
	if err := times(ctx, 64, w.pair); err != nil { // connections, scripts
		return 0, err
	}
	before, err := usedMemory(ctx, server)
	if err != nil {
		return 0, err
	}
	if err := times(ctx, count, w.pair); err != nil {
		return 0, err
	}
	after, err := usedMemory(ctx, server)
	return float64(after-before) / float64(count), err
}

// usedMemory is what Redis says it uses, once nonces are gone, which live for 12
// seconds however many records there are.
func usedMemory(ctx context.Context, server *redistest.Server) (int64, error) {
	const forget = `local at = '0'
repeat
  local page = redis.call('SCAN', at, 'MATCH', '*#n*', 'COUNT', 1000)
  at = page[1]
  for _, k in ipairs(page[2]) do redis.call('DEL', k) end
until at == '0'
return 'OK'`
	if _, err := server.Do(ctx, "EVAL", forget, "0"); err != nil {
		return 0, err
	}
	info, err := server.Do(ctx, "INFO", "memory")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	digits, _, _ := strings.Cut(rest, "\r")
	return strconv.ParseInt(digits, 10, 64)
}

func embeddedSizes(b *Bench, count int) Contest {
	return Contest{
		Name: "embedded size",
		Contestants: []Contestant{{Name: "embedded", Round: func(ctx context.Context) (Sample, error) {
			bare, err1 := weighEmbedded(ctx, b, true, count)
			whole, err2 := weighEmbedded(ctx, b, false, count)
			return Sample{
				"heap": bare.heap, "above": bare.compact - 300, "first": whole.first - 300, "rows": whole.compact - bare.compact,
			}, errors.Join(err1, err2)
		}}},
		Figures: []Figure{
			{Name: fmt.Sprintf("embedded, memory of a live record, without the engine's bounded tables and cache (%d records)", count), Unit: "B", Goal: AtMost(48), Of: Value("embedded", "heap")},
			{Name: "embedded, disk of a finished record above an answer of 300 B, compacted, without its audit rows", Unit: "B", Goal: AtMost(600), Of: Value("embedded", "above")},
			{Name: "– its two audit rows, until they are sealed and let go", Unit: "B", Of: Value("embedded", "rows")},
			{Name: "– all of it right after it was written, with the log", Unit: "B", Of: Value("embedded", "first")},
		},
	}
}

type weight struct{ heap, first, compact float64 } // bytes of each record

func weighEmbedded(ctx context.Context, b *Bench, bare bool, count int) (w weight, err error) {
	dir, err := os.MkdirTemp(b.Dir, "size")
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	dir = filepath.Join(dir, "store")
	empty, err := openHeap(dir)
	if err != nil {
		return w, err
	}
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return w, err
	}
	var store ledger.Store = s
	if bare {
		store = rowless{s}
	}
	writes, err := newWrites(ctx, store, shape{})
	if err == nil {
		err = times(ctx, count, writes.pair)
	}
	w.first = float64(folderSize(dir, "")) / float64(count)
	if err := errors.Join(err, s.Close(), compact(ctx, dir)); err != nil {
		return w, err
	}
	full, err := openHeap(dir)
	if err != nil {
		return w, err
	}
	w.heap = float64(full-empty) / float64(count)
	w.compact = float64(folderSize(dir, ".sst")) / float64(count)
	return w, nil
}

// openHeap is what an open store takes of the heap. The engine's tables and
// blocks lie outside of it.
func openHeap(dir string) (int64, error) {
	before := heap()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return 0, err
	}
	taken := heap() - before
	return taken, s.Close()
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools held, too
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// compact rewrites a closed store's files so that nothing deleted is left in them.
func compact(ctx context.Context, dir string) error {
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatTableFormatV6})
	if err != nil {
		return err
	}
	return errors.Join(db.Flush(), db.Compact(ctx, []byte{0}, []byte{0xff}, true), db.Close())
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
