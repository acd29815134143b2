package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

const maxReply = 4 << 20

// answer is what came back for one request.
type answer struct {
	status int // 0: none came
	err    error
	header http.Header
	raw    []byte
	took   time.Duration
	body   struct {
		ID        string          `json:"id"`
		State     string          `json:"state"`
		Replayed  bool            `json:"replayed"`
		Result    json.RawMessage `json:"result"`
		Code      string          `json:"code"`
		Detail    string          `json:"detail"`
		Verdict   string          `json:"verdict"`
		RequestID string          `json:"request_id"`
		CreatedAt time.Time       `json:"created_at"`
		BaseURL   string          `json:"base_url"`
		Connector string          `json:"connector"`
		Errors    []struct {
			Pointer string `json:"pointer"`
		} `json:"errors"`
	}
}

// is says whether the gateway itself answered with a status and a code.
func (a *answer) is(status int, code string) bool {
	return a.status == status && a.body.Code == code && a.whole()
}

// whole says whether an answer is a gateway's and arrived as it left: header and
// body name the same request.
func (a *answer) whole() bool {
	id := a.header.Get("Request-Id")
	return a.status != 0 && a.err == nil && strings.HasPrefix(id, "req_") && a.body.RequestID == id
}

// said words an answer.
func (a *answer) said() string {
	switch {
	case a.err != nil:
		return "no answer (" + a.err.Error() + ")"
	case a.body.Code != "":
		return fmt.Sprintf("%d %s", a.status, a.body.Code)
	case a.body.State != "" && a.body.Replayed:
		return fmt.Sprintf("%d %s, replayed", a.status, a.body.State)
	case a.body.State != "":
		return fmt.Sprintf("%d %s", a.status, a.body.State)
	default:
		return fmt.Sprintf("%d with a body that is not the gateway's", a.status)
	}
}

// request is one to be made.
type request struct {
	method, path string
	body         string
	anonymous    bool
}

// ask makes a request of the deployment on a connection of its own.
func (x *examination) ask(ctx context.Context, r request) *answer {
	key := x.o.Key
	if r.anonymous {
		key = ""
	}
	a := x.send(ctx, r.method, x.o.URL+r.path, r.body, key)
	x.read(a)
	return a
}

func (x *examination) send(ctx context.Context, method, url, body, key string) *answer {
	a := &answer{header: http.Header{}}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		a.err = fmt.Errorf("the address cannot be used: %w", err)
		return a
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Body = http.NoBody
	}
	// Without it, net/http has nothing to send again with.
	req.GetBody = nil
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	began := time.Now()
	resp, err := x.client.Do(req)
	a.took = time.Since(began)
	if err != nil {
		a.err = err
		return a
	}
	defer func() { _ = resp.Body.Close() }()
	a.status, a.header = resp.StatusCode, resp.Header
	if a.raw, err = io.ReadAll(io.LimitReader(resp.Body, maxReply)); err != nil {
		a.err = fmt.Errorf("the answer broke off: %w", err)
		return a
	}
	if kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type")); err == nil &&
		(kind == "application/json" || kind == "application/problem+json") {
		_ = json.Unmarshal(a.raw, &a.body) // what it does not fill is not the gateway's
	}
	return a
}

// read keeps what an answer says of the time.
func (x *examination) read(a *answer) {
	at, err := http.ParseTime(a.header.Get("Date"))
	if err == nil {
		x.clocks = append(x.clocks, reading{gateway: at, here: x.o.Now(), took: a.took})
	}
}

// several makes the same request again and again.
func (x *examination) several(ctx context.Context, r request) []*answer {
	var all []*answer
	for range x.o.Tries {
		all = append(all, x.ask(ctx, r))
	}
	return all
}
