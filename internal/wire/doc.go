// Package wire is the one sender of Holdfast: it puts one prepared HTTP request
// on the wire at most once and reports what is known about it afterwards.
//
// It owns the socket, and with it the only proof that nothing was sent: the
// bytes of a request are handed to a connection at one place (exchange), and
// every return before it is not_sent. The three phases:
//
//	not_sent        no application byte was attempted
//	sent_no_answer  a byte was attempted and no whole, readable answer head came
//	answered        a whole answer head came; Body.State says what its body is worth
//
// It owns the address check at dial time, the caps on head and body, the total
// deadline, kept connections, decompression and the finding of cut bodies. It
// leaves to its neighbours what an answer means (connector rules), whether a
// request may be sent at all (the Permit of the caller), credentials, redaction,
// the limit on stored results, retries and the breaker. It follows no redirect,
// keeps no cookie, uses no proxy, speaks no HTTP/2 and imports none of our
// packages.
//
// Messages are read and written by net/http (Request.Write, ReadResponse), but
// its Transport is not used, for three reasons. It sends a request with an
// Idempotency-Key again when a kept connection ends (golang/go issue 19943). It
// offers a connection to the next request before it has looked for bytes beyond
// the answer, so with 64 callers one request in a hundred was given the second half
// of a doubled answer (TestDoubledAnswer). And it prints such bytes on the
// process's standard logger. Here a connection is kept only if nothing is left
// unread, and looked at again before it is used.
package wire
