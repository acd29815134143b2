package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// acceptCallsEnv is how many calls the script makes; `make accept-audit` makes
// 10,000 of them.
const acceptCallsEnv = "ACCEPT_CALLS"

func acceptCalls(t *testing.T) int {
	t.Helper()
	text := os.Getenv(acceptCallsEnv)
	if text == "" {
		return 400
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// acceptConfig has a connector whose calls are short, so that a lost write can
// be resolved soon.
func acceptConfig(t *testing.T) Config {
	cfg := testConfig(t)
	manifest := testManifests()["probe-fast"]
	manifest = strings.NewReplacer("name: probe-fast", "name: accept", "timeout: 300ms", "timeout: 2s").Replace(manifest)
	writeManifest(t, cfg.ConnectorsDir, "accept", "1.0.0", manifest)
	return cfg
}

// TestAuditUsageAndVendorAgree: two tenants' agents make many calls of every
// kind while a gateway is killed and the store goes away; afterwards the callers'
// answers, the vendors' own counters, the records, the audit and the figures of
// usage say the same, tenant by tenant and write by write.
func TestAuditUsageAndVendorAgree(t *testing.T) {
	// Rows are sealed, counted and moved while the script runs. What a limit refuses
	// has a row now and then, so there is no limit.
	flags := []string{"--lease=3s", "--audit-seal-after=1s", "--tenant-requests-per-second=0", "--tenant-writes-per-second=0", "--address-requests-per-second=0"}
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		cfg := acceptConfig(t)
		cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
		one := spawn(t, cfg, flags...)
		at := &gateways{urls: []string{one.url()}}
		again := func() {
			one.kill()
			one = spawn(t, cfg, flags...)
			at.set(0, one.url())
		}
		playAcceptance(t, acceptCalls(t), true, at, again, again)
	})
	t.Run("two gateways on Redis", func(t *testing.T) {
		t.Parallel()
		server := ownRedis(t)
		cfg := acceptConfig(t)
		cfg.Store = server.URL()
		flags := append(slices.Clone(flags), "--audit-archive="+folderPrefix+t.TempDir())
		one, two := spawn(t, cfg, flags...), spawn(t, cfg, flags...)
		at := &gateways{urls: []string{one.url(), two.url()}}
		playAcceptance(t, acceptCalls(t), true, at, func() {
			two.kill()
			two = spawn(t, cfg, flags...)
			at.set(1, two.url())
		}, func() {
			require.NoError(t, server.Kill())
			require.NoError(t, server.Start())
		})
	})
}

// TestKilledAtAnyPoint: gateways are killed again and again, wherever they are in
// the writes of eight agents. No state has changed without its row, and no row
// tells of a change that was not made.
func TestKilledAtAnyPoint(t *testing.T) {
	const lease = "--lease=3s"
	kills := max(3, acceptCalls(t)/250)
	play := func(t *testing.T, cfg Config, replicas int) {
		gws, at := make([]*process, replicas), &gateways{urls: make([]string, replicas)}
		start := func(i int) {
			gws[i] = spawn(t, cfg, lease)
			at.set(i, gws[i].url())
		}
		for i := range gws {
			start(i)
		}
		disasters := make([]func(), kills)
		for i := range disasters {
			disasters[i] = func() {
				<-time.After(rand.N(30 * time.Millisecond)) // anywhere
				gws[i%replicas].kill()
				start(i % replicas)
			}
		}
		playAcceptance(t, 60*kills, false, at, disasters...)
	}
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		cfg := acceptConfig(t)
		cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
		play(t, cfg, 1)
	})
	t.Run("two gateways on Redis", func(t *testing.T) {
		t.Parallel()
		cfg := acceptConfig(t)
		cfg.Store = ownRedis(t).URL()
		play(t, cfg, 2)
	})
}

// playAcceptance runs the script and compares. The disasters are spread evenly
// over the calls. With sealed, the log must come to be proven to its end.
func playAcceptance(t *testing.T, calls int, sealed bool, at *gateways, disasters ...func()) {
	labels, answers := &atomic.Int64{}, &atomic.Int64{}
	parties := []*party{newParty(t, at, labels, answers), newParty(t, at, labels, answers)}
	started := time.Now()
	var numbers atomic.Int64
	var workers sync.WaitGroup
	for worker := range 8 {
		p := parties[worker%len(parties)]
		workers.Go(func() {
			for int(answers.Load()) < calls {
				n := int(numbers.Add(1))
				lives := p.scenarios()
				lives[n%len(lives)](n)
			}
		})
	}
	for i, disaster := range disasters {
		due := int64(calls * (i + 1) / (len(disasters) + 1))
		eventually(t, 10*time.Minute, "the script gets on", func() bool { return answers.Load() >= due })
		disaster()
	}
	workers.Wait()
	took := time.Since(started)

	admin := &agent{t: t, base: at.any(), key: testAdminKey}
	for _, p := range parties {
		p.base = at.any()
		rows, arrivals := p.verify(admin)
		if sealed {
			p.proven(rows)
		}
		t.Logf("%s: %d calls, %d rows, %d arrivals", p.name, len(p.calls), rows, arrivals)
	}
	require.GreaterOrEqual(t, int(answers.Load()), calls)
	t.Logf("%d calls answered of %d tried, in %s", answers.Load(), labels.Load(), took.Round(time.Millisecond))
}
