package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// exported runs gateway audit export and returns both its outputs.
func exported(t *testing.T, a *agent, args ...string) (out, said string, err error) {
	t.Helper()
	cmd := command()
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(append([]string{"audit", "export", "--url", a.base, "--key", a.key}, args...))
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// TestExportedLogProvesItself: gateway audit export | gateway audit verify, also
// if the export was broken off somewhere and gone on with.
func TestExportedLogProvesItself(t *testing.T) {
	onBothArchives(t, func(t *testing.T, cfg Config) {
		cfg.auditRows = 4
		vendor := vendortest.New(t, vendortest.OK)
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		for n := range 8 {
			a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n), `"meta":{"run":"=7"}`).is(200, "succeeded")
		}
		sealedThrough(t, app, a.scopeOf(app))
		keys, checkpoint := proofOf(a)
		verify := func(log string) (string, error) {
			return runCommand(t, append([]string{"audit", "verify", kept(t, log), "--checkpoint", checkpoint}, keys...)...)
		}
		whole, said, err := exported(t, a)
		require.NoError(t, err)
		out, err := verify(whole)
		require.NoError(t, err, out)
		require.Contains(t, out, "it leads to the later checkpoint")
		require.Regexp(t, `^it ended there; what comes later: --cursor \S+~\n$`, said)

		for _, cut := range []int{1, len(whole) / 5, len(whole) / 3, len(whole) / 2, len(whole) * 4 / 5, len(whole) - 1} {
			var part bytes.Buffer
			lines := exportLines{}
			err := lines.copy(&part, iotest.TimeoutReader(io.MultiReader(strings.NewReader(whole[:cut]), iotest.ErrReader(io.ErrUnexpectedEOF))), func() {})
			require.Error(t, err)
			rest, _, err := exported(t, a, "--cursor="+lines.cursor())
			require.NoError(t, err)
			require.Equal(t, whole, part.String()+rest, "cut at %d, gone on at %q", cut, lines.cursor())
		}

		// Later, only what is new.
		cursor := regexp.MustCompile(`--cursor (\S+)`).FindStringSubmatch(said)[1]
		a.do("c", "create", `{"n":9}`).is(200, "succeeded")
		sealedThrough(t, app, a.scopeOf(app))
		more, _, err := exported(t, a, "--sealed", "--cursor", cursor)
		require.NoError(t, err)
		out, err = verify(whole + more)
		require.NoError(t, err, out)

		// A part is no proof, and does not pass for one.
		part, _, err := exported(t, a, "--event", "succeeded", "--meta", "run==7")
		require.NoError(t, err)
		require.Equal(t, 8, strings.Count(part, "\n"))
		_, err = verify(part)
		require.ErrorIs(t, err, errNotWhole)

		host := &agent{t: t, base: a.base, key: testAdminKey}
		records, _, err := exported(t, host, "--tenant", a.name, "--format", "csv", "--event", "claimed")
		require.NoError(t, err)
		require.Equal(t, 10, strings.Count(records, "\r\n"), "the names of the columns, and nine writes")
		require.Contains(t, records, `"{""run"":""'=7""}"`)
		own, _, err := exported(t, host)
		require.NoError(t, err)
		require.Contains(t, own, `"event":"tenant.reserved"`, "the platform has a log of its own")
	})
}

func TestAuditExportSaysWhatIsWrong(t *testing.T) {
	for _, args := range [][]string{{"--format", "xml"}, {"--meta", "x"}} {
		_, _, err := exported(t, &agent{base: "http://127.0.0.1:1", key: "k"}, args...)
		require.ErrorAs(t, err, new(usageError), args)
	}
	app, _ := boot(t, embedded(t))
	a := newAgent(t, app.URL())
	out, said, err := exported(t, a, "--event", "nothing")
	require.ErrorContains(t, err, "invalid_request")
	require.Empty(t, out+said)
}

// noRoom is a disk without room.
type noRoom struct{}

func (noRoom) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAnExportThatCannotBeKeptNamesNoCursor(t *testing.T) {
	lines := exportLines{}
	err := lines.copy(noRoom{}, strings.NewReader(`{"type":"row","cursor":"c"}`+"\n"), func() {})
	require.ErrorContains(t, err, "no space left")
	require.Empty(t, lines.cursor())
}

// TestNobodySeesAnothersAudit: over every call that shows audit rows, in every
// form, with every filter and with the other's cursors, a tenant gets its own rows
// alone, and for what is the other's exactly the answer for what nobody has.
func TestNobodySeesAnothersAudit(t *testing.T) {
	onBothArchives(t, func(t *testing.T, cfg Config) {
		cfg.auditRows = 4
		vendor := vendortest.New(t, vendortest.OK)
		app, _ := boot(t, cfg)
		me, other := newAgent(t, app.URL()), newAgent(t, app.URL())
		for _, a := range []*agent{me, other} {
			a.connect("c", "probe@1", vendor.URL())
			for n := range 4 {
				a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n), fmt.Sprintf(`"meta":{"run":"run of %s"}`, a.name)).is(200, "succeeded")
			}
		}
		other.connect("others", "probe@1", vendor.URL())
		sealedThrough(t, app, other.scopeOf(app))
		sealedThrough(t, app, me.scopeOf(app))
		var page struct {
			Data []struct {
				ActionID string `json:"action_id"`
				Identity string
				Actor    struct {
					KeyID string `json:"key_id"`
				}
			}
			Next string `json:"next_cursor"`
		}
		require.NoError(t, json.Unmarshal(other.must(200, "GET", "/v1/audit?event=succeeded&limit=1", nil).raw, &page))
		theirs := map[string]string{
			"action_id": page.Data[0].ActionID, "key_id": page.Data[0].Actor.KeyID, "identity": page.Data[0].Identity,
			"connection": "others", "meta.run": "run of " + other.name,
		}
		absent := map[string]string{
			"action_id": "act_01KB7T0A4X5S8R9P2M3N6Q7V1W", "key_id": "nobody", "identity": "0123456789abcdef", "connection": "nothing", "meta.run": "run of nobody",
		}
		secrets := []string{theirs["action_id"], theirs["key_id"], theirs["identity"], theirs["meta.run"], `"tenant":"` + other.name, `"others"`}
		ask := func(path string) string {
			t.Helper()
			r := me.call("GET", path, nil)
			for _, secret := range secrets {
				require.NotContains(t, string(r.raw), secret, path)
			}
			return fmt.Sprint(r.status, " ") + requestIDForm.ReplaceAllString(string(r.raw), "req")
		}
		for _, path := range []string{"/v1/audit", "/v1/audit?order=oldest", "/v1/audit?format=ndjson", "/v1/audit?format=csv", "/v1/audit?format=ndjson&sealed=true",
			"/v1/audit/verify", "/v1/audit/checkpoints", "/v1/usage", "/v1/usage?by=connection", "/v1/usage?by=key"} {
			require.Contains(t, ask(path), "200 ", path)
		}
		for _, route := range []string{"/audit", "/audit?format=csv", "/audit/verify", "/audit/checkpoints", "/usage"} {
			require.Contains(t, ask("/v1/tenants/"+other.name+route), "403 ", route)
			require.Contains(t, ask("/v1/tenants/"+me.name+route), "403 ", route)
		}
		sealedThrough(t, app, me.scopeOf(app)) // the refusals
		for name, value := range theirs {
			for _, form := range []string{"order=newest", "order=oldest", "format=ndjson", "format=csv"} {
				of := func(value string) string { return ask("/v1/audit?" + form + "&" + url.Values{name: {value}}.Encode()) }
				require.Equal(t, of(absent[name]), of(value), "%s %s", name, form)
			}
		}
		require.NoError(t, json.Unmarshal(other.must(200, "GET", "/v1/audit?limit=3&order=oldest", nil).raw, &page))
		require.NotEmpty(t, page.Next)
		ask("/v1/audit?limit=3&order=oldest&cursor=" + page.Next)
		_, said, err := exported(t, other)
		require.NoError(t, err)
		cursor := regexp.MustCompile(`--cursor (\S+)`).FindStringSubmatch(said)[1]
		for _, c := range []string{cursor, strings.TrimSuffix(cursor, "~")} {
			ask("/v1/audit?format=ndjson&cursor=" + url.QueryEscape(c))
		}
	})
}
