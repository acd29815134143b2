package workbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/wire"
)

// notSent is an outcome only the wire can give: no byte left.
const notSent connectors.Outcome = "not_sent"

// fault is one thing that can go wrong with a vendor.
type fault struct {
	name    string
	allowed []connectors.Outcome
	// place is where the request goes, if not to the vendor.
	place func(addr string) string
	// raw is what the vendor does, given an answer that would be a success.
	raw func(good connectors.Answer) func(net.Conn)
}

// patience bounds the exchange of a fault; a vendor that hangs takes all of it.
const patience = 250 * time.Millisecond

const (
	jsonHead = "Content-Type: application/json\r\nConnection: close\r\n"
	htmlPage = "<html><body>Bad Gateway</body></html>"
)

// faults are those every connector must stand. What nobody can tell is unknown;
// what proves that nothing left is not_sent; a rate limit may be retryable.
func faults() []fault {
	unknown := []connectors.Outcome{connectors.Unknown}
	unsent := []connectors.Outcome{notSent}
	whole := func(status int, contentType, body string, more ...string) func(connectors.Answer) func(net.Conn) {
		return func(connectors.Answer) func(net.Conn) {
			return say(fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s",
				status, http.StatusText(status), contentType, len(body), strings.Join(more, ""), body))
		}
	}
	raw := func(text string) func(connectors.Answer) func(net.Conn) {
		return func(connectors.Answer) func(net.Conn) { return say(text) }
	}
	return []fault{
		{name: "connection refused", allowed: unsent, place: refusedURL},
		{name: "name not found", allowed: unsent, place: func(string) string { return "https://vendor.invalid" }},
		{name: "TLS fails", allowed: unsent, place: func(addr string) string { return "https://" + addr }, raw: raw("")},
		{name: "cut before the headers", allowed: unknown, raw: raw("")},
		{name: "cut during the headers", allowed: unknown, raw: raw("HTTP/1.1 200 OK\r\nContent-Type: applica")},
		{name: "cut body with a length", allowed: unknown, raw: func(good connectors.Answer) func(net.Conn) {
			return say(fmt.Sprintf("HTTP/1.1 %d OK\r\n%sContent-Length: %d\r\n\r\n%s", good.Status, jsonHead, len(good.Body), half(good)))
		}},
		{name: "cut body without a length", allowed: unknown, raw: func(good connectors.Answer) func(net.Conn) {
			return say(fmt.Sprintf("HTTP/1.1 %d OK\r\n%s\r\n%s", good.Status, jsonHead, half(good)))
		}},
		{name: "status 204", allowed: []connectors.Outcome{connectors.Unknown, connectors.Succeeded},
			raw: raw("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")},
		{name: "status 307", allowed: unknown, raw: whole(307, "application/json", "{}", "Location: /elsewhere\r\n")},
		{name: "status 429", allowed: []connectors.Outcome{connectors.Unknown, connectors.Retryable},
			raw: whole(429, "application/json", "{}", "Retry-After: 3\r\n")},
		{name: "HTML with status 200", allowed: unknown, raw: whole(200, "text/html", "<html><body>Welcome</body></html>")},
		{name: "HTML with status 502", allowed: unknown, raw: whole(502, "text/html", htmlPage)},
		{name: "hang", allowed: unknown, raw: func(connectors.Answer) func(net.Conn) { return hang }},
	}
}

// half is a body that was cut. One that has nothing to cut gets something.
func half(good connectors.Answer) string { return string(good.Body[:(len(good.Body)+1)/2]) }

// refusedURL is a loopback port that was free a moment ago.
func refusedURL(string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "http://127.0.0.1:1"
	}
	defer func() { _ = l.Close() }()
	return "http://" + l.Addr().String()
}

// Faults plays every fault against every action: at most one request arrives,
// and what is made of it is one of the outcomes the fault allows. Each action
// needs a fixture of a success to play with.
func (b *Bench) Faults(ctx context.Context, c connectors.Connector, f *Fixtures) []Finding {
	client := wire.New(wire.Config{
		EgressAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Resolver:    &net.Resolver{PreferGo: true, Dial: noNames},
	})
	defer client.Close()
	p := player{fixtures: f, connector: c, client: client}
	spec := c.Spec()
	names := make([]string, 0, len(spec.Actions))
	for name := range spec.Actions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		p.action(ctx, name)
	}
	return p.found
}

var errNoNames = errors.New("there are no names here")

func noNames(context.Context, string, string) (net.Conn, error) { return nil, errNoNames }

type player struct {
	fixtures  *Fixtures
	connector connectors.Connector
	client    *wire.Client
	found     []Finding
}

func (p *player) action(ctx context.Context, name string) {
	at := pointer("actions", name)
	op, good, err := p.success(name)
	if err != nil {
		p.found = append(p.found, p.fixtures.finding(at, "the faults cannot be played: %v", err))
		return
	}
	for _, one := range faults() {
		if err := p.play(ctx, one, op, good); err != nil {
			p.found = append(p.found, p.fixtures.finding(at, "%s: %v", one.name, err))
		}
	}
}

// success is the write of the first fixture that succeeds, and its answer.
func (p *player) success(action string) (connectors.Op, connectors.Answer, error) {
	f := p.fixtures.Actions[action]
	at := slices.IndexFunc(f.Answers, func(a AnswerFixture) bool { return a.Outcome == connectors.Succeeded })
	if at < 0 {
		return connectors.Op{}, connectors.Answer{}, errors.New("no fixture shows a success")
	}
	params := f.Answers[at].Params
	if len(params) == 0 {
		params = f.Params
	}
	op, err := OpOf(p.connector.Spec(), action, orObject(params), orObject(f.Config), f.BaseURL)
	if err != nil {
		return connectors.Op{}, connectors.Answer{}, err
	}
	good := f.Answers[at].as(op)
	if len(good.Body) < 2 {
		good.Status, good.Body = http.StatusOK, []byte(`{"id":"x","state":"done"}`)
	}
	return op, good, nil
}

// secret is the credential of the faults. It may leave, and stand nowhere else.
const secret = "workbench-credential-7d1c"

func (p *player) play(ctx context.Context, f fault, op connectors.Op, good connectors.Answer) error {
	behave := hang
	if f.raw != nil {
		behave = f.raw(good)
	}
	v, err := startVendor(behave)
	if err != nil {
		return fmt.Errorf("start vendor: %w", err)
	}
	defer v.close()
	place := "http://" + v.addr()
	if f.place != nil {
		place = f.place(v.addr())
	}
	op.BaseURL = place + basePath(p.connector.Spec(), op)
	req, err := p.request(ctx, op)
	if err != nil {
		return err
	}
	x := p.client.Send(ctx, wire.Request{Method: req.Method, URL: req.URL, Header: req.Header, Body: req.Body, Timeout: patience}, nil)
	got, err := p.outcome(ctx, op, x)
	if err != nil {
		return err
	}
	if n := v.arrivals.Load(); n > 1 {
		return fmt.Errorf("%d requests arrived for one write", n)
	}
	if !slices.Contains(f.allowed, got) {
		return fmt.Errorf("this is judged %s, and may be only %s", got, either(f.allowed))
	}
	return nil
}

// basePath keeps the path of the connector's own base URL.
func basePath(spec connectors.Spec, op connectors.Op) string {
	base := op.BaseURL
	if base == "" {
		base = spec.BaseURL.Default
	}
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return u.Path
}

// request is the request as it leaves, with a credential.
func (p *player) request(ctx context.Context, op connectors.Op) (connectors.Request, error) {
	req, err := p.connector.Plan(ctx, op)
	if err != nil {
		return req, fmt.Errorf("the request cannot be planned: %w", err)
	}
	req = req.Clone()
	auth, creds := p.connector.Spec().Auth, map[string]string{}
	for _, name := range auth.Credentials() {
		creds[name] = secret
	}
	if auth.OAuth() { // no token is asked for here: the faults are the vendor's
		creds[connectors.AccessToken] = secret
	}
	if err := auth.Apply(&req, creds); err != nil {
		return req, fmt.Errorf("the credential cannot be added: %w", err)
	}
	return req, nil
}

// outcome is what the gateway would make of an exchange.
func (p *player) outcome(ctx context.Context, op connectors.Op, x wire.Exchange) (connectors.Outcome, error) {
	switch {
	case x.Phase == wire.NotSent:
		return notSent, nil
	case x.Phase != wire.Answered || x.Body.State == wire.Cut:
		return connectors.Unknown, nil
	}
	v, err := p.connector.Judge(ctx, op, connectors.Answer{
		Status: x.Status, Header: x.Header, Body: x.Body.Bytes, Whole: x.Body.State == wire.Complete,
	})
	if err != nil {
		return connectors.Unknown, nil //nolint:nilerr // an error of a judge is unknown, whatever it says
	}
	if strings.Contains(string(v.Result)+v.Code+v.Message, secret) {
		return v.Outcome, errors.New("the credential stands in what is made of the answer")
	}
	return v.Outcome, nil
}

func either(list []connectors.Outcome) string {
	words := make([]string, 0, len(list))
	for _, o := range list {
		words = append(words, string(o))
	}
	return strings.Join(words, " or ")
}
