package api

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/actions"
)

// Sizes of a page.
const (
	defaultPage = 50
	maxPage     = 200
)

// query reads the parameters of a list. One that is misspelt or given twice is
// refused: ignored, it would show everything to somebody who asked for less.
type query struct {
	values url.Values
	bad    []field
}

// query reads the parameters, which must be among the known ones. A known name
// that ends in * stands for all that begin like it.
func (c *call) query(known ...string) *query {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.bad = append(q.bad, field{detail: "The query of the URL is not well-formed."})
	}
	for name, given := range values {
		switch {
		case !slices.ContainsFunc(known, func(k string) bool { return isNamed(name, k) }):
			q.refuse(name, "there is no such parameter here; there are "+strings.Join(known, ", "))
		case len(given) > 1:
			q.refuse(name, "this parameter is given more than once")
		}
	}
	return q
}

func isNamed(name, known string) bool {
	prefix, open := strings.CutSuffix(known, "*")
	return name == known && !open || open && strings.HasPrefix(name, prefix)
}

func (q *query) refuse(name, detail string) {
	q.bad = append(q.bad, field{parameter: name, detail: detail})
}

func (q *query) text(name string) string { return q.values.Get(name) }

// time reads RFC 3339, zero if it is absent.
func (q *query) time(name string) time.Time {
	s := q.text(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		q.refuse(name, "this must be a time in RFC 3339, such as 2026-01-31T08:00:00Z")
	}
	return t
}

func (q *query) limit() int {
	s := q.text("limit")
	if s == "" {
		return defaultPage
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxPage {
		q.refuse("limit", fmt.Sprintf("this must be a whole number from 1 to %d", maxPage))
		return defaultPage
	}
	return n
}

// err is the refusal, if there is a reason for one.
func (q *query) err() error {
	if len(q.bad) == 0 {
		return nil
	}
	slices.SortFunc(q.bad, func(a, b field) int { return strings.Compare(a.parameter, b.parameter) })
	return refuse(actions.InvalidRequest, "A query parameter is not acceptable, so nothing was done. Correct what errors names and send it again.", q.bad...)
}

// encodePage encodes a list: its items, and the cursor of the next page if there is
// one.
func encodePage(n int, next string, item func(i int, o *object)) []byte {
	o := newObject(512 * (n + 1))
	o.list("data", n, item)
	o.some("next_cursor", next)
	return o.bytes()
}
