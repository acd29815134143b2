package actions

import (
	"context"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// Resealer is a Sealer that can tell what it seals no more like that.
type Resealer interface {
	Sealer
	Outdated(sealed []byte) bool
}

// Reseal seals what is kept of a scope's unsettled writes under the first secret
// key, and returns how many of them were under another. It may run while the
// gateway serves, and be repeated after an error.
func Reseal(ctx context.Context, claims *dedupe.Claims, sealer Resealer, scope ledger.Scope) (int, error) {
	return claims.Reseal(ctx, scope, func(kind ledger.Kind, id dedupe.ActionID, sealed []byte) ([]byte, error) {
		if !sealer.Outdated(sealed) {
			return sealed, nil
		}
		bound := requestBinding(scope, id)
		if kind == ledger.Raw {
			bound = answerBinding(scope, id)
		}
		plain, err := sealer.Open(sealed, bound...)
		if err != nil {
			return nil, err
		}
		return sealer.Seal(plain, bound...), nil
	})
}

// answerBinding is what a sealed answer that could not be judged is bound to.
func answerBinding(scope ledger.Scope, id dedupe.ActionID) [][]byte {
	return [][]byte{[]byte("answer"), scope[:], id[:]}
}

// requestBinding is what the sealed request of a write is bound to.
func requestBinding(scope ledger.Scope, id dedupe.ActionID) [][]byte {
	return [][]byte{[]byte("request"), scope[:], id[:]}
}
