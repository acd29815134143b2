package oauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/wire"
)

// request asks the authorization server, once, through the same guard that
// writes leave by. Errors hold fixed words and a status, nothing of either side.
func (t *Tokens) request(ctx context.Context, auth connectors.Auth, creds map[string]string, refresh string) (connections.Token, error) {
	form := url.Values{}
	if auth.Type == connectors.OAuth2Refresh {
		if refresh == "" {
			refresh = creds[auth.RefreshToken]
		}
		form.Set("grant_type", "refresh_token")
		form.Set("refresh_token", refresh)
	} else {
		form.Set("grant_type", "client_credentials")
		if len(auth.Scopes) > 0 {
			form.Set("scope", strings.Join(auth.Scopes, " "))
		}
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	id, secret := creds[auth.ClientID], creds[auth.ClientSecret]
	if auth.ClientAuth == "body" {
		form.Set("client_id", id)
		form.Set("client_secret", secret)
	} else {
		// Both are form-encoded first (RFC 6749 section 2.3.1).
		pair := url.QueryEscape(id) + ":" + url.QueryEscape(secret)
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	}
	asked := t.c.Now()
	x := t.c.Sender.Send(ctx, wire.Request{
		Method: http.MethodPost, URL: auth.TokenURL, Header: header, Body: []byte(form.Encode()),
		Timeout: requestTimeout, FreshConnection: true,
	}, nil)
	switch {
	case x.Phase != wire.Answered || x.Body.State != wire.Complete:
		return connections.Token{}, fmt.Errorf("%w: the authorization server did not answer (%s)", ErrToken, x.Reason)
	case x.Status != http.StatusOK:
		return connections.Token{}, fmt.Errorf("%w: the authorization server refused with status %d", ErrToken, x.Status)
	}
	return read(x.Body.Bytes, asked, refresh)
}

// answer is a token response (RFC 6749 section 5.1). Members that are not known
// are ignored, as it asks.
type answer struct {
	AccessToken  string      `json:"access_token"`
	TokenType    string      `json:"token_type"`
	ExpiresIn    json.Number `json:"expires_in"`
	RefreshToken string      `json:"refresh_token"`
}

func read(body []byte, asked time.Time, refresh string) (connections.Token, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return connections.Token{}, fmt.Errorf("%w: the authorization server's answer cannot be read", ErrToken) // the cause would quote it
	}
	if a.AccessToken == "" || a.TokenType != "" && !strings.EqualFold(a.TokenType, "bearer") {
		return connections.Token{}, fmt.Errorf("%w: the authorization server's answer has no bearer token", ErrToken)
	}
	token := connections.Token{Access: a.AccessToken, Refresh: refresh}
	if a.RefreshToken != "" {
		token.Refresh = a.RefreshToken // the one before may be dead now
	}
	if n, err := strconv.ParseInt(a.ExpiresIn.String(), 10, 32); err == nil && n > 0 {
		token.Expires = asked.Add(time.Duration(n) * time.Second)
	}
	return token, nil
}
