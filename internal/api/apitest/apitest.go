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
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	gateway "holdfast.dev/gateway"
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
	d, err := description()
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
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		return fmt.Errorf("status %d: %w", resp.StatusCode, err)
	}
	return nil
}

// Document returns openapi.yaml as it was read, for tests that walk through it.
func Document() (*openapi3.T, error) {
	d, err := description()
	if err != nil {
		return nil, err
	}
	return d.doc, nil
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

type described struct {
	doc    *openapi3.T
	router routers.Router
}

var description = sync.OnceValues(func() (described, error) {
	doc, err := openapi3.NewLoader().LoadFromData(gateway.OpenAPI())
	if err != nil {
		return described{}, fmt.Errorf("read openapi.yaml: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return described{}, fmt.Errorf("openapi.yaml is no sound OpenAPI: %w", err)
	}
	// A test server has an address of its own.
	doc.Servers = nil
	for _, item := range doc.Paths.Map() {
		item.Servers = nil
	}
	strict := closer{}
	for _, ref := range doc.Components.Schemas {
		strict.schema(ref)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return described{}, fmt.Errorf("route openapi.yaml: %w", err)
	}
	return described{doc: doc, router: router}, nil
})

// unrouted checks an answer to what is no operation.
func (d described) unrouted(resp *http.Response, body []byte) error {
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
		return fmt.Errorf("no such operation, and it was answered with %q", got)
	}
	var problem map[string]any
	if err := json.Unmarshal(body, &problem); err != nil {
		return fmt.Errorf("problem is no JSON object: %w", err)
	}
	want := map[int]string{http.StatusNotFound: "not_found", http.StatusMethodNotAllowed: "method_not_allowed"}[resp.StatusCode]
	if want == "" || problem["code"] != want {
		return fmt.Errorf("no such operation, and it was answered %d with code %v", resp.StatusCode, problem["code"])
	}
	if err := d.doc.Components.Schemas["Problem"].Value.VisitJSON(problem, openapi3.EnableJSONSchema2020(), openapi3.VisitAsResponse()); err != nil {
		return fmt.Errorf("problem: %w", err)
	}
	return nil
}

// closer closes every object that lists its members. The description leaves
// them open, so that members can be added; a test must see those that were
// forgotten in it.
type closer map[*openapi3.Schema]bool

func (c closer) schema(ref *openapi3.SchemaRef) {
	if ref == nil || ref.Value == nil || c[ref.Value] {
		return
	}
	s := ref.Value
	c[s] = true
	if s.Type.Is("object") && len(s.Properties) > 0 && s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil {
		no := false
		s.AdditionalProperties.Has = &no
	}
	for _, p := range s.Properties {
		c.schema(p)
	}
	for _, list := range []openapi3.SchemaRefs{s.OneOf, s.AnyOf, s.AllOf} {
		for _, r := range list {
			c.schema(r)
		}
	}
	c.schema(s.Items)
}

func clip(body []byte) []byte {
	const most = 2000
	if len(body) > most {
		return append(append([]byte{}, body[:most]...), "…"...)
	}
	return body
}
