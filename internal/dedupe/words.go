package dedupe

// Words that records hold over and over. Each is stored as its number, and others as
// they are: so this list only ever grows at its end, and it need not be complete.
// Most are those of the packages above (wire, connectors, actions), which this one
// does not know.
var words = [...]string{
	"derived", "supplied",
	"vendor", "check", "operator",
	"not_sent", "sent_no_answer", "answered",
	"owner_lost", "claim_unconfirmed", "internal", "answer_encoding", "found",
	"rate_limit", "credential", "unavailable",
	"rule", "no_rule", "rule_failed", "body", "status", "connector",
	"deadline", "canceled", "cut", "reset", "malformed", "head_size",
	"gzip", "encoding", "not_json", "upgraded",
	"invalid_url", "invalid_method", "invalid_header", "invalid", "dns", "refused", "dial", "tls",
	"egress_denied", "not_permitted", "closed",
	"resend: sending",
}

// events are numbered from 1 in a record; at most 31, and none may ever move.
var events = [...]Event{
	EventClaimed, EventSucceeded, EventRefused, EventHeld, EventNotSent, EventReleased,
	EventReplayed, EventInFlight, EventKeyReused, EventTwinRefused, EventLeaseLost, EventLateAnswer,
	EventHeldRepeat, EventLapsed, EventNotDone, EventResolved, EventChecked, EventRecovered,
}

var wordNumbers, eventNumbers = numbered()

func numbered() (map[string]uint64, map[Event]byte) {
	ofWord, ofEvent := make(map[string]uint64, len(words)), make(map[Event]byte, len(events))
	for i, w := range words {
		ofWord[w] = uint64(i)
	}
	for i, e := range events {
		ofEvent[e] = byte(i) + 1
	}
	return ofWord, ofEvent
}

// A string that may have a shorter form begins with a number: twice its length, or
// one more than twice the number of its form.
const shortForm = 1

func (w *writer) word(s string) {
	if n, ok := wordNumbers[s]; ok {
		w.uint(n<<1 | shortForm)
		return
	}
	w.plain(s)
}

func (w *writer) plain(s string) {
	w.uint(uint64(len(s)) << 1)
	*w = append(*w, s...)
}

func (r *reader) word() string {
	n := r.uint()
	if n&shortForm == 0 {
		s := r.plain(n)
		_, known := wordNumbers[s]
		r.insist(!known)
		return s
	}
	if n >>= 1; n < uint64(len(words)) {
		return words[n]
	}
	r.bad = true
	return ""
}

// plain reads the rest of a string that begins with a number.
func (r *reader) plain(n uint64) string {
	if n >>= 1; n > uint64(len(r.rest)) {
		r.bad = true
	}
	return string(r.take(int(n)))
}
