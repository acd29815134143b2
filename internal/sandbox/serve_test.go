package sandbox_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/sandbox"
)

// serve hands a vendor one POST without a socket and returns the status, 0 if
// the connection would have been cut.
func serve(t *testing.T, v *sandbox.Vendor, body string) (status int) {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/v1/invoices", strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer x")
	rec := httptest.NewRecorder()
	defer func() {
		if cut := recover(); cut != nil {
			err, ok := cut.(error)
			require.True(t, ok && errors.Is(err, http.ErrAbortHandler), "%v", cut)
			status = 0
		}
	}()
	v.ServeHTTP(rec, req)
	return rec.Code
}
