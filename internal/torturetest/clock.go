package torturetest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// clock is the wall clock of one gateway's machine, as far as the gateway can
// tell (see package inside).
type clock struct{ file *os.File }

func newClock(dir, name string) (*clock, error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("make clock: %w", err)
	}
	c := &clock{file: f}
	return c, c.set(0)
}

// set sets the clock to so much off the true time.
func (c *clock) set(off time.Duration) error {
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(off)), 0); err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	return nil
}

func (c *clock) name() string { return c.file.Name() }

func (c *clock) close() { _ = c.file.Close() }
