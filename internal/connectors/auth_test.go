package connectors_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

const secret = "s3cret-sentinel"

func request() connectors.Request {
	return connectors.Request{Method: "POST", URL: "https://h.example/p?a=%2F", Header: http.Header{"X": {"1"}}, Body: []byte("b")}
}

func TestApply(t *testing.T) {
	for _, row := range []struct {
		name  string
		auth  connectors.Auth
		creds map[string]string
		head  string
		value string
		url   string
	}{
		{"bearer", connectors.Auth{Type: connectors.Bearer, Prefix: "Bearer", Secret: "k"}, map[string]string{"k": secret}, "Authorization", "Bearer " + secret, ""},
		{"bearer with its own word", connectors.Auth{Type: connectors.Bearer, Prefix: "Token", Secret: "k"}, map[string]string{"k": secret}, "Authorization", "Token " + secret, ""},
		{"bare token", connectors.Auth{Type: connectors.Bearer, Secret: "k"}, map[string]string{"k": secret}, "Authorization", secret, ""},
		// RFC 7617 section 2
		{"basic", connectors.Auth{Type: connectors.Basic, Username: "u", Password: "p"}, map[string]string{"u": "Aladdin", "p": "open sesame"}, "Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", ""},
		{"basic beyond ASCII", connectors.Auth{Type: connectors.Basic, Username: "u", Password: "p"}, map[string]string{"u": "test", "p": "123£"}, "Authorization", "Basic dGVzdDoxMjPCow==", ""},
		{"key in a header", connectors.Auth{Type: connectors.APIKey, In: "header", Name: "x-api-KEY", Secret: "k"}, map[string]string{"k": secret}, "X-Api-Key", secret, ""},
		{"key in a query", connectors.Auth{Type: connectors.APIKey, In: "query", Name: "key", Secret: "k"}, map[string]string{"k": "a&b=c"}, "", "", "https://h.example/p?a=%2F&key=a%26b%3Dc"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := request()
			require.NoError(t, row.auth.Apply(&r, row.creds))
			if row.head != "" {
				require.Equal(t, []string{row.value}, r.Header[row.head])
				require.Len(t, r.Header, 2)
				row.url = request().URL
			}
			require.Equal(t, row.url, r.URL)
			require.Equal(t, request().Body, r.Body)
		})
	}
}

func TestApplyLeavesTheStoredRequestAlone(t *testing.T) {
	stored := request()
	sent := stored
	require.NoError(t, connectors.Auth{Type: connectors.Bearer, Secret: "k"}.Apply(&sent, map[string]string{"k": secret}))
	require.Equal(t, request(), stored)
}

func TestApplyToABareRequest(t *testing.T) {
	r := connectors.Request{URL: "https://h.example/p"}
	require.NoError(t, connectors.Auth{Type: connectors.Bearer, Secret: "k"}.Apply(&r, map[string]string{"k": secret}))
	require.NoError(t, connectors.Auth{Type: connectors.APIKey, In: "query", Name: "k", Secret: "k"}.Apply(&r, map[string]string{"k": "v"}))
	require.Equal(t, "https://h.example/p?k=v", r.URL)
}

func TestCredentialsThatDoNotFit(t *testing.T) {
	bearer := connectors.Auth{Type: connectors.Bearer, Prefix: "Bearer", Secret: "k"}
	basic := connectors.Auth{Type: connectors.Basic, Username: "u", Password: "p"}
	for name, row := range map[string]struct {
		auth  connectors.Auth
		creds map[string]string
	}{
		"none":                    {bearer, nil},
		"empty":                   {bearer, map[string]string{"k": ""}},
		"one too many":            {bearer, map[string]string{"k": secret, "other-sentinel": "x"}},
		"line break":              {bearer, map[string]string{"k": secret + "\r\nX: y"}},
		"line break at the end":   {bearer, map[string]string{"k": secret + "\n"}},
		"control character":       {bearer, map[string]string{"k": secret + "\x00"}},
		"not UTF-8":               {bearer, map[string]string{"k": secret + "\xff"}},
		"not ASCII in a header":   {bearer, map[string]string{"k": secret + "é"}},
		"colon in a user name":    {basic, map[string]string{"u": secret + ":", "p": "x"}},
		"user without a password": {basic, map[string]string{"u": secret}},
	} {
		t.Run(name, func(t *testing.T) {
			r := request()
			err := row.auth.Apply(&r, row.creds)
			require.ErrorIs(t, err, connectors.ErrCredentials)
			require.NotContains(t, err.Error(), "sentinel")
			require.Equal(t, request(), r, "a request is left alone")
			require.Error(t, row.auth.CheckCredentials(row.creds))
		})
	}
}

func TestCredentialIsNeverSetTwice(t *testing.T) {
	for _, auth := range []connectors.Auth{
		{Type: connectors.Bearer, Secret: "k"},
		{Type: connectors.APIKey, In: "header", Name: "x", Secret: "k"},
		{Type: connectors.APIKey, In: "query", Name: "a", Secret: "k"},
	} {
		r := request()
		r.Header["Authorization"] = []string{"other"}
		err := auth.Apply(&r, map[string]string{"k": secret})
		require.ErrorIs(t, err, connectors.ErrCredentials)
		require.NotContains(t, err.Error(), secret)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	r := request()
	c := r.Clone()
	c.Header.Set("X", "2")
	c.Body[0] = 'z'
	require.Equal(t, request(), r)
	require.Nil(t, connectors.Request{}.Clone().Body)
}

// An access token is shown as one, and is no credential of the connection.
func TestApplyAccessToken(t *testing.T) {
	for _, kind := range []connectors.AuthType{connectors.OAuth2ClientCredentials, connectors.OAuth2Refresh} {
		auth := connectors.Auth{Type: kind, ClientID: "id", ClientSecret: "secret"}
		req := connectors.Request{URL: "https://a.example"}
		require.NoError(t, auth.Apply(&req, map[string]string{"id": "i", "secret": "s", connectors.AccessToken: "tok"}))
		require.Equal(t, "Bearer tok", req.Header.Get("Authorization"))
		for _, token := range []string{"", " x", "a\nb", "ü"} {
			req = connectors.Request{}
			require.ErrorIs(t, auth.Apply(&req, map[string]string{"id": "i", "secret": "s", connectors.AccessToken: token}), connectors.ErrCredentials)
			require.Empty(t, req.Header)
		}
		require.Error(t, auth.CheckCredentials(map[string]string{"id": "i", "secret": "s", connectors.AccessToken: "tok"}))
	}
}
