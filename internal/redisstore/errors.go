package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"holdfast.dev/gateway/internal/ledger"
)

// errOverflow means that a counter would leave the 64 bits it has.
var errOverflow = errors.New("counter would overflow")

// meaning turns what the library returned into an error of the contract.
// Anything not known to be about stored bytes is ErrUnavailable, so that an
// error reply nobody thought of is a doubt and never an answer. Of an error
// reply only its code is kept: the text behind it may quote a key.
func meaning(err error) error {
	switch {
	case redis.HasErrorPrefix(err, "HFCORRUPT"), redis.HasErrorPrefix(err, "WRONGTYPE"):
		return ledger.ErrCorrupt
	case redis.HasErrorPrefix(err, "HFOVERFLOW"):
		return errOverflow
	default:
		return unavailable(err)
	}
}

func unavailable(err error) error {
	var reply redis.Error
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: the call was cancelled: %w", ledger.ErrUnavailable, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("%w: no answer in time", ledger.ErrUnavailable)
	case errors.As(err, &reply):
		return fmt.Errorf("%w: redis answers %s", ledger.ErrUnavailable, code(reply.Error()))
	case errors.As(err, &network):
		// Says which address refused, nothing of what was sent.
		return fmt.Errorf("%w: %w", ledger.ErrUnavailable, network)
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.Is(err, errQueueFull):
		return fmt.Errorf("%w: too many calls are waiting for redis", ledger.ErrUnavailable)
	default:
		return fmt.Errorf("%w: the connection failed", ledger.ErrUnavailable)
	}
}

// code returns the leading upper-case word of an error reply, such as LOADING.
func code(reply string) string {
	word, _, _ := strings.Cut(reply, " ")
	if word == "" || len(word) > 20 || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "an error"
	}
	return word
}

// malformed is a reply that this package's scripts do not give.
func malformed() error {
	return fmt.Errorf("%w: the answer cannot be read", ledger.ErrUnavailable)
}
