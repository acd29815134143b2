package benchtest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"holdfast.dev/gateway/internal/pebblestore"
)

// The floors show what a goal leaves room for on this machine: the proxy and the
// echo with nothing added but the bytes that a promise has to have on the disk,
// appended to a raw log with one sync for all who wait. They know no tenants, read no
// JSON that the echo does not read, and find nothing again.

// frameSizes is how many bytes a claim and a settle append to the embedded store's log.
func frameSizes(t testing.TB, dir string) (claim, settle int) {
	t.Helper()
	dir, err := os.MkdirTemp(dir, "frames") //nolint:usetesting // beside the other data of the run
	if err != nil {
		t.Fatal(err)
	}
	e, err := newStoreFolder(t.Context(), filepath.Join(dir, "store"), shape{}, pebblestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	claim, settle, err = e.frames(t.Context(), 100)
	if err := errors.Join(err, e.store.Close(), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	return claim, settle
}

// rowFrame is about what a replay appends: an audit row of some 400 bytes and a counter.
const rowFrame = 512

// spawnProxyFloor starts a proxy to the vendor that appends as much as a claim before it
// sends, and as much as a settle before it answers.
func spawnProxyFloor(t testing.TB, b *Bench, vendor string) *process {
	t.Helper()
	claim, settle := frameSizes(t, b.Dir)
	return spawn(t, roleFloor, fmt.Sprintf("%s %d %d %s", vendor, claim, settle, filepath.Join(t.TempDir(), "log")))
}

// spawnEchoFloor starts an echo that appends as much as a replay before it answers.
func spawnEchoFloor(t testing.TB) *process {
	t.Helper()
	return spawn(t, roleFloor, fmt.Sprintf("%s %d 0 %s", none, rowFrame, filepath.Join(t.TempDir(), "log")))
}

// newFloor makes the handler of a floor that was started in these words.
func newFloor(what string) http.Handler {
	var vendor, path string
	var claim, settle int
	_, err := fmt.Sscanf(what, "%s %d %d %s", &vendor, &claim, &settle, &path)
	if err != nil {
		fail(err)
	}
	log, err := newRawLog(path)
	if err != nil {
		fail(err)
	}
	first, second := noise(claim), noise(settle)
	next := http.Handler(http.HandlerFunc(echo))
	if vendor != none {
		proxy := newProxy("http://" + vendor)
		proxy.ModifyResponse = func(*http.Response) error { return log.append(second) }
		next = proxy
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := log.append(first); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// none is the vendor of a floor that has none.
const none = "-"

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
