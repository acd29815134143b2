// Command go makes one write through Holdfast, at most once. Standard library only.
//
//	GATEWAY_URL=http://localhost:8080 GATEWAY_KEY=hf_... \
//	  go run ./examples/go CONNECTION ACTION BODY [IDEMPOTENCY-KEY]
//
// It ends with 0: done; 1: not done; 2: wrong usage; 3: it may have been done, so do
// not send it again in other words or under another key; 4: GATEWAY_PATIENCE (120
// seconds) is over, so run the very same command again.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// What a write that was not answered with success came to.
var (
	errNotDone   = errors.New("not done, and will not be unless something changes")
	errUnknown   = errors.New("may have been done: sending it in other words could do it twice")
	errStillOpen = errors.New("patience is over: the very same call, later, finds out")
)

type gateway struct {
	url, key string
	patience time.Duration
	client   *http.Client
}

// write is what to do. Its body is sent as it is: a number that went through a
// float64 would be another one.
type write struct {
	Connection string          `json:"connection"`
	Action     string          `json:"action"`
	Body       json.RawMessage `json:"body"`
	OwnKey     string          `json:"idempotency_key,omitempty"`
}

// do returns the answer of a write that was done.
func (g gateway) do(ctx context.Context, w write) ([]byte, error) {
	// Made once: every attempt sends it, so that all of them are one write.
	request, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotDone, err)
	}
	over := time.Now().Add(g.patience)
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		a := g.attempt(ctx, request)
		switch {
		case a.status == http.StatusOK && a.State == "succeeded":
			return a.raw, nil
		case a.status == http.StatusOK, a.Next == "", a.Next == "wait_and_repeat", a.Next == "get_action":
			// Without next it is not the gateway that speaks, and says nothing.
		case a.status == http.StatusLocked, a.status == http.StatusInternalServerError:
			return nil, fmt.Errorf("%w: %s", errUnknown, a.raw)
		default:
			return nil, fmt.Errorf("%w: %s", errNotDone, a.raw)
		}
		if a.retryAfter == 0 {
			a.retryAfter = wait
		}
		if time.Now().Add(a.retryAfter).After(over) {
			return nil, fmt.Errorf("%w (last status %d)", errStillOpen, a.status)
		}
		select {
		case <-time.After(a.retryAfter):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errStillOpen, ctx.Err())
		}
	}
}

// answer is what one attempt brought; status 0: nothing.
type answer struct {
	status      int
	retryAfter  time.Duration
	raw         []byte
	State, Next string
}

func (g gateway) attempt(ctx context.Context, request []byte) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/v1/do", bytes.NewReader(request))
	if err != nil {
		return answer{}
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.client.Do(req)
	if err != nil {
		return answer{}
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode}
	if a.raw, err = io.ReadAll(resp.Body); err != nil {
		return answer{} // half an answer is none
	}
	if json.Unmarshal(a.raw, &a) != nil {
		a.State, a.Next = "", ""
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.retryAfter = time.Duration(seconds) * time.Second
	}
	return a
}

func main() {
	args := os.Args[1:]
	if len(args) != 3 && len(args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: GATEWAY_URL=... GATEWAY_KEY=... go run ./examples/go CONNECTION ACTION BODY [IDEMPOTENCY-KEY]")
		os.Exit(2)
	}
	patience, err := strconv.Atoi(os.Getenv("GATEWAY_PATIENCE"))
	if err != nil {
		patience = 120
	}
	g := gateway{
		url: os.Getenv("GATEWAY_URL"), key: os.Getenv("GATEWAY_KEY"), patience: time.Duration(patience) * time.Second,
		client: &http.Client{
			Timeout:       time.Minute,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	w := write{Connection: args[0], Action: args[1], Body: json.RawMessage(args[2])}
	if len(args) == 4 {
		w.OwnKey = args[3]
	}
	raw, err := g.do(context.Background(), w)
	if err == nil {
		_, err = fmt.Fprintln(os.Stdout, string(raw))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(code(err))
	}
}

func code(err error) int {
	switch {
	case errors.Is(err, errUnknown):
		return 3
	case errors.Is(err, errStillOpen):
		return 4
	default:
		return 1
	}
}
