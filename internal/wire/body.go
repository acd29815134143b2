package wire

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"
)

// readBody reads the body of a whole answer head and says what it is worth. The
// reason is empty if the body is Complete or TooLarge, or if reading failed and
// the connection knows better; err is the error of reading.
func readBody(resp *http.Response, limit int64) (body Body, reason string, err error) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return measure(nil, Unreadable), ReasonUpgraded, nil
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	encoding := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ","))
	plain := encoding == "" || encoding == "identity"
	if err != nil {
		b := measure(raw, Cut)
		if !plain {
			b.Bytes = nil
		}
		return b, "", err
	}
	if int64(len(raw)) > limit {
		return tooLarge(raw, limit), "", nil
	}
	framed := resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.Body == http.NoBody
	if len(raw) == 0 && framed {
		return measure(nil, Complete), "", nil
	}
	switch {
	case plain:
	case encoding == "gzip" || encoding == "x-gzip":
		body, reason := gunzip(raw, limit)
		if body.State != Complete {
			return body, reason, nil
		}
		raw = body.Bytes
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
	default:
		return measure(raw, Unreadable), ReasonEncoding, nil
	}
	state, reason := judge(raw, resp.Header.Get("Content-Type"), framed)
	return measure(raw, state), reason, nil
}

// judge looks for what the framing cannot show. A body that ends with the
// connection and was cut looks whole (RFC 9112 section 6.3, item 8), so one
// that is or may be JSON has to be JSON. crypto/tls does not help: it lets a
// connection end without close_notify.
func judge(raw []byte, contentType string, framed bool) (BodyState, string) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	isJSON := mediaType == "application/json" || mediaType == "text/json" || strings.HasSuffix(mediaType, "+json")
	mustParse := isJSON || (!framed && mediaType == "")
	switch {
	case !mustParse:
		return Complete, ""
	case utf8.Valid(raw) && json.Valid(raw) && (framed || !isNumber(raw)):
		return Complete, ""
	case framed:
		return Unreadable, ReasonNotJSON
	}
	return Cut, ReasonNotJSON
}

// isNumber tells a bare number, the one JSON value that is still valid after its
// end has been cut off.
func isNumber(raw []byte) bool {
	first := bytes.TrimLeft(raw, " \t\r\n")[0]
	return first == '-' || (first >= '0' && first <= '9')
}

// gunzip decompresses at most limit bytes. The checksum and the length at the
// end of each member show a cut (RFC 1952 section 2.3.1).
func gunzip(raw []byte, limit int64) (Body, string) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if errors.Is(err, gzip.ErrHeader) {
		return measure(raw, Unreadable), ReasonEncoding
	}
	var out []byte
	if err == nil {
		out, err = io.ReadAll(io.LimitReader(z, limit+1))
	}
	if err != nil {
		b := measure(raw, Cut)
		b.Bytes = nil
		return b, ReasonGzip
	}
	if int64(len(out)) > limit {
		return tooLarge(out, limit), ""
	}
	return measure(out, Complete), ""
}

func tooLarge(read []byte, limit int64) Body {
	b := measure(read[:limit], TooLarge)
	b.Bytes = nil
	return b
}

func measure(read []byte, state BodyState) Body {
	return Body{Bytes: read, State: state, Size: int64(len(read)), SHA256: sha256.Sum256(read)}
}
