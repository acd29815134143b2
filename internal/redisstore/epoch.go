package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"holdfast.dev/gateway/internal/ledger"
)

// ErrInitialised means that the Redis has been made a store already.
var ErrInitialised = errors.New("this redis is a store already")

// epochKey holds a random name of the store's data, written once. An empty
// Redis is either new or has lost everything, and looks the same; only the
// operator knows, so only [Init] writes it.
func epochKey() ledger.Key { return ledger.Key{Kind: ledger.Meta, ID: "epoch"} }

// Init makes a new Redis a store. It refuses, with [ErrInitialised], one that
// is a store already. It is safe to repeat after an error.
func Init(ctx context.Context, opts Options) (err error) {
	s, err := Open(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.writeEpoch(ctx); err != nil {
		return fmt.Errorf("init redis store: %w", err)
	}
	return nil
}

func (s *Store) writeEpoch(ctx context.Context) error {
	res, err := s.Apply(ctx, ledger.Platform, ledger.Step{
		Nonce:  ledger.NewNonce(),
		At:     s.Now(),
		Expect: []ledger.Expect{{Key: epochKey()}},
		Put: []ledger.Put{
			{Key: epochKey(), Data: []byte(rand.Text())},
			{Key: formatKey(), Data: s.format.marker()},
		},
		Fetch: []ledger.Fetch{{Key: epochKey()}},
	})
	switch {
	case err != nil:
		return err
	case res.Applied:
		return nil
	}
	if _, ok := res.Get(epochKey()); ok {
		return ErrInitialised
	}
	return fmt.Errorf("%w: the store's clock jumped", ledger.ErrUnavailable)
}
