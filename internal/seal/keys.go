package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
)

// Parse reads a keyring: one or several keys of 32 bytes in standard base64
// (RFC 4648, section 4, with padding), separated by commas. Blanks around a key
// are ignored, so a file that ends in a newline is fine. Errors name a key by
// its place and never show any of it.
func Parse(text string) (*Ring, error) {
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("no secret key is given")
	}
	var masters [][]byte
	for i, field := range strings.Split(text, ",") {
		// The decoder skips line breaks inside a key; a key does not have any.
		field = strings.TrimSpace(field)
		master, err := base64.StdEncoding.Strict().DecodeString(field)
		if err != nil || strings.ContainsAny(field, "\r\n") {
			return nil, fmt.Errorf("secret key %d is not standard base64", i+1)
		}
		if len(master) != keySize {
			return nil, fmt.Errorf("secret key %d has %d bytes, not %d", i+1, len(master), keySize)
		}
		if bytes.Count(master, master[:1]) == keySize {
			return nil, fmt.Errorf("secret key %d is one byte repeated, not a random key", i+1)
		}
		masters = append(masters, master)
	}
	return newRing(masters)
}

// Generate returns a new random key in the form Parse reads.
func Generate() string {
	var master [keySize]byte
	_, _ = rand.Read(master[:])
	return base64.StdEncoding.EncodeToString(master[:])
}
