package api

import (
	"time"

	"holdfast.dev/gateway/internal/actions"
)

// Codes lists the rows of the table of codes.
func Codes() []actions.Code {
	var codes []actions.Code
	for code := range kinds {
		codes = append(codes, code)
	}
	return codes
}

// StatusOf is the status of a code.
func StatusOf(code actions.Code) int { return kinds[code].status }

// TitleOf is the title of a code.
func TitleOf(code actions.Code) string { return kinds[code].title }

// NextOf is the default next of a code.
func NextOf(code actions.Code) actions.Next { return kinds[code].next }

// Routes lists the calls of both listeners as method and path of OpenAPI.
func (s *Server) Routes() (public, admin [][2]string) {
	return s.public.list(), s.admin.list()
}

func (f *front) list() [][2]string {
	var list [][2]string
	for _, r := range f.echo.Routes() {
		list = append(list, [2]string{r.Method, r.Path})
	}
	return list
}

// PreferWait is preferWait.
func PreferWait(values []string) time.Duration { return preferWait(values) }

// DecodeDo is decodeDo.
var DecodeDo = decodeDo

// DetailOf is the sentence of a code where a problem has no words of its own.
func DetailOf(code actions.Code) string { return kinds[code].detail }

// RetryOf says whether a code always carries Retry-After.
func RetryOf(code actions.Code) bool { return kinds[code].retry }
