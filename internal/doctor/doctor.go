// Package doctor looks at a deployment as its users see it: through its public
// URL, with a load balancer, proxies and several replicas in between, and says
// what is not as it has to be and what to do about it.
//
// It makes requests, some of them writes to the sandbox vendor, and compares
// answers. It owns the probes and their findings. What a gateway answers is fixed
// elsewhere; how findings are shown is the command's.
//
// Each request has a connection of its own, so that a load balancer has a new
// choice of replica each time. Nothing here repeats a request by itself: what
// arrives twice was repeated by somebody in between.
package doctor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Level is how a check came out.
type Level string

// A problem is something that breaks a promise or hides an answer. Not shown
// means that a check could not be made, by the caller's choice.
const (
	OK       Level = "ok"
	Warning  Level = "warning"
	Problem  Level = "problem"
	NotShown Level = "not shown"
)

// Finding is one check's result, in words for a person.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Found string `json:"found"`
	// Do says how to mend it; empty if there is nothing to do.
	Do string `json:"do,omitempty"`
}

// Report is everything that was found, in the order in which it was looked at.
type Report struct {
	URL      string    `json:"url"`
	At       time.Time `json:"at"`
	Healthy  bool      `json:"healthy"` // no problem; warnings may be there
	Findings []Finding `json:"findings"`
}

// Options say where to look. URL and Key are required.
type Options struct {
	URL string // public address, without a trailing slash
	Key string // of a tenant, with do; with manage, too, unless Connection is given
	// AdminURLs are the admin listeners of all replicas, each reached directly.
	AdminURLs []string
	// Connection is an existing connection of sandbox@1; "": one is made, and
	// deleted afterwards.
	Connection string
	// SandboxListen is where this process shows the sandbox vendor to the
	// replicas, which must be allowed to call it (GATEWAY_EGRESS_ALLOW).
	SandboxListen string
	Tries         int           // requests of each kind, at least 2
	Slow          time.Duration // how long a slow write takes, at most 9 s
	Now           func() time.Time
}

// patience is above what a write of the sandbox connector may take, and above
// the time after which most load balancers give up.
const patience = 75 * time.Second

// examination is one run.
type examination struct {
	o      Options
	run    string // names this run in what it writes
	client *http.Client
	report *Report
	clocks []reading
	vendor *vendor
}

// Examine makes all checks that can be made. It ends early, with what it has,
// when ctx does; what it made is removed in any case.
func Examine(ctx context.Context, o Options) (*Report, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Tries = max(o.Tries, 2)
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("name the run: %w", err)
	}
	x := &examination{
		o: o, run: "doctor-" + hex.EncodeToString(random),
		client: newClient(),
		report: &Report{URL: o.URL, At: o.Now().UTC(), Findings: []Finding{}},
	}
	before := x.countRequests(ctx)
	known := x.reach(ctx)
	x.inClear()
	x.adminListener(ctx)
	x.errorsPass(ctx)
	if known {
		x.writes(ctx)
	}
	x.clock()
	x.replicas(ctx, before)
	x.report.Healthy = true
	for _, f := range x.report.Findings {
		x.report.Healthy = x.report.Healthy && f.Level != Problem
	}
	return x.report, nil
}

func newClient() *http.Client {
	return &http.Client{
		Timeout: patience,
		// Its own transport: a connection for each request, and the environment's
		// proxy as users of the deployment would have it.
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second,
		},
		// The key goes to the address that was given and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (x *examination) found(check string, level Level, found, do string) {
	x.report.Findings = append(x.report.Findings, Finding{Check: check, Level: level, Found: found, Do: do})
}

func (x *examination) ok(check, format string, args ...any) {
	x.found(check, OK, fmt.Sprintf(format, args...), "")
}

func (x *examination) problem(check, do, format string, args ...any) {
	x.found(check, Problem, fmt.Sprintf(format, args...), do)
}

// each returns the different values in the order in which they were first seen.
func each(values []string) string {
	var list []string
	seen := map[string]bool{}
	for _, v := range values {
		if !seen[v] {
			seen[v] = true
			list = append(list, v)
		}
	}
	return strings.Join(list, "; ")
}
