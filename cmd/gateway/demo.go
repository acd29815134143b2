package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/sandbox"
)

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Args: noArgs,
		Short: "Play the story on the embedded store with the built-in sandbox vendor, then keep serving",
	}
	exit := cmd.Flags().Bool("exit", false, "end after the story; non-zero if any step differs")
	listen := cmd.Flags().String("listen", "127.0.0.1:0", "address of the API")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return demo(cmd.Context(), *listen, *exit, cmd.OutOrStdout())
	}
	return cmd
}

// demo starts everything on this machine in a folder that is gone afterwards.
func demo(ctx context.Context, listen string, exit bool, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return fmt.Errorf("make demo folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	vendor, err := sandbox.Start("127.0.0.1:0", sandbox.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vendor.Close()) }()

	cfg := defaultConfig()
	cfg.Listen, cfg.AdminListen = listen, "127.0.0.1:0"
	cfg.Store = embeddedPrefix + filepath.Join(dir, "data")
	cfg.EgressAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.DrainTimeout = 2 * time.Second
	// The gateway would find the invoice by itself; the story wants to be told first.
	cfg.reconcile = actions.DefaultReconcile()
	cfg.reconcile.Every = 15 * time.Second
	if err := address(func(c *Config) *string { return &c.Listen })(&cfg, listen); err != nil {
		return usageError{fmt.Errorf("flag --listen: %w", err)}
	}

	app, err := open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, app.Close()) }()
	if err := app.Start(); err != nil {
		return err
	}

	s := &story{ctx: ctx, out: out, base: app.URL(), admin: app.newAdminKey, vendor: vendor}
	s.printf("Holdfast demo\n  gateway  %s\n  vendor   %s (built in, on this machine; it does every request it gets)\n\n", app.URL(), vendor.URL)
	s.prepare()
	s.play()
	if s.err != nil {
		return fmt.Errorf("demo: %w", s.err)
	}
	if s.differs > 0 {
		return fmt.Errorf("demo: %d steps differ from what they should be", s.differs)
	}
	s.printf("\nEvery step is as it should be.\n")
	if exit {
		return s.err
	}
	s.invite()
	select {
	case <-ctx.Done():
	case err = <-app.failed:
	}
	return err
}

// story plays requests against a running gateway, as an agent would, and shows
// the vendor's own count beside each answer.
type story struct {
	ctx     context.Context //nolint:containedctx // the story is one call
	out     io.Writer
	base    string
	admin   string
	key     string
	vendor  *sandbox.Server
	agent   http.Client // the agent's side of the demo; the gateway has its own wire
	differs int
	step    int
	err     error
}

func (s *story) printf(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.out, format, args...)
	}
}

// prepare makes a tenant, a key and a connection over the public API.
func (s *story) prepare() {
	s.expect(http.StatusCreated, "POST", "/v1/tenants", s.admin, `{"id":"demo"}`)
	var key struct {
		Key string `json:"key"`
	}
	body := s.expect(http.StatusCreated, "POST", "/v1/tenants/demo/keys", s.admin,
		`{"label":"demo","scopes":["do","read","resolve","manage"]}`)
	if s.err == nil {
		s.err = json.Unmarshal(body, &key)
	}
	s.key = key.Key
	s.expect(http.StatusCreated, "PUT", "/v1/connections/billing", s.key,
		fmt.Sprintf(`{"connector":"sandbox@1","base_url":%q,"credentials":{"token":"demo-vendor-token"}}`, s.vendor.URL))
}

func (s *story) expect(status int, method, path, key, body string) []byte {
	got, answer := s.call(method, path, key, body)
	if s.err == nil && got != status {
		s.err = fmt.Errorf("%s %s answered %d: %s", method, path, got, answer)
	}
	return answer
}

func (s *story) call(method, path, key, body string) (int, []byte) {
	if s.err != nil {
		return 0, nil
	}
	req, err := http.NewRequestWithContext(s.ctx, method, s.base+path, bytes.NewBufferString(body))
	if err != nil {
		s.err = err
		return 0, nil
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.agent.Do(req)
	if err != nil {
		s.err = err
		return 0, nil
	}
	answer, err := io.ReadAll(resp.Body)
	s.err = errors.Join(err, resp.Body.Close())
	return resp.StatusCode, answer
}

// answer is what the story reads of a reply.
type answer struct {
	ID       string `json:"id"`
	ActionID string `json:"action_id"`
	State    string `json:"state"`
	Code     string `json:"code"`
	Replayed bool   `json:"replayed"`
}

// do plays one step: what is done, the status and word it should be answered
// with, and how many invoices the vendor should have made by then.
func (s *story) do(what, body string, status int, word string, invoices int64) answer {
	s.step++
	got, raw := s.call("POST", "/v1/do", s.key, body)
	return s.show(what, got, raw, status, word, invoices)
}

func (s *story) show(what string, got int, raw []byte, status int, word string, invoices int64) answer {
	var a answer
	if s.err != nil {
		return a
	}
	if s.err = json.Unmarshal(raw, &a); s.err != nil {
		return a
	}
	said := a.Code
	if said == "" {
		said = a.State
		if a.Replayed {
			said = "replayed"
		}
	}
	made := s.vendor.Count().Committed
	mark := "ok"
	if got != status || said != word || made != invoices {
		mark = fmt.Sprintf("DIFFERS: should be %d %s, %d made", status, word, invoices)
		s.differs++
	}
	s.printf("%2d  %-52s %d %-16s vendor made %d   %s\n", s.step, what, got, said, made, mark)
	return a
}

func (s *story) play() {
	const invoice = `{"connection":"billing","action":"create_invoice","body":{"customer":"acme","amount":12000,"currency":"EUR"}}`
	const reordered = `{"body":{"currency":"EUR","amount":12000,"customer":"acme"},"action":"create_invoice","connection":"billing"}`
	const lost = `{"connection":"billing","action":"create_invoice","body":{"customer":"acme","amount":7500,"currency":"EUR","behave":"lose_answer"}}`
	const keyed = `{"connection":"billing","action":"create_invoice","idempotency_key":"order-7","body":{"customer":"acme","amount":%s,"currency":"EUR"}}`
	const refuse = `{"connection":"billing","action":"create_invoice","body":{"customer":"acme","amount":100,"currency":"EUR","behave":"refuse"}}`

	s.do("create an invoice", invoice, 200, "succeeded", 1)
	s.do("the agent retries: the same request again", invoice, 200, "replayed", 1)
	s.do("and again, its members in another order", reordered, 200, "replayed", 1)
	held := s.do("the vendor does it, but its answer is lost", lost, 423, "outcome_unknown", 2)
	s.do("the agent retries: held, not sent again", lost, 423, "outcome_unknown", 2)

	s.step++
	got, raw := s.call("POST", "/v1/actions/"+held.ActionID+"/resolve", s.key,
		`{"outcome":"succeeded","result":{"note":"found at the vendor"},"note":"looked it up by hand"}`)
	s.show("an operator looks at the vendor and resolves it", got, raw, 200, "succeeded", 2)

	s.do("the agent retries: the resolved answer", lost, 200, "replayed", 2)
	s.do("an own idempotency key", fmt.Sprintf(keyed, "1000"), 200, "succeeded", 3)
	s.do("the same key for another request", fmt.Sprintf(keyed, "9900"), 422, "key_reused", 3)
	s.do("the vendor refuses", refuse, 424, "vendor_refused", 3)
	s.do("the agent retries: the stored refusal", refuse, 424, "vendor_refused", 3)
}

// invite tells how to go on by hand.
func (s *story) invite() {
	s.printf(`
Try it yourself (Ctrl-C ends the demo):

  curl -s %s/v1/do -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \
    -d '{"connection":"billing","action":"create_invoice","body":{"customer":"you","amount":500,"currency":"EUR"}}'

"behave" in the body may be lose_answer, fail_before_commit, refuse, rate_limit or slow (with "delay_ms").
`, s.base, s.key)
}
