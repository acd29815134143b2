package benchtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast.dev/gateway/internal/identity"
)

// identityContests hold what makes two requests one (guard, canonical form, hash)
// against reading the same bytes once. They run in this process: no other is
// part of it.
func identityContests(short bool) []Entry {
	sizes := []int{300, 3_000, 30_000}
	if short {
		sizes = sizes[:1]
	}
	var all []Entry
	for _, size := range sizes {
		name := fmt.Sprintf("identity of %d B", size)
		all = append(all, Entry{Name: name, Open: func(_ testing.TB, b *Bench) Contest {
			in := identity.Input{TenantID: "t_9f2c", ConnectionID: "c_81e7", Action: "create_invoice", Body: Invoice(size)}
			derive := func() error {
				_, err := identity.Derive(in)
				return err
			}
			valid := func() error {
				if !json.Valid(in.Body) {
					return errors.New("not valid")
				}
				return nil
			}
			return Contest{
				Name:        name,
				Contestants: []Contestant{{Name: "by turns", Round: b.byTurns(derive, valid)}},
				Figures: []Figure{
					{Name: fmt.Sprintf("identity of a body of %d B ÷ `json.Valid`, medians", size), Unit: "ns", Goal: AtMost(1.5), Of: byTurns("median_ns")},
					{Name: "– the fastest of each", Unit: "ns", Goal: AtMost(1.5), Of: byTurns("min_ns")},
					{Name: "– allocations", Goal: Goal{Zero: true}, Of: Value("by turns", "allocations")},
				},
			}
		}})
	}
	return all
}

// byTurns is the quotient of what the first and the second of two functions brought
// that took turns.
func byTurns(what string) func(Round) (float64, float64) {
	return func(r Round) (float64, float64) {
		both := r["by turns"]
		return both["first_"+what], both["second_"+what]
	}
}

// byTurns measures two functions for a third of a round, which is plenty, in short
// batches that take turns: a neighbour who disturbs one of them disturbs both.
// Allocations are the first one's.
func (b *Bench) byTurns(first, second func() error) func(context.Context) (Sample, error) {
	return func(ctx context.Context) (Sample, error) {
		if err := errors.Join(first(), second()); err != nil {
			return nil, err
		}
		batch := 1
		for took := time.Duration(0); took < b.Time/1000; batch *= 2 {
			took = clocked(first, batch)
		}
		var times [2][]float64
		for began := time.Now(); (time.Since(began) < b.Time/3 || len(times[1]) < 3) && ctx.Err() == nil; {
			for i, f := range []func() error{first, second} {
				times[i] = append(times[i], float64(clocked(f, batch).Nanoseconds())/float64(batch))
			}
		}
		return Sample{
			"first_median_ns": Median(times[0]), "first_min_ns": slices.Min(times[0]),
			"second_median_ns": Median(times[1]), "second_min_ns": slices.Min(times[1]),
			"allocations": testing.AllocsPerRun(100, func() { _ = first() }),
		}, nil
	}
}

func clocked(f func() error, times int) time.Duration {
	began := time.Now()
	for range times {
		_ = f() // seen to work before
	}
	return time.Since(began)
}

// Invoice is a body like those that agents send, of about size bytes.
func Invoice(size int) []byte {
	line := `{"sku":"SKU-00017","description":"Consulting — day 17","quantity":8,"unit_price":117.25},`
	lines := strings.TrimSuffix(strings.Repeat(line, max(1, (size-110)/len(line))), ",")
	return []byte(`{"customer":"cus_N9f2c81e7","currency":"eur","days_until_due":30,"auto_advance":false,"lines":[` + lines + `]}`)
}
