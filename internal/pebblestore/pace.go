package pebblestore

import (
	"encoding/binary"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// pace ties the clock to the run of the machine: what it showed at a reading of
// the boot clock. After a restart on the same run it tells where the clock would
// stand now, so that a source set forward meanwhile shows. After a restart of
// the machine nothing tells: then the source is believed, as it must be after
// any time of rest.
type pace struct {
	boot  time.Duration
	shown int64  // milliseconds
	run   string // of the machine
}

func (p pace) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.boot))
	b = binary.BigEndian.AppendUint64(b, uint64(p.shown))
	return append(b, p.run...)
}

// stood returns where the clock would stand now; the zero time: not known.
func (s *Store) stood(run string, boot func() time.Duration) (time.Time, error) {
	raw, ok, err := s.getRaw(keyPace)
	if err != nil || !ok || boot == nil || run == "" {
		return time.Time{}, err
	}
	if len(raw) < 16 {
		return time.Time{}, fmt.Errorf("read clock pace: %w", ledger.ErrCorrupt)
	}
	p := pace{
		boot:  time.Duration(binary.BigEndian.Uint64(raw)),
		shown: int64(binary.BigEndian.Uint64(raw[8:])),
		run:   string(raw[16:]),
	}
	now := boot()
	if p.run != run || now < p.boot {
		return time.Time{}, nil
	}
	return time.UnixMilli(p.shown).Add(now - p.boot), nil
}

// checkClock says whether the source of the time has jumped.
func (s *Store) checkClock() error {
	ahead := s.clock.jump()
	if ahead == 0 {
		return nil
	}
	return fmt.Errorf("%w: the machine's clock has gone forward by %s, which would end replay windows and holds early; "+
		"nothing is claimed until it is set back, or, if it is right now, until the gateway is stopped, "+
		"`gateway store accept-loss --from %s` run, and the gateway started again",
		ledger.ErrNotReady, ahead.Round(time.Second), s.clock.now().UTC().Format(time.RFC3339))
}
