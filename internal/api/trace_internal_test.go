package api

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

func TestATraceComesInAsW3CSays(t *testing.T) {
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for name, c := range map[string]struct {
		headers []string
		want    string
	}{
		"sampled":              {[]string{"00-" + id + "-" + span + "-01"}, id},
		"not sampled":          {[]string{"00-" + id + "-" + span + "-00"}, id},
		"a later version":      {[]string{"01-" + id + "-" + span + "-01-more"}, id},
		"none":                 {nil, ""},
		"two":                  {[]string{"00-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-01"}, ""},
		"an id of zeros":       {[]string{"00-00000000000000000000000000000000-" + span + "-01"}, ""},
		"a span of zeros":      {[]string{"00-" + id + "-0000000000000000-01"}, ""},
		"capitals":             {[]string{"00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01"}, ""},
		"the forbidden ff":     {[]string{"ff-" + id + "-" + span + "-01"}, ""},
		"more in version 00":   {[]string{"00-" + id + "-" + span + "-01-more"}, ""},
		"a line of its own":    {[]string{"00-" + id + "-" + span + "-01\nx"}, ""},
		"something else":       {[]string{"' OR 1=1"}, ""},
		"an empty one":         {[]string{""}, ""},
		"cut off in the flags": {[]string{"00-" + id + "-" + span + "-0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/v1/do", nil)
			r.Header[headerTraceparent] = c.headers
			r.Header.Set("Baggage", "user=secret")
			sc := trace.SpanContextFromContext(traced(r).Context())
			got := ""
			if sc.IsValid() {
				got = sc.TraceID().String()
				require.True(t, sc.IsRemote())
				require.Equal(t, span, sc.SpanID().String())
			}
			require.Equal(t, c.want, got)
		})
	}
}
