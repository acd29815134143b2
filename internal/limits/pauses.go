package limits

import (
	"context"
	"sync"
	"time"
)

// Pauses make who is refused wait a moment for the answer, so that a caller who
// asks again as soon as it is answered cannot keep the gateway busy with refusing
// it. The more of one tenant or address wait already, the longer: however many ask,
// so many a second are refused and no more. It is safe for concurrent use. A nil
// Pauses makes nobody wait.
type Pauses struct {
	length time.Duration

	mu      sync.Mutex
	all     int
	waiting map[string]int
}

const (
	// pauseLength, that of the first, is short beside the second that a refusal asks
	// a caller to wait.
	pauseLength = 500 * time.Millisecond
	// Each lengthensBy who wait already lengthen it by itself, so that 128 a second
	// are refused, up to maxPause, which callers' own time-outs leave room for.
	lengthensBy = 64
	maxPause    = 8 * time.Second
	// maxPaused bounds who waits of one tenant or address, maxAllPaused of all. Who
	// waits costs little more than the connection that it has anyway; who is sent
	// away dials again.
	maxPaused    = 4096
	maxAllPaused = 2 * maxPaused
)

// NewPauses returns pauses of the usual length.
func NewPauses() *Pauses { return &Pauses{length: pauseLength, waiting: map[string]int{}} }

// Wait makes one of who wait. False: there is no room, so close its connection.
func (p *Pauses) Wait(ctx context.Context, who string) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	if p.waiting[who] >= maxPaused || p.all >= maxAllPaused {
		p.mu.Unlock()
		return false
	}
	length := min(p.length+p.length*time.Duration(p.waiting[who])/lengthensBy, maxPause)
	p.waiting[who]++
	p.all++
	p.mu.Unlock()

	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.waiting[who]--; p.waiting[who] == 0 {
		delete(p.waiting, who)
	}
	return true
}
