package actions

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
func (a *Answer) encode() ([]byte, error) {
	head, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	out := make([]byte, 0, len(head)+len(a.Data)+binary.MaxVarintLen64)
	out = binary.AppendUvarint(out, uint64(len(head)))
	out = append(out, head...)
	return append(out, a.Data...), nil
}

func decodeAnswer(data []byte) (*Answer, error) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return nil, errAnswerForm
	}
	a := &Answer{}
	if err := json.Unmarshal(data[size:size+int(n)], a); err != nil {
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
