package audit

import (
	"holdfast.dev/gateway/internal/strictjson"
)

// stored mirrors what Encode writes.
type stored struct {
	V            int               `json:"v"`
	Event        string            `json:"event"`
	At           string            `json:"at"`
	Tenant       string            `json:"tenant"`
	Actor        Actor             `json:"actor"`
	Front        string            `json:"front"`
	RequestID    string            `json:"request_id"`
	TraceID      string            `json:"trace_id"`
	ActionID     string            `json:"action_id"`
	Connection   string            `json:"connection"`
	Action       string            `json:"action"`
	Identity     string            `json:"identity"`
	KeySource    string            `json:"key_source"`
	Outcome      string            `json:"outcome"`
	Reason       string            `json:"reason"`
	VendorStatus int               `json:"vendor_status"`
	DurationMS   int64             `json:"duration_ms"`
	Subject      string            `json:"subject"`
	Changed      []string          `json:"changed"`
	Meta         map[string]string `json:"meta"`
}

// Decode reads a row. It forgives nothing: an unknown, repeated or
// differently-cased member, a word that is not one, a number that Encode would
// not have written, and it returns ErrUnreadable. An event that this release
// does not know is no error: the log may be older or newer than the program.
func Decode(data []byte) (Row, error) {
	if row, ok := regular(string(data)); ok {
		return row, nil
	}
	return decode(data)
}

func decode(data []byte) (Row, error) {
	var s stored
	if err := strictjson.Unmarshal(data, &s); err != nil {
		return Row{}, ErrUnreadable // the cause would quote member names of the row
	}
	at, ok := parseTime(s.At)
	if !ok || s.V != rowVersion || s.Event == "" || s.VendorStatus < 0 || s.DurationMS < 0 || !s.fits() {
		return Row{}, ErrUnreadable
	}
	return Row{
		Event: Event(s.Event), At: at, Tenant: s.Tenant, Actor: s.Actor, Front: s.Front,
		RequestID: s.RequestID, TraceID: s.TraceID,
		ActionID: s.ActionID, Connection: s.Connection, Action: s.Action,
		Identity: s.Identity, KeySource: s.KeySource,
		Outcome: s.Outcome, Reason: s.Reason, VendorStatus: s.VendorStatus, DurationMS: s.DurationMS,
		Subject: s.Subject, Changed: s.Changed, Meta: s.Meta,
	}, nil
}

// fits says whether every text is one that Encode writes as it is.
func (s *stored) fits() bool {
	words := append([]string{
		s.Event, s.Tenant, s.Actor.Kind, s.Actor.KeyID, s.Front, s.RequestID, s.TraceID,
		s.ActionID, s.Connection, s.Action, s.Identity, s.KeySource, s.Outcome, s.Reason, s.Subject,
	}, s.Changed...)
	for _, w := range words {
		if word(w) != w {
			return false
		}
	}
	for name, value := range s.Meta {
		if label(name) != name || label(value) != value {
			return false
		}
	}
	return len(s.Meta) <= MaxMeta && len(s.Changed) <= maxChanged
}
