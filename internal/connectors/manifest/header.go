package manifest

import (
	"errors"
	"mime"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// wireHeaders belong to the connection or to the credential, never to a
// manifest: hop-by-hop fields (RFC 9110 section 7.6.1), framing, the authority,
// what the wire negotiates itself, and every field that carries an identity.
var wireHeaders = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", "Content-Encoding", "Host", "Expect", "Accept-Encoding", "Http2-Settings",
	"Cookie", "Cookie2",
}

var authHeaders = []string{"Authorization", "Proxy-Authorization", "Proxy-Authenticate"}

// secretHeaders are a vendor's headers that are never shown to an agent.
var secretHeaders = []string{
	"Set-Cookie", "Set-Cookie2", "Cookie", "Cookie2", "Authorization", "Proxy-Authorization",
	"Www-Authenticate", "Proxy-Authenticate", "Authentication-Info", "Proxy-Authentication-Info",
}

func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// reserved says why a manifest may not set a header, or nothing.
func reserved(name string) string {
	switch c := canonical(name); {
	case !httpguts.ValidHeaderFieldName(name):
		return "this is not the name of a header"
	case slices.Contains(wireHeaders, c):
		return "this header belongs to the connection and cannot be set"
	case slices.Contains(authHeaders, c):
		return "a credential is named in auth, never in a header"
	default:
		return ""
	}
}

// jsonType says whether a media type means JSON.
func jsonType(value string) bool {
	media, _, err := mime.ParseMediaType(value)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json") || media == "text/json")
}

// maxHeader bounds a header value in bytes; servers refuse more.
const maxHeader = 8 << 10

var (
	errHeaderValue = errors.New("this stands in a header and must be a string, a number or a boolean")
	errHeaderChars = errors.New("this stands in a header; it must be visible ASCII without a line break or another control character, and not begin or end with a blank")
	errHeaderLong  = errors.New("this stands in a header and is too long")
)

// headerText turns a JSON scalar into a header value, or refuses it.
func headerText(raw []byte) (string, error) {
	text, err := scalarText(raw)
	if err != nil {
		return "", errHeaderValue
	}
	return text, headerSafe(text)
}

func headerSafe(text string) error {
	if len(text) > maxHeader {
		return errHeaderLong
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return errHeaderChars
		}
	}
	if strings.TrimSpace(text) != text {
		return errHeaderChars
	}
	return nil
}
