package connectors_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

func TestCheckBaseURL(t *testing.T) {
	spec := connectors.Spec{BaseURL: connectors.BaseURL{
		Default: "https://api.acme.example",
		Allow:   []string{"https://api.acme.example", "https://*.acme.example/v2", "https://eu.acme.example:8443/", "http://127.0.0.1", "https://10.0.0.1/x"},
	}}
	inside := map[string]bool{"127.0.0.1": true, "::1": true, "localhost": true, "10.0.0.1": true}
	egress := func(host string) bool { return inside[host] }

	for _, url := range []string{
		"", "https://api.acme.example", "https://eu.acme.example/v2", "https://a.b.acme.example/v2", "https://eu.acme.example:8443",
		"http://127.0.0.1", "http://127.0.0.1:8080", "https://127.0.0.1:8080/any/path", "http://localhost:1", "http://[::1]:1/x", "https://10.0.0.1/x",
	} {
		require.NoError(t, spec.CheckBaseURL(url, egress), url)
	}
	for _, url := range []string{
		"http://api.acme.example", "https://api.acme.example/", "https://api.acme.example/x", "https://api.acme.example:444", "https://API.acme.example",
		"https://acme.example/v2", "https://evilacme.example/v2", "https://eu.acme.example", "https://eu.acme.example/v2/x", "https://.acme.example/v2",
		"https://eu.acme.example.evil.example/v2", "https://evil.example/.acme.example/v2", "https://evil.example#.acme.example/v2", "https://evil.example?.acme.example/v2",
		"https://u:p@api.acme.example", "https://api.acme.example@evil.example", "https://api.acme.example\n", "https://api.acme.example%00", "https://api.acme.example\\@evil.example",
		"ftp://api.acme.example", "//api.acme.example", "api.acme.example", "https://", "https:///v2", "https://a..acme.example/v2", "https://eu.acme.example/../v2", "https://eu.acme.example/./v2",
		"https://-x.acme.example-/v2", "https://api.acme.example:0", "https://api.acme.example:123456",
		"http://127.0.0.2", "http://192.168.0.1", "http://[::2]", "https://10.0.0.2/x", "http://2130706433", "http://127.1", "http://0x7f000001", "http://127.0.0.1.", "http://169.254.169.254/latest",
	} {
		require.ErrorIs(t, spec.CheckBaseURL(url, egress), connectors.ErrBaseURL, "%q", url)
	}
	require.ErrorContains(t, spec.CheckBaseURL("http://api.acme.example", egress), "must be https")
	require.Error(t, spec.CheckBaseURL("http://127.0.0.1", nil))
	require.Error(t, connectors.Spec{}.CheckBaseURL("", egress))
}

func TestLocalHost(t *testing.T) {
	for host, local := range map[string]bool{
		"127.0.0.1": true, "::1": true, "fe80::1%eth0": true, "8.8.8.8": true, "localhost": true, "x.localhost": true,
		"2130706433": true, "127.1": true, "0x7f.1": true, "0x7f000001": true, "a.0x1": true,
		"acme.example": false, "localhost.example": false, "1.acme.example": false, "10.0.0.1.example": false,
	} {
		require.Equal(t, local, connectors.LocalHost(host), host)
	}
}

func FuzzCheckBaseURL(f *testing.F) {
	for _, url := range []string{"https://a.acme.example", "https://a.acme.example@x", "http://127.0.0.1", "https://[::1]", "https://a.acme.example/..", "https://xn--a.acme.example"} {
		f.Add(url)
	}
	spec := connectors.Spec{BaseURL: connectors.BaseURL{Allow: []string{"https://*.acme.example"}}}
	f.Fuzz(func(t *testing.T, url string) {
		if spec.CheckBaseURL(url, func(string) bool { return false }) == nil {
			require.Regexp(t, `^https://[a-z0-9][a-z0-9.-]*\.acme\.example$`, url)
		}
	})
}

// The one spelling, as a pattern tells it.
var cleanURL = regexp.MustCompile(`^(https?)://(\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:[1-9][0-9]{0,4})?((/[A-Za-z0-9._~-]+)*)$`)

func FuzzCleanBaseURL(f *testing.F) {
	for _, url := range []string{
		"https://a", "http://a:1", "https://[::1]:80/x", "https://[::ffff:1.2.3.4]", "https://[1.2.3.4]", "https://[::1%251]", "https://[::A]", "https://[1:2]", "https://[", "https://]", "https://[::1]]:1",
		"https://a-.b", "https://-a", "https://a.", "https://a..b", "https://a:0", "https://a:", "https://a:123456", "https://a:99999", "https://a/", "https://a//b", "https://a/./b", "https://a/..",
		"https://a/~b_c-d.e", "https://a:1:2", "https://u@a", "https://a?b", "https://a#b", "https://a%41", "httpS://a", "ftp://a", "://a", "", "https://", "https://A", "https://é", "https://a\n", "https://a_b", "https://a:1/b:c", "https://a/b]:1",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		parts := cleanURL.FindStringSubmatch(raw)
		want := parts != nil && !strings.Contains(parts[2], "..")
		if want {
			for segment := range strings.SplitSeq(parts[5], "/") {
				want = want && segment != "." && segment != ".."
			}
			u, err := url.Parse(raw)
			want = want && err == nil && u.Hostname() != ""
		}
		err := connectors.CleanBaseURL(raw)
		require.Equal(t, want, err == nil, "%q: %v", raw, err)
		_, _, err = connectors.SplitBaseURL(raw)
		require.Equal(t, want, err == nil, "%q: %v", raw, err)
	})
}
