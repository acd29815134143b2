package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Environment variables of the commands that speak to a deployment. They are no
// settings of a gateway.
const (
	envURL = "GATEWAY_URL"
	envKey = "GATEWAY_KEY"
)

// clientSettings are the variables that loadConfig passes over.
func clientSettings() []string { return []string{envURL, envKey} }

// deployment is a gateway somewhere, as one API key sees it.
type deployment struct {
	base   string
	key    string
	client *http.Client
}

const (
	// callPatience is longer than a check takes: look-ups and a resend included.
	callPatience = 11 * time.Minute
	maxReply     = 64 << 20
)

// deploymentFlags adds --url and --key, and returns the function that reads
// them once they are parsed.
func deploymentFlags(cmd *cobra.Command) func() (*deployment, error) {
	flags := cmd.PersistentFlags()
	base := flags.String("url", "", "address of the gateway ("+envURL+")")
	key := flags.String("key", "", "API key; better given in the environment ("+envKey+")")
	return func() (*deployment, error) {
		d := &deployment{base: firstOf(*base, os.Getenv(envURL)), key: strings.TrimSpace(firstOf(*key, os.Getenv(envKey))), client: &http.Client{
			Timeout: callPatience,
			// The key goes to the address that was given and nowhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
		u, err := url.Parse(d.base)
		switch {
		case d.base == "":
			return nil, usageError{errors.New("--url or " + envURL + " is required")}
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(d.base, "?#"):
			return nil, usageError{errors.New("--url must be an http or https address, with no user, query or fragment")}
		case d.key == "":
			return nil, usageError{errors.New("--key or " + envKey + " is required")}
		case strings.ContainsFunc(d.key, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
			return nil, usageError{errors.New("--key or " + envKey + " holds what no key does: a blank, a line's end or another such character")}
		}
		d.base = strings.TrimRight(d.base, "/")
		return d, nil
	}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// call makes one request and returns the JSON of a success.
func (d *deployment) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, payload)
	if err != nil {
		return nil, usageError{errors.New("the address cannot be used")}
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call gateway: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp.StatusCode, raw)
	}
	return raw, nil
}

// refusal words an answer that is no success.
func refusal(status int, raw []byte) error {
	var p struct{ Code, Detail string }
	if json.Unmarshal(raw, &p) != nil || p.Code == "" {
		return fmt.Errorf("the gateway answered %d", status)
	}
	return fmt.Errorf("%s: %s", p.Code, p.Detail)
}
