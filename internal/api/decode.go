package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/strictjson"
)

// readJSON reads the body of a call that takes JSON. It looks at the headers
// first, so that nothing is read of a body that would be refused anyway.
func (c *call) readJSON(most int64) ([]byte, error) {
	if err := checkMedia(c.r.Header, typeJSON); err != nil {
		return nil, err
	}
	raw, err := c.read(most)
	if err == nil && len(raw) == 0 {
		return nil, refuse(actions.InvalidJSON, "The request body is empty, so nothing was done. Send one JSON object.")
	}
	return raw, err
}

// readYAML is readJSON for a manifest. RFC 9512 registers application/yaml; the
// others were in use before it.
func (c *call) readYAML(most int64) ([]byte, error) {
	if err := checkMedia(c.r.Header, "application/yaml", "application/x-yaml", "text/yaml"); err != nil {
		return nil, refuse(unsupportedMediaType, "A manifest is sent as Content-Type: application/yaml in UTF-8 and without Content-Encoding. Nothing was changed.").because(err)
	}
	return c.read(most)
}

func (c *call) read(most int64) ([]byte, error) {
	if c.mostBody > 0 {
		most = min(most, c.mostBody)
	}
	if c.r.ContentLength > most {
		return nil, refuseLarge(most)
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.echo.Response().Writer, c.r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuseLarge(most)
	case err != nil:
		// What came is not what was meant, even if it happens to be sound JSON.
		return nil, refuse(actions.InvalidRequest, "The request body did not arrive whole, so nothing was done. Send it again.").because(err)
	}
	// The deadline that observe set has served. Left in place it would end the
	// request's context in the middle of a long call, because the server goes on
	// reading to notice a client that leaves.
	_ = c.connection().SetReadDeadline(time.Time{})
	if c.admit != nil {
		if err := c.admit(); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

func refuseLarge(most int64) *problem {
	return refuse(tooLarge, fmt.Sprintf("The request body is larger than %d bytes, the most this gateway takes, so nothing was done. Send less.", most))
}

// checkMedia accepts one of the types, with or without charset=utf-8, and no
// content coding.
func checkMedia(h http.Header, types ...string) error {
	for _, coding := range h.Values("Content-Encoding") {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return refuse(unsupportedMediaType, "A request body with Content-Encoding is not taken, so nothing was done. Send it as it is.")
		}
	}
	values := h.Values("Content-Type")
	if len(values) != 1 {
		return refuse(unsupportedMediaType, "")
	}
	if slices.Contains(types, values[0]) {
		return nil // as nearly all have it: without parameters, and as it is written here
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err != nil || !slices.Contains(types, media) {
		return refuse(unsupportedMediaType, "")
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return refuse(unsupportedMediaType, "")
		}
	}
	return nil
}

// unmarshal decodes a request body strictly. What is not JSON at all is
// invalid_json; what is but means more than one thing, or has another shape
// than v, is invalid_request; what is wrong inside the member body of a `do` is
// invalid_body.
func unmarshal(raw []byte, v any) error {
	err := strictjson.Unmarshal(raw, v)
	if err == nil {
		return nil
	}
	var wrong strictjson.Errors
	if errors.As(err, &wrong) {
		return refuse(actions.InvalidRequest, "", fieldsOf(wrong...)...).because(err)
	}
	var unsound *strictjson.Error
	if !errors.As(err, &unsound) {
		return refuse(actions.Internal, "").because(err)
	}
	code := actions.InvalidRequest
	switch {
	case !json.Valid(raw) || !utf8.Valid(raw):
		code = actions.InvalidJSON
	case strings.HasPrefix(unsound.Pointer, bodyPointer+"/"):
		code = actions.InvalidBody
	}
	return refuse(code, "", fieldsOf(unsound)...).because(err)
}

const bodyPointer = "/body"

func fieldsOf(errs ...*strictjson.Error) []field {
	fields := make([]field, 0, len(errs))
	for _, e := range errs {
		fields = append(fields, field{pointer: e.Pointer, detail: e.Reason})
	}
	return fields
}

// members says which members the object raw has. It passed unmarshal.
func members(raw []byte) map[string]bool {
	list, _ := strictjson.Members(raw)
	present := make(map[string]bool, len(list))
	for _, m := range list {
		present[m.Name] = true
	}
	return present
}

// has says whether the object raw has a member. It passed unmarshal.
func has(raw []byte, name string) bool {
	_, ok := strictjson.Get(raw, name)
	return ok
}
