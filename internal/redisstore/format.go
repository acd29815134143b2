package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"holdfast.dev/gateway/internal/ledger"
)

// formatVersion is the version of the key layout and the values' heads (keys.go,
// value.go, scripts). Raise it when an earlier release could misread what this
// one writes.
//
// Gateways of both releases run side by side while they are replaced, so a release
// that raises it must go on writing the earlier form for two minutes after the
// marker is in the store: by then every earlier gateway has looked at the marker
// ([Store.Ready], once a second, each look bounded by a time-out of at most a
// minute) or takes its last look for too old to claim by.
const formatVersion = 1

// formatKey holds the format of the store in decimal. A store of before there was
// a marker has none and is of format 1.
func formatKey() ledger.Key { return ledger.Key{Kind: ledger.Meta, ID: "format"} }

// format is what this process knows of the marker.
type format struct {
	known uint32        // the format that this release reads and writes
	found atomic.Uint32 // the marker as it was last read; 0: there was none
	holds atomic.Bool   // there was a store when it was
}

func (f *format) marker() []byte { return strconv.AppendUint(nil, uint64(f.known), 10) }

// check reads the marker out of a snapshot that has it, and the epoch.
func (f *format) check(snap ledger.Snapshot) error {
	found := uint64(0)
	if v, ok := snap.Get(formatKey()); ok {
		var err error
		if found, err = strconv.ParseUint(string(v.Data), 10, 32); err != nil || found == 0 {
			return fmt.Errorf("%w: the store's format marker cannot be read: %w", ledger.ErrNotReady, ledger.ErrFormat)
		}
	}
	_, holds := snap.Get(epochKey())
	f.found.Store(uint32(found))
	f.holds.Store(holds)
	return f.newer()
}

// newer says whether the marker that was last read is beyond this release.
func (f *format) newer() error {
	if found := f.found.Load(); found > f.known {
		return fmt.Errorf("%w: %w", ledger.ErrNotReady, ledger.NewerFormat(found, f.known))
	}
	return nil
}

// behind says whether the store's marker is to be raised.
func (f *format) behind() bool { return f.holds.Load() && f.found.Load() < f.known }

// checkFormat looks at the marker of a Redis that may be of any release.
func (s *Store) checkFormat(ctx context.Context) error {
	snap, err := s.Read(ctx, ledger.Platform, ledger.Fetch{Key: epochKey()}, ledger.Fetch{Key: formatKey()})
	if err != nil {
		return err
	}
	return s.format.check(snap)
}

// raiseFormat marks the store as of this release's format, unless it is of that
// or a later one. Nothing is marked where there is no store.
func (s *Store) raiseFormat(ctx context.Context) error {
	if err := s.format.newer(); err != nil || !s.format.behind() {
		return err
	}
	snap, err := s.Read(ctx, ledger.Platform, ledger.Fetch{Key: epochKey()}, ledger.Fetch{Key: formatKey()})
	if err != nil {
		return err
	}
	if err := s.format.check(snap); err != nil || !s.format.behind() {
		return err
	}
	epoch, _ := snap.Get(epochKey())
	was, _ := snap.Get(formatKey())
	res, err := s.Apply(ctx, ledger.Platform, ledger.Step{
		Nonce:  ledger.NewNonce(),
		At:     s.Now(),
		Expect: []ledger.Expect{{Key: epochKey(), Version: epoch.Version}, {Key: formatKey(), Version: was.Version}},
		Put:    []ledger.Put{{Key: formatKey(), Data: s.format.marker()}},
	})
	if err != nil {
		return err
	}
	if !res.Applied {
		return nil // another gateway was faster: the next look shows what it wrote
	}
	s.format.found.Store(s.format.known)
	s.log.InfoContext(ctx, "marked the store's format; gateways that do not know it claim nothing any more", "format", s.format.known)
	return nil
}
