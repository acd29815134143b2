package connectors

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// AuthType is how a vendor wants to be shown a credential.
type AuthType string

const (
	Bearer                  AuthType = "bearer"
	Basic                   AuthType = "basic"
	APIKey                  AuthType = "api_key"
	OAuth2ClientCredentials AuthType = "oauth2_client_credentials"
	OAuth2Refresh           AuthType = "oauth2_refresh"
)

// Auth says how a request is given its credential. The fields that name a
// credential hold its name, never its value.
type Auth struct {
	Type AuthType

	Secret string // Bearer, APIKey: name of the credential
	Prefix string // Bearer: the scheme word; empty sends the token alone

	Username string // Basic: name of the credential
	Password string // Basic: name of the credential

	In   string // APIKey: "header" or "query"
	Name string // APIKey: name of the header or parameter

	TokenURL     string   // OAuth2
	ClientID     string   // OAuth2: name of the credential
	ClientSecret string   // OAuth2: name of the credential
	RefreshToken string   // OAuth2Refresh: name of the credential
	Scopes       []string // OAuth2ClientCredentials
	ClientAuth   string   // OAuth2ClientCredentials: "basic" or "body"
	Rotates      bool     // OAuth2Refresh: each use returns a new refresh token
}

// AccessToken is where Apply finds the access token of the OAuth types. No
// credential can have the name.
const AccessToken = "access token"

// OAuth says that the vendor is shown an access token, which is had for the
// credentials and is none itself.
func (a Auth) OAuth() bool { return a.Type == OAuth2ClientCredentials || a.Type == OAuth2Refresh }

// Credentials returns the names of the credentials a connection must have, and
// the only ones it may have, sorted.
func (a Auth) Credentials() []string {
	var names []string
	for _, name := range []string{a.Secret, a.Username, a.Password, a.ClientID, a.ClientSecret, a.RefreshToken} {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// CheckCredentials checks a connection's credentials when they are set. The
// error wraps ErrCredentials and names credentials, never values.
func (a Auth) CheckCredentials(creds map[string]string) error {
	want := a.Credentials()
	for _, name := range want {
		value, ok := creds[name]
		if !ok {
			return fmt.Errorf("%w: %q is missing", ErrCredentials, name)
		}
		if !plainText(value) {
			return fmt.Errorf("%w: %q is empty, begins or ends with a blank, or holds a control character", ErrCredentials, name)
		}
	}
	for name := range creds {
		if !slices.Contains(want, name) {
			return fmt.Errorf("%w: this connector takes only %s", ErrCredentials, strings.Join(want, ", "))
		}
	}
	if a.Type == Basic && strings.Contains(creds[a.Username], ":") {
		return fmt.Errorf("%w: %q may not hold a colon", ErrCredentials, a.Username) // RFC 7617 section 2
	}
	if a.Type != Basic && a.In != "query" && !ascii(creds[a.Secret]) {
		return fmt.Errorf("%w: %q must be ASCII to stand in a header", ErrCredentials, a.Secret)
	}
	return nil
}

// Apply adds the credential to a planned request. It comes last, on a copy made
// for the wire, and leaves what the copy shares with the original alone: a
// request that is hashed, stored or shown never holds a credential.
// Errors wrap ErrCredentials or ErrAuthType and hold no value.
func (a Auth) Apply(req *Request, creds map[string]string) error {
	if a.OAuth() {
		token := creds[AccessToken]
		if !plainText(token) || !ascii(token) {
			return fmt.Errorf("%w: there is no access token", ErrCredentials)
		}
		return setHeader(req, "Authorization", "Bearer "+token)
	}
	if err := a.CheckCredentials(creds); err != nil {
		return err
	}
	switch a.Type {
	case Bearer:
		value := creds[a.Secret]
		if a.Prefix != "" {
			value = a.Prefix + " " + value
		}
		return setHeader(req, "Authorization", value)
	case Basic:
		pair := creds[a.Username] + ":" + creds[a.Password]
		return setHeader(req, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	case APIKey:
		if a.In == "query" {
			return addQuery(req, a.Name, creds[a.Secret])
		}
		return setHeader(req, a.Name, creds[a.Secret])
	default:
		return fmt.Errorf("%w: %s", ErrAuthType, a.Type)
	}
}

func setHeader(req *Request, name, value string) error {
	name = textproto.CanonicalMIMEHeaderKey(name)
	if _, taken := req.Header[name]; taken {
		return fmt.Errorf("%w: the request already has the header that carries it", ErrCredentials)
	}
	// A new map: the old one may be that of the request that is stored.
	header := make(http.Header, len(req.Header)+1)
	maps.Copy(header, req.Header)
	header[name] = []string{value}
	req.Header = header
	return nil
}

// addQuery appends a parameter and leaves every byte before it alone.
func addQuery(req *Request, name, value string) error {
	u, err := url.Parse(req.URL)
	if err != nil {
		return fmt.Errorf("%w: the request has no usable URL", ErrCredentials)
	}
	if u.Query().Has(name) {
		return fmt.Errorf("%w: the request already has the parameter that carries it", ErrCredentials)
	}
	glue := "?"
	if u.RawQuery != "" {
		glue = "&"
	}
	req.URL += glue + url.QueryEscape(name) + "=" + url.QueryEscape(value)
	return nil
}

// plainText says whether a value can be put on the wire as it is.
func plainText(s string) bool {
	if s == "" || !utf8.ValidString(s) || strings.TrimSpace(s) != s {
		return false
	}
	for _, r := range s {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return false
		}
	}
	return true
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
