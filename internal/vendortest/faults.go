package vendortest

import (
	"fmt"
	"strconv"
)

// Fault is one way in which a vendor can answer, or not. Each arrives once;
// what that means is for the user of the table to say.
type Fault struct {
	// Name is unique, lower case, words joined by underscores.
	Name      string
	Behaviour Behaviour
	// Hangs says that the client has to end it, by a short timeout.
	Hangs bool
	// Status is the status of the final answer head; 0 if no whole head comes.
	Status int
}

// OK does the work and says so, with the number of the arrival.
func OK(c *Call) { c.JSON(200, fmt.Sprintf(`{"arrival":%d}`, c.Arrival.Seq)) }

// CloseAfterHead closes with the body of the request unread (if there is one).
func CloseAfterHead(c *Call) { c.Close() }

// CloseAfterBody reads all of the request, so the work is done, and closes.
func CloseAfterBody(c *Call) { c.ReadBody(); c.Close() }

// ResetAfterBody reads all of the request and resets the connection.
func ResetAfterBody(c *Call) { c.ReadBody(); c.Reset() }

// Hang reads all of the request and never answers.
func Hang(c *Call) { c.ReadBody(); c.Hang() }

// Status answers with a small JSON body.
func Status(status int, lines ...string) Behaviour {
	return func(c *Call) {
		if status == 204 || status == 304 {
			c.ReadBody()
			c.Raw(head(status, lines...))
			return
		}
		c.JSON(status, fmt.Sprintf(`{"status":%d,"arrival":%d}`, status, c.Arrival.Seq), lines...)
	}
}

// Raw reads the request, writes s as it stands and closes.
func Raw(s string) Behaviour {
	return func(c *Call) {
		c.ReadBody()
		c.Raw(s)
		c.CloseNotify()
	}
}

// rawHang reads the request, writes s and then nothing more.
func rawHang(s string) Behaviour {
	return func(c *Call) {
		c.ReadBody()
		c.Raw(s)
		c.Hang()
	}
}

// whole is an answer with a body of any kind.
func whole(status int, contentType, body string, lines ...string) Behaviour {
	return func(c *Call) { c.Respond(status, contentType, body, lines...) }
}

// Early413 answers before reading the body, then takes the rest of it, as a
// polite vendor does.
func Early413(c *Call) {
	body := `{"error":"too_large"}`
	c.Raw(head(413, "Content-Type: application/json", "Connection: close", "Content-Length: "+strconv.Itoa(len(body))))
	c.Raw(body)
	c.ReadBody()
	c.CloseNotify()
}

// Early413Reset answers before reading the body and closes at once: the client
// gets a RST while it still writes.
func Early413Reset(c *Call) {
	body := `{"error":"too_large"}`
	c.Raw(head(413, "Content-Type: application/json", "Connection: close", "Content-Length: "+strconv.Itoa(len(body))))
	c.Raw(body)
	c.Close()
}

// Faults is the table of everything a vendor can do to a request that arrived.
// In each the whole request is read first, except where the name says
// otherwise. Not in it, since nothing arrives: Config.AtAccept, RefusedURL,
// Nothing (NXDOMAIN), and certificates that do not verify.
func Faults() []Fault {
	var all []Fault
	for _, group := range [][]Fault{lostFaults(), garbledFaults(), bodyFaults(), statusFaults(), goodAnswers(), retryAfterFaults()} {
		all = append(all, group...)
	}
	return all
}

// lostFaults end before a whole answer head.
func lostFaults() []Fault {
	return []Fault{
		{Name: "close_after_head", Behaviour: CloseAfterHead},
		{Name: "close_after_body", Behaviour: CloseAfterBody},
		{Name: "reset_after_head", Behaviour: (*Call).Reset},
		{Name: "reset_after_body", Behaviour: ResetAfterBody},
		{Name: "hang", Behaviour: Hang, Hangs: true},
		{Name: "hang_in_head", Behaviour: rawHang("HTTP/1.1 200 OK\r\nContent-Ty"), Hangs: true},
		{Name: "cut_in_status_line", Behaviour: Raw("HTTP/1.1 20")},
		{Name: "cut_in_head", Behaviour: Raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Le")},
		{Name: "only_103", Behaviour: Raw("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")},
	}
}

// garbledFaults send something that is no HTTP answer.
func garbledFaults() []Fault {
	return []Fault{
		{Name: "garbage_status_line", Behaviour: Raw("200 yes\r\nContent-Length: 2\r\n\r\n{}")},
		{Name: "garbage_bytes", Behaviour: Raw("\x00\x01\xff\xfe\r\n\r\n")},
		{Name: "garbage_header", Behaviour: Raw("HTTP/1.1 200 OK\r\nno colon here\r\n\r\n{}")},
		{Name: "two_status_lines", Behaviour: Raw("HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")},
		{Name: "two_lengths", Behaviour: Raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}")},
		{Name: "status_099", Behaviour: Raw("HTTP/1.1 099 Low\r\nContent-Length: 2\r\n\r\n{}")},
		{Name: "http_2_status_line", Behaviour: Raw("HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}")},
		{Name: "endless_head", Behaviour: endlessHead},
		{Name: "endless_1xx", Behaviour: endless1xx},
	}
}

func endlessHead(c *Call) {
	c.ReadBody()
	c.Raw("HTTP/1.1 200 OK\r\n")
	endless(c, "X-Filler: 0123456789012345678901234567890123456789\r\n")
}

func endless1xx(c *Call) {
	c.ReadBody()
	endless(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
}

// endless writes until the client closes.
func endless(c *Call, s string) {
	for {
		if _, err := c.conn.Write([]byte(s)); err != nil {
			c.Close()
			return
		}
	}
}

// statusFaults are whole answers of every status that matters. A redirect
// points back at the vendor, so that following it is counted.
func statusFaults() []Fault {
	var out []Fault
	for _, s := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		out = append(out, Fault{Name: "status_" + strconv.Itoa(s), Behaviour: Status(s, "Location: /elsewhere"), Status: s})
	}
	for _, s := range []int{400, 401, 403, 404, 408, 409, 410, 413, 422, 423, 425, 500, 501, 502, 503, 504, 520, 599, 999} {
		out = append(out, Fault{Name: "status_" + strconv.Itoa(s), Behaviour: Status(s), Status: s})
	}
	return append(out,
		Fault{Name: "early_413", Behaviour: Early413, Status: 413},
		Fault{Name: "status_408_close", Behaviour: Status(408, "Connection: close"), Status: 408},
		Fault{Name: "status_101", Behaviour: rawHang("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n"), Status: 101},
		Fault{Name: "html_502", Behaviour: whole(502, "text/html", "<html><h1>Bad Gateway</h1></html>"), Status: 502},
	)
}

// retryAfterFaults are 429 with every kind of hint.
func retryAfterFaults() []Fault {
	hints := []struct{ name, value string }{
		{"seconds", "7"}, {"zero", "0"}, {"negative", "-5"}, {"huge", "99999999999999999999"}, {"day", "86400"},
		{"fraction", "1.5"}, {"garbage", "soon"}, {"empty", ""},
		{"date_past", "Wed, 21 Oct 2015 07:28:00 GMT"}, {"date_future", "Wed, 21 Oct 2099 07:28:00 GMT"},
	}
	out := []Fault{{Name: "status_429", Behaviour: Status(429), Status: 429}}
	for _, h := range hints {
		out = append(out, Fault{Name: "status_429_" + h.name, Behaviour: Status(429, "Retry-After: "+h.value), Status: 429})
	}
	return out
}
