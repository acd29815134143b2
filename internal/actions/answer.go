package actions

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"

	"holdfast.dev/gateway/internal/strictjson"
)

// AnswerKind says which form a result takes.
type AnswerKind string

// Forms of a result.
const (
	ResultJSON    AnswerKind = "json"    // Data is JSON, byte for byte
	ResultBinary  AnswerKind = "binary"  // Data is something else, of ContentType
	ResultOmitted AnswerKind = "omitted" // not kept: Reason says why
	ResultNone    AnswerKind = "none"    // the vendor's body was empty
)

// Answer is what a successful write returned, as it is stored and shown. The
// first answer and every replay are made from the same bytes.
type Answer struct {
	Kind        AnswerKind        `json:"kind"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"` // those the action lists
	// Of an omitted result: why, how many bytes were read and their SHA-256 in hex.
	Reason string `json:"reason,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`

	Data []byte `json:"-"`
}

var errAnswerForm = errors.New("stored answer has an unknown form")

// encode writes a length, the head as JSON, and the data untouched.
func (a *Answer) encode() []byte {
	head := a.head()
	out := make([]byte, 0, len(head)+len(a.Data)+binary.MaxVarintLen64)
	out = binary.AppendUvarint(out, uint64(len(head)))
	out = append(out, head...)
	return append(out, a.Data...)
}

// head is what json.Marshal would write of the answer.
func (a *Answer) head() []byte {
	e := keeper(make([]byte, 0, 256))
	e.text(`{"kind":`, string(a.Kind))
	e.some(`,"content_type":`, a.ContentType)
	lead := `,"headers":{`
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		e.text(lead, name)
		e.text(":", a.Headers[name])
		lead = ","
	}
	if len(a.Headers) > 0 {
		e = append(e, '}')
	}
	e.some(`,"reason":`, a.Reason)
	if a.Bytes != 0 {
		e = strconv.AppendInt(append(e, `,"bytes":`...), a.Bytes, 10)
	}
	e.some(`,"sha256":`, a.SHA256)
	return append(e, '}')
}

func decodeAnswer(data []byte) (*Answer, error) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return nil, errAnswerForm
	}
	a := &Answer{}
	if !a.readHead(data[size : size+int(n)]) {
		return nil, errAnswerForm
	}
	switch a.Kind {
	case ResultJSON, ResultBinary, ResultOmitted, ResultNone:
	default:
		return nil, errAnswerForm
	}
	a.Data = data[size+int(n):]
	return a, nil
}

// readHead reads what encoding/json wrote of an answer; every answer passes here.
// A member that is not known is passed over.
func (a *Answer) readHead(head []byte) bool {
	if _, sound := strictjson.Sound(head); !sound {
		return false
	}
	ok := true
	text := func(token []byte) string {
		said, is := strictjson.Text(token)
		ok = ok && is
		return string(said)
	}
	err := strictjson.EachMember(head, func(name, value []byte) bool {
		switch string(name) {
		case "kind":
			a.Kind = AnswerKind(text(value))
		case "content_type":
			a.ContentType = text(value)
		case "reason":
			a.Reason = text(value)
		case "sha256":
			a.SHA256 = text(value)
		case "bytes":
			n, err := strconv.ParseInt(string(value), 10, 64)
			a.Bytes, ok = n, ok && err == nil
		case "headers":
			a.Headers = map[string]string{}
			bad := strictjson.EachMember(value, func(name, value []byte) bool {
				a.Headers[string(name)] = text(value)
				return ok
			})
			ok = ok && bad == nil
		}
		return ok
	})
	return ok && err == nil
}

// limit replaces a result that is too large to keep by its size and digest.
func (a *Answer) limit(most int64) {
	if int64(len(a.Data)) <= most {
		return
	}
	sum := sha256.Sum256(a.Data)
	a.Kind, a.Reason = ResultOmitted, "too_large"
	a.Bytes, a.SHA256 = int64(len(a.Data)), hex.EncodeToString(sum[:])
	a.Data = nil
}
