// Package apitest holds answers of the API against openapi.yaml. It is for
// tests: those of package api, and those that boot the whole program.
//
// It owns how strictly the comparison is made. What an answer should say in a
// given case is left to the test that asks for it.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Validate fails the test unless resp, whose body was body, is an answer that
// openapi.yaml describes for req: status, headers, media type, and every member
// of the body. Where req is of no operation, it must be answered by the problem
// not_found or method_not_allowed. Only method and URL of req are looked at, so
// its body may have been read. Safe for concurrent use.
func Validate(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	if err := Check(req, resp, body); err != nil {
		t.Errorf("answer to %s %s is not as openapi.yaml says: %v\nbody: %s", req.Method, req.URL.Path, err, clip(body))
	}
}

// Check is Validate without a test. Its error may hold parts of the body.
func Check(req *http.Request, resp *http.Response, body []byte) error {
	d, err := load()
	if err != nil {
		return err
	}
	if err := standing(resp); err != nil {
		return err
	}
	route, params, err := d.router.FindRoute(&http.Request{Method: req.Method, URL: req.URL, Host: req.Host})
	if errors.Is(err, routers.ErrMethodNotAllowed) || errors.Is(err, routers.ErrPathNotFound) {
		return d.unrouted(resp, body)
	}
	if err != nil {
		return fmt.Errorf("find operation: %w", err)
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 resp.StatusCode,
		Header:                 resp.Header,
		// The body is validated below, by a schema that is compiled once.
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: true},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		return fmt.Errorf("status %d: %w", resp.StatusCode, err)
	}
	return d.body(route.Path, req.Method, resp, body)
}

// standing checks what every answer has, whatever it answers.
func standing(resp *http.Response) error {
	if id := resp.Header.Get("Request-Id"); !strings.HasPrefix(id, "req_") {
		return fmt.Errorf("header Request-Id is %q", id)
	}
	if resp.Header.Get("Cache-Control") != "no-store" {
		return errors.New("header Cache-Control: no-store is missing")
	}
	return nil
}

// body holds a body against the schema of its media type.
func (d *description) body(path, method string, resp *http.Response, body []byte) error {
	place := d.response(path, method, resp.StatusCode)
	content := d.at(place + "/content")
	if content == nil {
		if len(body) > 0 {
			return fmt.Errorf("status %d has no body, and this one has %d bytes", resp.StatusCode, len(body))
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if _, ok := content[media]; err != nil || !ok {
		return fmt.Errorf("status %d has no media type %q", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	switch {
	case media == "application/x-ndjson":
		return lines(body)
	case !strings.HasSuffix(media, "json"):
		return nil
	}
	if err := d.validate(place+"/content/"+escape(media)+"/schema", body); err != nil {
		return fmt.Errorf("status %d: %w", resp.StatusCode, err)
	}
	return nil
}

// lines checks that each line is a JSON object, and that it has an end.
func lines(body []byte) error {
	for line := range bytes.Lines(body) {
		if !json.Valid(line) || line[0] != '{' || !bytes.HasSuffix(line, []byte("\n")) {
			return fmt.Errorf("this is no line of NDJSON: %s", clip(line))
		}
	}
	return nil
}

// unrouted checks an answer to what is no operation.
func (d *description) unrouted(resp *http.Response, body []byte) error {
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
		return fmt.Errorf("no such operation, and it was answered with %q", got)
	}
	want := map[int]string{http.StatusNotFound: "not_found", http.StatusMethodNotAllowed: "method_not_allowed",
		http.StatusTooManyRequests: "rate_limited"}[resp.StatusCode]
	if want == "" || !strings.Contains(string(body), `"code":"`+want+`"`) {
		return fmt.Errorf("no such operation, and it was answered %d", resp.StatusCode)
	}
	return d.validate("/components/schemas/Problem", body)
}

func clip(body []byte) []byte {
	const most = 2000
	if len(body) > most {
		return append(append([]byte{}, body[:most]...), "…"...)
	}
	return body
}
