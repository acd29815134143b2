package wire_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
	"holdfast.dev/gateway/internal/wire"
)

// want is what must be known after a fault. Reasons holds the words that are
// true; more than one where the kernel decides which comes first.
type want struct {
	phase   wire.Phase
	reasons string
	state   wire.BodyState
}

var (
	whole     = want{phase: wire.Answered, state: wire.Complete}
	lost      = want{phase: wire.SentNoAnswer, reasons: "cut reset"}
	hung      = want{phase: wire.SentNoAnswer, reasons: "deadline"}
	malformed = want{phase: wire.SentNoAnswer, reasons: "malformed"}
	tooBig    = want{phase: wire.SentNoAnswer, reasons: "head_size"}
)

func cutBy(reasons string) want {
	return want{phase: wire.Answered, reasons: reasons, state: wire.Cut}
}

func unreadable(reason string) want {
	return want{phase: wire.Answered, reasons: reason, state: wire.Unreadable}
}

// expected says what is known after each fault that is not simply a whole
// answer.
func expected() map[string]want {
	return map[string]want{
		"close_after_head": lost, "close_after_body": lost, "reset_after_head": lost, "reset_after_body": lost,
		"hang": hung, "hang_in_head": hung,
		"cut_in_status_line": lost, "cut_in_head": lost, "only_103": lost,
		"garbage_status_line": malformed, "garbage_bytes": malformed, "garbage_header": malformed,
		"two_status_lines": malformed, "two_lengths": malformed, "status_099": malformed, "http_2_status_line": malformed,
		"endless_head": tooBig, "endless_1xx": tooBig,

		"cut_length": cutBy("cut"), "cut_length_empty": cutBy("cut"), "reset_in_body": cutBy("reset"),
		"hang_in_body": cutBy("deadline"),
		"cut_chunked":  cutBy("cut"), "cut_chunked_in_chunk": cutBy("cut"), "bad_chunk": cutBy("malformed"),
		"cut_json_without_length": cutBy("not_json"), "cut_json_without_length_or_type": cutBy("not_json"),
		"cut_empty_without_length": cutBy("not_json"),
		"cut_gzip_without_length":  cutBy("gzip"), "cut_gzip": cutBy("gzip"), "gzip_bad_checksum": cutBy("gzip"),

		"not_gzip": unreadable("encoding"), "brotli": unreadable("encoding"), "gzip_twice": unreadable("encoding"),
		"not_json": unreadable("not_json"), "json_not_utf8": unreadable("not_json"), "html_as_json": unreadable("not_json"),
		"status_101": unreadable("upgraded"),
		"gzip_bomb":  {phase: wire.Answered, state: wire.TooLarge},
	}
}

// Every fault: what is known afterwards, and one arrival, in plain and over TLS.
func TestFaults(t *testing.T) {
	table := expected()
	for _, fault := range vendortest.Faults() {
		w, listed := table[fault.Name]
		delete(table, fault.Name)
		if !listed {
			w = whole
		}
		for scheme, start := range map[string]func(testing.TB, vendortest.Behaviour) *vendortest.Vendor{
			"http": vendortest.New, "https": vendortest.NewTLS,
		} {
			t.Run(fault.Name+"/"+scheme, func(t *testing.T) {
				t.Parallel()
				v := start(t, fault.Behaviour)
				req := post(v)
				if fault.Hangs {
					req.Timeout = 200 * time.Millisecond
				}
				got := client(t, v).Send(t.Context(), req, nil)
				checkExchange(t, w, got)
				require.Equal(t, fault.Status, got.Status)
				require.Equal(t, 1, v.Arrivals())
			})
		}
	}
	require.Empty(t, table, "expectations for faults that do not exist")
}

func checkExchange(t *testing.T, w want, got wire.Exchange) {
	t.Helper()
	require.Equal(t, w.phase, got.Phase, got.Reason)
	require.Equal(t, w.state, got.Body.State, got.Reason)
	if w.reasons == "" {
		require.Empty(t, got.Reason)
	} else {
		require.Contains(t, strings.Fields(w.reasons), got.Reason)
	}
	if got.Phase != wire.Answered {
		require.Zero(t, got.Status)
		require.Nil(t, got.Header)
		require.Nil(t, got.Body.Bytes)
		return
	}
	if got.Body.Bytes != nil {
		require.EqualValues(t, len(got.Body.Bytes), got.Body.Size)
		require.Equal(t, sha256.Sum256(got.Body.Bytes), got.Body.SHA256)
	}
}

// The bytes of an answer are the vendor's, digit by digit.
func TestAnswerBytes(t *testing.T) {
	send := func(t *testing.T, name string) wire.Exchange {
		for _, f := range vendortest.Faults() {
			if f.Name == name {
				v := vendortest.New(t, f.Behaviour)
				return client(t, v).Send(t.Context(), post(v), nil)
			}
		}
		t.Fatalf("no fault %q", name)
		return wire.Exchange{}
	}
	t.Run("gzip is decoded and no longer announced", func(t *testing.T) {
		got := send(t, "gzip_200")
		require.Equal(t, `{"id":"inv_1"}`, string(got.Body.Bytes))
		require.NotContains(t, got.Header, "Content-Encoding")
		require.NotContains(t, got.Header, "Content-Length")
	})
	t.Run("null", func(t *testing.T) { require.Equal(t, "null", string(send(t, "null_200").Body.Bytes)) })
	t.Run("chunked", func(t *testing.T) {
		require.Equal(t, `{"id":"inv_1"}`, string(send(t, "chunked_200").Body.Bytes))
	})
	t.Run("binary", func(t *testing.T) {
		require.Equal(t, "%PDF-1.7\n\x00\xff\xfe", string(send(t, "pdf_200").Body.Bytes))
	})
	t.Run("5 MiB", func(t *testing.T) {
		got := send(t, "large_200")
		require.EqualValues(t, vendortest.LargeBody, got.Body.Size)
	})
	t.Run("a bomb is counted and hashed up to the cap", func(t *testing.T) {
		got := send(t, "gzip_bomb")
		require.Nil(t, got.Body.Bytes)
		require.EqualValues(t, 8<<20, got.Body.Size)
		require.Equal(t, sha256.Sum256(make([]byte, 8<<20)), got.Body.SHA256)
	})
	t.Run("a cut body is kept as far as it came", func(t *testing.T) {
		require.Equal(t, `{"id":"inv_1"}`, string(send(t, "cut_length").Body.Bytes))
	})
	t.Run("a redirect is an answer", func(t *testing.T) {
		got := send(t, "status_307")
		require.Equal(t, "/elsewhere", got.Header.Get("Location"))
	})
}

// A body of exactly the cap is whole, one byte more is too large and ends the
// connection.
func TestBodyCap(t *testing.T) {
	for name, tc := range map[string]struct {
		size  int
		state wire.BodyState
	}{"at the cap": {1000, wire.Complete}, "above": {1001, wire.TooLarge}, "far above": {90000, wire.TooLarge}} {
		t.Run(name, func(t *testing.T) {
			v := vendortest.New(t, func(c *vendortest.Call) { c.Respond(200, "text/plain", strings.Repeat("a", tc.size)) })
			c := client(t, v, func(cfg *wire.Config) { cfg.MaxBody = 1000 })
			got := c.Send(t.Context(), post(v), nil)
			require.Equal(t, tc.state, got.Body.State)
			require.EqualValues(t, 1000, got.Body.Size)
			require.Equal(t, sha256.Sum256([]byte(strings.Repeat("a", 1000))), got.Body.SHA256)
			c.Send(t.Context(), post(v), nil)
			if tc.state == wire.TooLarge {
				require.Equal(t, 2, v.Connections())
			} else {
				require.Equal(t, 1, v.Connections())
			}
		})
	}
}

// Reading stops at the cap, also where the end never comes and where what lies
// behind the cap is damaged.
func TestBodyCapStopsReading(t *testing.T) {
	member := vendortest.Gzip(strings.Repeat("a", 2000))
	for name, b := range map[string]vendortest.Behaviour{
		"endless": func(c *vendortest.Call) {
			c.Raw("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + strings.Repeat("a", 2000))
			c.Hang()
		},
		"damaged behind the cap": func(c *vendortest.Call) {
			c.Respond(200, "text/plain", member+"damaged", "Content-Encoding: gzip")
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := vendortest.New(t, b)
			c := client(t, v, func(cfg *wire.Config) { cfg.MaxBody = 1000 })
			got := c.Send(t.Context(), post(v), nil)
			require.Equal(t, wire.TooLarge, got.Body.State, got.Reason)
			require.Empty(t, got.Reason)
			require.EqualValues(t, 1000, got.Body.Size)
		})
	}
}

// What says that it is JSON has to be, by RFC 8259: UTF-8, no byte-order mark.
func TestDeclaredJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		contentType, body string
		state             wire.BodyState
	}{
		"json":            {"application/json", `{"a":[]}`, wire.Complete},
		"parameter":       {"Application/JSON; charset=utf-8", `{"a":`, wire.Unreadable},
		"text/json":       {"text/json", `{"a":`, wire.Unreadable},
		"suffix":          {"application/problem+json", `{"a":`, wire.Unreadable},
		"suffix, whole":   {"application/problem+json", `{"a":1}`, wire.Complete},
		"two values":      {"application/json", `{}{}`, wire.Unreadable},
		"byte-order mark": {"application/json", "\ufeff{}", wire.Unreadable},
		"not UTF-8":       {"application/json", "\"\xff\"", wire.Unreadable},
		"blanks":          {"application/json", " \n", wire.Unreadable},
		"json lines":      {"application/x-ndjson", "{}\n{}\n", wire.Complete},
		"no type, whole":  {"", "not json", wire.Complete},
	} {
		t.Run(name, func(t *testing.T) {
			v := vendortest.New(t, func(c *vendortest.Call) { c.Respond(200, tc.contentType, tc.body) })
			got := client(t, v).Send(t.Context(), post(v), nil)
			require.Equal(t, tc.state, got.Body.State)
			require.Equal(t, tc.body, string(got.Body.Bytes))
		})
	}
}

// A refusal that comes while the body is still being sent is an answer, also
// where the vendor resets the connection right behind it.
func TestEarlyAnswer(t *testing.T) {
	for name, b := range map[string]vendortest.Behaviour{"polite": vendortest.Early413, "reset": vendortest.Early413Reset} {
		for scheme, start := range map[string]func(testing.TB, vendortest.Behaviour) *vendortest.Vendor{
			"http": vendortest.New, "https": vendortest.NewTLS,
		} {
			for _, size := range []int{1, 7 << 10, 16 << 20} { // written in line, or beside the answer
				t.Run(fmt.Sprint(name, "/", scheme, "/", size), func(t *testing.T) {
					t.Parallel()
					v := start(t, b)
					req := post(v)
					req.Body = make([]byte, size)
					got := client(t, v).Send(t.Context(), req, nil)
					checkExchange(t, whole, got)
					require.Equal(t, 413, got.Status)
					require.Equal(t, 1, v.Arrivals())
				})
			}
		}
	}
}

// A body that ends with the connection is whole if its JSON is, and a bare number
// may have had more digits.
func TestJSONWithoutLength(t *testing.T) {
	for body, w := range map[string]want{
		`{"a":1}`: whole, `[]`: whole, `"a"`: whole, `null`: whole, "[1]\n": whole,
		`12`: cutBy("not_json"), ` -1`: cutBy("not_json"), `{"a":1`: cutBy("not_json"), "nul": cutBy("not_json"),
	} {
		t.Run(body, func(t *testing.T) {
			v := vendortest.New(t, vendortest.Raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"+body))
			checkExchange(t, w, client(t, v).Send(t.Context(), post(v), nil))
		})
	}
}

// A vendor that takes connections and closes them gets no arrival, but nobody
// knows that: the connection stood, and the request was written to it.
func TestCloseAtAccept(t *testing.T) {
	v := vendortest.Start(t, vendortest.Config{AtAccept: true})
	got := client(t, v).Send(t.Context(), post(v), nil)
	require.Zero(t, v.Arrivals())
	checkExchange(t, lost, got)
}

// A vendor that answers every request twice: the second answer belongs to no
// request, and above all not to the next one. Both come in one piece, so the
// surplus is there when the answer has been read.
func TestDoubledAnswer(t *testing.T) {
	v := vendortest.New(t, func(c *vendortest.Call) {
		c.ReadBody()
		c.Raw("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nreal" + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale")
	})
	c := client(t, v)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 20 {
				got := c.Send(context.Background(), post(v), nil)
				if string(got.Body.Bytes) != "real" {
					t.Errorf("got %s %s %q", got.Phase, got.Reason, got.Body.Bytes)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 640, v.Arrivals())
	require.Equal(t, 640, v.Connections())
}
