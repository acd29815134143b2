package actions

import (
	"encoding/json"
	"fmt"
	"net/http"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/wire"
)

// maxRaw bounds the body of an answer that is kept to be judged again.
const maxRaw = 256 << 10

// rawAnswer is a vendor's answer whose judging failed, as it is kept, sealed,
// until the write is settled.
type rawAnswer struct {
	Status int            `json:"status"`
	Header http.Header    `json:"header"`
	Body   []byte         `json:"body"`
	State  wire.BodyState `json:"state"`
}

// sealAnswer returns nil for an answer that is too large to keep.
func (s *Service) sealAnswer(w subject, x wire.Exchange) []byte {
	if len(x.Body.Bytes) > maxRaw {
		return nil
	}
	raw, err := json.Marshal(rawAnswer{Status: x.Status, Header: x.Header, Body: x.Body.Bytes, State: x.Body.State})
	if err != nil {
		return nil
	}
	return s.sealer.Seal(raw, answerBinding(w.scope, w.id)...)
}

// openAnswer returns the exchange as it was when its judging failed.
func (s *Service) openAnswer(scope ledger.Scope, id dedupe.ActionID, sealed []byte) (wire.Exchange, error) {
	plain, err := s.sealer.Open(sealed, answerBinding(scope, id)...)
	if err != nil {
		return wire.Exchange{}, fmt.Errorf("open kept answer: %w", err)
	}
	var raw rawAnswer
	if err := json.Unmarshal(plain, &raw); err != nil {
		return wire.Exchange{}, fmt.Errorf("decode kept answer: %w", err)
	}
	return wire.Exchange{Phase: wire.Answered, Status: raw.Status, Header: raw.Header,
		Body: wire.Body{Bytes: raw.Body, State: raw.State, Size: int64(len(raw.Body))}}, nil
}
