package wire

import (
	"net/http"
	"time"
)

// Request is one prepared HTTP request. What is in it leaves as it stands:
// nothing but Host, Content-Length, Accept-Encoding, User-Agent if it is not set,
// and Connection: close for a fresh connection is added.
type Request struct {
	// Method is the HTTP method, as it goes on the wire; never empty.
	Method string
	// URL is absolute, http or https, without user information. An http URL
	// is dialled only inside Config.EgressAllow.
	URL string
	// Header is copied. Framing and hop-by-hop fields are refused,
	// Accept-Encoding is replaced, since decoding is this package's work.
	Header http.Header
	// Body is copied before anything is dialled.
	Body []byte
	// Timeout bounds the whole exchange: look-up, dial, handshake, sending,
	// head and body. Zero means Config.Timeout.
	Timeout time.Duration
	// FreshConnection dials a connection for this request alone. A vendor
	// that closes a kept connection at the wrong moment makes an unknown out
	// of a write; who has no way to resolve an unknown avoids that race.
	FreshConnection bool
}

// Permit is asked at most once per Send, on the goroutine of the caller, when the
// connection stands and right before the first application byte. An error closes
// the socket, and nothing is sent. A nil Permit permits.
type Permit func() error

// Phase says how far a request got.
type Phase string

// The three phases. There is no fourth: whatever cannot be shown to be NotSent
// or Answered is SentNoAnswer.
const (
	NotSent      Phase = "not_sent"
	SentNoAnswer Phase = "sent_no_answer"
	Answered     Phase = "answered"
)

// The fixed words of Exchange.Reason. They carry nothing of the request or the
// answer, so they are safe to store, to log and to show.
const (
	// With NotSent.
	ReasonInvalidURL    = "invalid_url"    // not an absolute http(s) URL, or one that holds user information
	ReasonInvalidMethod = "invalid_method" // not a token, or CONNECT
	ReasonInvalidHeader = "invalid_header" // name or value not allowed on the wire, or a field that wire owns
	ReasonDNS           = "dns"            // the name did not resolve
	ReasonRefused       = "refused"        // connection refused
	ReasonDial          = "dial"           // no connection for another reason
	ReasonEgressDenied  = "egress_denied"  // the address is outside what the operator permits
	ReasonNotPermitted  = "not_permitted"  // the Permit said no
	ReasonClosed        = "closed"         // the Client is closed

	// With NotSent (handshake) or SentNoAnswer (a broken TLS record).
	ReasonTLS = "tls"

	// With any phase; with Answered the body is cut.
	ReasonDeadline = "deadline" // the total timeout, or the caller's deadline
	ReasonCanceled = "canceled" // the caller's context ended

	// With SentNoAnswer, or Answered and a cut body.
	ReasonCut       = "cut"       // the connection ended too early
	ReasonReset     = "reset"     // the connection was reset
	ReasonMalformed = "malformed" // not HTTP/1.x
	ReasonHeadSize  = "head_size" // the answer head is larger than Config.MaxHead

	// With Answered and a cut or unreadable body.
	ReasonGzip     = "gzip"     // compressed data damaged or incomplete
	ReasonEncoding = "encoding" // a Content-Encoding this package does not read
	ReasonNotJSON  = "not_json" // declared or needed to be JSON, and is not
	ReasonUpgraded = "upgraded" // status 101: what follows is not HTTP
)

// Exchange is what is known about one request after Send. It never holds the
// URL or a header of the request.
type Exchange struct {
	Phase Phase
	// Reason is one of the Reason constants; empty if the exchange is
	// Answered and nothing is wrong with the body.
	Reason string
	// Status, Header and Body are set only if Phase is Answered. Header is
	// as received, without Content-Encoding and Content-Length where Body was
	// decompressed.
	Status int
	Header http.Header
	Body   Body
	// Reused says that a kept connection carried the request.
	Reused bool
	// Started is the wall-clock time at which Send was called, Duration how
	// long it took.
	Started  time.Time
	Duration time.Duration
}

// BodyState says what the body of an answer is worth.
type BodyState string

// The states of a body.
const (
	// Complete: every sign there is says the body is whole.
	Complete BodyState = "complete"
	// Cut: the body is not whole, or nothing shows that it is. The caller must
	// treat the answer as unknown, whatever its status.
	Cut BodyState = "cut"
	// TooLarge: the body is longer than Config.MaxBody; the rest was not read.
	TooLarge BodyState = "too_large"
	// Unreadable: the body came whole but cannot be read as what it says it is.
	// A rule that needs the body must fail.
	Unreadable BodyState = "unreadable"
)

// Body is the body of an answer, decompressed.
type Body struct {
	// Bytes is the body if State is Complete, what came if it is Cut (nil if
	// it was compressed) or Unreadable (still encoded with ReasonEncoding),
	// nil if it is TooLarge.
	Bytes []byte
	State BodyState
	// Size (bytes) and SHA256 cover everything that was read, also where
	// Bytes is nil. With TooLarge that is the first Config.MaxBody bytes.
	Size   int64
	SHA256 [32]byte
}
