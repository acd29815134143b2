package manifest

import (
	"fmt"
	"net/http"

	"holdfast.dev/gateway/internal/connectors"
)

// maxURL bounds a planned URL in bytes; servers refuse longer ones.
const maxURL = 16 << 10

// plan renders the template.
func (r *request) plan(rd renderer, base string) (connectors.Request, error) {
	path, err := rd.renderPath(r.path)
	if err != nil {
		return connectors.Request{}, err
	}
	query, err := r.renderQuery(rd)
	if err != nil {
		return connectors.Request{}, err
	}
	header, err := r.renderHeaders(rd)
	if err != nil {
		return connectors.Request{}, err
	}
	body, err := r.renderBody(rd)
	if err != nil {
		return connectors.Request{}, err
	}
	url := base + path + query
	if len(url) > maxURL {
		return connectors.Request{}, connectors.Invalid("", "the URL of the request would be too long")
	}
	return connectors.Request{Method: r.method, URL: url, Header: header, Body: body}, nil
}

func (r *request) renderQuery(rd renderer) (string, error) {
	if r.query == nil {
		return "", nil
	}
	rd.form = true
	raw, _, err := rd.render(nil, r.query)
	if err != nil {
		return "", err
	}
	query, err := encodeForm(raw)
	if err != nil {
		return "", fmt.Errorf("%w: query: %w", connectors.ErrPlan, err)
	}
	if len(query) == 0 {
		return "", nil
	}
	return "?" + string(query), nil
}

func (r *request) renderHeaders(rd renderer) (http.Header, error) {
	header := make(http.Header, len(r.headers)+2)
	values := make([]string, 0, len(r.headers)+2) // one piece for all
	set := func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set("Accept", "application/json")
	switch r.encoding {
	case encodeAsJSON:
		set("Content-Type", "application/json")
	case encodeAsForm:
		set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range r.headers {
		raw, ok, err := rd.render(nil, h.value)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		text, err := headerText(raw)
		if err != nil {
			return nil, h.value.blame(err)
		}
		set(h.name, text)
	}
	return header, nil
}

// blame is expr.blame for a tree that may be a literal.
func (t *tree) blame(err error) error {
	if t.expr == nil {
		return fmt.Errorf("%w: %w", connectors.ErrPlan, err)
	}
	return t.expr.blame(err)
}

func (r *request) renderBody(rd renderer) ([]byte, error) {
	if r.body == nil {
		return nil, nil
	}
	rd.form = r.encoding == encodeAsForm
	raw, ok, err := rd.render(nil, r.body)
	if err != nil || !ok {
		return nil, err
	}
	if r.encoding != encodeAsForm {
		return raw, nil
	}
	body, err := encodeForm(raw)
	if err != nil {
		return nil, r.body.blame(err)
	}
	if body == nil {
		body = []byte{}
	}
	return body, nil
}
