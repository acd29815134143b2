package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/loss"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/redisstore"
)

// beater is a store that notices by its own beats that it has lost data.
type beater interface {
	Beat(ctx context.Context) error
}

// lossWatch asks a store whether it may be claimed in, makes its beats, and
// remembers the gap that answers tell of.
type lossWatch struct {
	store ledger.Store
	beats beater      // nil: the store has none
	began atomic.Bool // the store was ready once; before, nothing is written to it
	last  atomic.Pointer[loss.Gap]
	unfit atomic.Pointer[error] // why the store that answered last is not ready
	// forget is told when what this process has put into the store may be gone.
	forget func()
}

func newLossWatch(store ledger.Store) *lossWatch {
	beats, _ := store.(beater)
	return &lossWatch{store: store, beats: beats, forget: func() {}}
}

// gap is the time of which writes may be unknown, as of the last look; nil: none.
func (w *lossWatch) gap() *loss.Gap { return w.last.Load() }

// doubt says why the store that answered last must not be trusted; nil: it may.
func (w *lossWatch) doubt() error {
	if err := w.unfit.Load(); err != nil {
		return *err
	}
	return nil
}

// ready asks. A beat goes in front, since what it notices makes the store not
// ready; one that fails does too, for a claim would fare no better. A gap that
// cannot be read could not be told of, so nothing is claimed.
func (w *lossWatch) ready(ctx context.Context) error {
	var missed error
	if w.beats != nil && w.began.Load() {
		missed = w.beats.Beat(ctx)
	}
	err := w.store.Ready(ctx)
	if errors.Is(err, ledger.ErrNotReady) {
		w.unfit.Store(&err)
		w.forget()
	}
	if err != nil {
		return err
	}
	w.unfit.Store(nil)
	w.began.Store(true)
	if missed != nil {
		return missed
	}
	snap, err := w.store.Read(ctx, ledger.Platform, loss.Fetch()...)
	if err != nil {
		return err
	}
	gap, err := loss.GapIn(snap)
	if err != nil {
		return err
	}
	// An acceptance may come so soon that nobody here saw what it is of.
	if last := w.last.Swap(gap); gap != nil && (last == nil || *last != *gap) {
		w.forget()
	}
	return nil
}

func acceptLossCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "accept-loss --from T", Args: noArgs,
		Short: "Accept that writes since T may be unknown, so that the gateways go on",
		Long: `Accept that the store has lost data or that its clock was wrong: that writes made
since T (RFC 3339, such as 2026-03-01T12:00:00Z) may be unknown to it. Gateways that
refuse to claim because they noticed it go on. For 24 hours, answers to writes that are no
replays carry ledger_gap, since such a write may have been made before. The acceptance
stands in the audit (store.loss_accepted).

On the embedded store the gateway has to be stopped first. It is also for a store that was
restored from a copy: T is then the time of the copy.`,
	}
	load := configFlags(cmd)
	from := cmd.Flags().String("from", "", "when the first write may be missing, in RFC 3339")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339, *from)
		if err != nil {
			return usageError{errors.New("--from must be a time such as 2026-03-01T12:00:00Z")}
		}
		return acceptLoss(cmd.Context(), cfg, at, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

func acceptLoss(ctx context.Context, cfg Config, from time.Time, out, logs io.Writer) (err error) {
	store, err := openDoubtful(ctx, cfg, logs)
	if errors.Is(err, pebblestore.ErrInUse) {
		return fmt.Errorf("accept loss: stop the gateway first: %w", err)
	}
	if err != nil {
		return fmt.Errorf("accept loss: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var gap loss.Gap
	_, err = audit.Change(ctx, store, ledger.Platform, loss.Fetch(), func(seen ledger.Snapshot, step *ledger.Step) error {
		if gap, err = loss.Accept(seen, step, from); err != nil {
			return err
		}
		row := audit.Caller{Actor: audit.System(), Front: "cli"}.Row(audit.StoreLossAccepted)
		row.Subject = gap.From.Format(time.RFC3339) + "/" + gap.To.Format(time.RFC3339)
		audit.Append(step, row)
		return nil
	})
	if err != nil {
		return fmt.Errorf("accept loss: %w", err)
	}
	_, err = fmt.Fprintf(out, "accepted: writes made from %s to %s may be unknown; answers tell of it until %s\n",
		gap.From.Format(time.RFC3339), gap.To.Format(time.RFC3339), gap.To.Add(loss.GapLife).Format(time.RFC3339))
	return err
}

// openDoubtful opens the store although it is not ready, believing its clock.
func openDoubtful(ctx context.Context, cfg Config, logs io.Writer) (ledger.Store, error) {
	log := newLogger(logs)
	if cfg.isRedis() {
		return redisstore.Open(ctx, redisOptions(cfg, log))
	}
	if made, err := madeAlready(cfg); err != nil || !made {
		return nil, errors.Join(err, errors.New("there is no store in that folder"))
	}
	return pebblestore.Open(cfg.folder(), pebblestore.Options{Logger: log, AcceptClock: true, AcceptLoss: true})
}
