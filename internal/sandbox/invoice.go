package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"
)

// Behaviours a request may ask for.
const (
	OK               = "ok"
	LoseAnswer       = "lose_answer"
	FailBeforeCommit = "fail_before_commit"
	Refuse           = "refuse"
	RateLimit        = "rate_limit"
	Slow             = "slow"
)

// Invoice is one entry of the vendor's ledger, as it is answered.
type Invoice struct {
	ID       string `json:"id"`
	Object   string `json:"object"` // always "invoice"
	Status   string `json:"status"` // always "open"
	Customer string `json:"customer"`
	Amount   int64  `json:"amount"` // in the currency's smallest unit
	Currency string `json:"currency"`
	Memo     string `json:"memo,omitempty"`
	Marker   string `json:"marker,omitempty"`
	// CreatedAt is RFC 3339, UTC.
	CreatedAt string `json:"created_at"`
}

// order is the body of POST /v1/invoices.
type order struct {
	Customer string `json:"customer"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Memo     string `json:"memo"`
	Marker   string `json:"marker"`
	Behave   string `json:"behave"`
	DelayMS  int64  `json:"delay_ms"`
}

var currencyForm = regexp.MustCompile(`^[A-Za-z]{3}$`)

const maxText = 500 // bytes of a customer, memo or marker

func readOrder(w http.ResponseWriter, r *http.Request) (order, error) {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	var o order
	if err := dec.Decode(&o); err != nil {
		return order{}, errors.New("the body is not the JSON object that is expected")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return order{}, errors.New("something follows the JSON object")
	}
	return o, o.check()
}

func (o *order) check() error {
	switch {
	case o.Customer == "" || len(o.Customer) > maxText:
		return fmt.Errorf("customer must have 1 to %d characters", maxText)
	case o.Amount < 1:
		return errors.New("amount must be a whole number of at least 1")
	case !currencyForm.MatchString(o.Currency):
		return errors.New("currency must have three letters")
	case len(o.Memo) > maxText || len(o.Marker) > maxText:
		return fmt.Errorf("memo and marker must have at most %d characters", maxText)
	case o.DelayMS < 0 || o.DelayMS > MaxDelay.Milliseconds():
		return fmt.Errorf("delay_ms must be 0 to %d", MaxDelay.Milliseconds())
	}
	switch o.Behave {
	case "", OK, LoseAnswer, FailBeforeCommit, Refuse, RateLimit, Slow:
		return nil
	default:
		return errors.New("behave is not one of ok, lose_answer, fail_before_commit, refuse, rate_limit, slow")
	}
}

// books is the ledger. Its owner guards it.
type books struct {
	capacity int
	made     int64
	order    []string // ids, oldest first
	byID     map[string]Invoice
}

func (b *books) add(o order, at time.Time) Invoice {
	b.made++
	inv := Invoice{
		ID: fmt.Sprintf("inv_%06d", b.made), Object: "invoice", Status: "open",
		Customer: o.Customer, Amount: o.Amount, Currency: o.Currency, Memo: o.Memo, Marker: o.Marker,
		CreatedAt: at.UTC().Format(time.RFC3339),
	}
	if len(b.order) == b.capacity {
		delete(b.byID, b.order[0])
		b.order = b.order[1:]
	}
	b.order = append(b.order, inv.ID)
	b.byID[inv.ID] = inv
	return inv
}

// marked returns the invoices with a marker, oldest first.
func (b *books) marked(marker string) []Invoice {
	found := []Invoice{}
	for _, id := range b.order {
		if inv := b.byID[id]; inv.Marker == marker {
			found = append(found, inv)
		}
	}
	return found
}
