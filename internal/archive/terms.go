package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// Terms is a Bloom filter over the exact terms of a segment's rows, such as
// "event=held". It never says no to a term that is there, and says yes to about
// 1 % of those that are not.
type Terms struct{ bits []byte }

const (
	termsVersion = 1
	// bitsPerTerm and probes give about 0.8 % false positives (10 bits, 7 probes).
	bitsPerTerm = 10
	probes      = 7
	minTermBits = 64
)

var errTerms = errors.New("not a filter over terms")

// NewTerms makes the filter of a set of terms.
func NewTerms(set map[string]struct{}) Terms {
	size := max(minTermBits, len(set)*bitsPerTerm)
	t := Terms{bits: make([]byte, (size+7)/8)}
	for term := range set {
		t.each(term, func(i uint64) bool {
			t.bits[i/8] |= 1 << (i % 8)
			return true
		})
	}
	return t
}

// May says whether a row with the term may be in the segment.
func (t Terms) May(term string) bool {
	there := true
	t.each(term, func(i uint64) bool {
		there = t.bits[i/8]&(1<<(i%8)) != 0
		return there
	})
	return there
}

// MayAll says whether rows with each of the terms may be in the segment.
func (t Terms) MayAll(terms []string) bool {
	for _, term := range terms {
		if !t.May(term) {
			return false
		}
	}
	return true
}

// each calls f with the places of a term, derived from two halves of one hash
// (Kirsch and Mitzenmacher, "Less Hashing, Same Performance", 2006).
func (t Terms) each(term string, f func(bit uint64) bool) {
	sum := sha256.Sum256([]byte(term))
	a, b := binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])|1
	n := uint64(len(t.bits)) * 8
	for range probes {
		if !f(a % n) {
			return
		}
		a += b
	}
}

// Encode returns the filter as it is stored.
func (t Terms) Encode() []byte { return append([]byte{termsVersion, probes}, t.bits...) }

// DecodeTerms reads what Encode returns.
func DecodeTerms(data []byte) (Terms, error) {
	if len(data) < 2+minTermBits/8 || data[0] != termsVersion || data[1] != probes {
		return Terms{}, errTerms
	}
	return Terms{bits: data[2:]}, nil
}
