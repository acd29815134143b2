package trail_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/archive/archivetest"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/trail"
)

// onlyScope is a directory of the one tenant of these tests.
type onlyScope struct{}

func (onlyScope) Scopes(_ context.Context, each func(ledger.Scope) error) error { return each(scope) }

// While rows are sealed and taken out of the store as fast as it goes, every
// export and every walk has each row once, in order, from the first on.
func TestNothingIsLostOrDoubledWhileRowsMove(t *testing.T) {
	store, _ := openStore(t)
	storage := archivetest.NewMemory()
	ring, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	sealer, err := archive.NewSealer(archive.Config{
		Store: store, Storage: storage, Signer: ring, Backlog: archive.NewBacklog(archive.Cut{Rows: 7, Bytes: 1 << 20}, 0), Scopes: onlyScope{},
		Retention: func(context.Context, ledger.Scope) (time.Duration, bool, error) {
			return archive.DefaultRetention, true, nil
		},
		Hot: -time.Minute, Terms: audit.EachTerm, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	reader, err := archive.NewReader(store, storage)
	require.NoError(t, err)
	// Between any look at how far the log is sealed and the rows behind that, some
	// are sealed and let go.
	turn := 0
	moved := &faulty{Store: store, rows: func(ledger.RowRange) {
		turn++
		for range turn % 4 {
			_, err := sealer.Seal(t.Context(), scope, false)
			require.NoError(t, err)
			require.NoError(t, sealer.MaintainScope(t.Context(), scope))
		}
	}}
	log := trail.New(moved, reader)
	var written []int

	for round := range 60 {
		for range 20 {
			n := len(written) + 1
			written = append(written, n)
			require.NoError(t, log.Append(t.Context(), scope, audit.Row{
				Event: audit.Claimed, Tenant: "acme", ActionID: fmt.Sprintf("act_%d", n), Meta: map[string]string{"half": strconv.Itoa(n % 2)},
			}))
		}
		want := written
		if round%5 == 2 || round%5 == 3 {
			want = slices.DeleteFunc(slices.Clone(written), func(n int) bool { return n%2 == 0 })
		}
		require.Equal(t, want, numbersOf(t, log, round), "round %d", round)
	}
	hot, err := store.Rows(t.Context(), scope, ledger.RowRange{Limit: 1000})
	require.NoError(t, err)
	require.Less(t, len(hot), len(written)/2, "most rows have left the store")
}

var actionID = regexp.MustCompile(`"action_id":"act_(\d+)"`)

// numbersOf reads the numbers of all rows, oldest first, in one way or another.
func numbersOf(t *testing.T, log *trail.Log, round int) (out []int) {
	t.Helper()
	half := audit.Filter{Meta: map[string]string{"half": "1"}}
	add := func(text string) {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		out = append(out, n)
	}
	var b bytes.Buffer
	switch round % 5 {
	case 0:
		require.NoError(t, log.Export(t.Context(), scope, trail.Export{}, &b))
		for _, m := range actionID.FindAllStringSubmatch(b.String(), -1) {
			add(m[1])
		}
	case 1:
		require.NoError(t, log.Export(t.Context(), scope, trail.Export{Format: trail.CSV}, &b))
		records, err := csv.NewReader(&b).ReadAll()
		require.NoError(t, err)
		for _, r := range records[1:] {
			add(strings.TrimPrefix(r[10], "act_"))
		}
	case 2:
		require.NoError(t, log.Export(t.Context(), scope, trail.Export{Filter: half}, &b))
		for _, m := range actionID.FindAllStringSubmatch(b.String(), -1) {
			add(m[1])
		}
	case 3:
		for _, e := range walkAll(t, log, half, false) {
			add(strings.TrimPrefix(e.ActionID, "act_"))
		}
	default:
		found := walkAll(t, log, audit.Filter{}, true)
		for i := range found {
			add(strings.TrimPrefix(found[len(found)-1-i].ActionID, "act_"))
		}
	}
	return out
}

func walkAll(t *testing.T, log *trail.Log, f audit.Filter, newest bool) (all []audit.Entry) {
	t.Helper()
	for cursor := ""; ; {
		found, next, err := log.Query(t.Context(), scope, f, trail.Page{Limit: 13, Newest: newest, Cursor: cursor})
		require.NoError(t, err)
		all = append(all, found...)
		if cursor = next; next == "" {
			return all
		}
	}
}
