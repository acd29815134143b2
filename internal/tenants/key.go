package tenants

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"strings"

	"holdfast.dev/gateway/internal/ledger"
)

// The text of an API key:
//
//	hf_<public id>_<secret><checksum>
//
//	public id  39 characters: the scope (16 bytes) and 8 random bytes
//	secret     52 characters: 32 random bytes
//	checksum    7 characters: CRC-32 (IEEE) of everything before it
//
// All in lower-case base32 (RFC 4648, section 6) without padding, so a key
// survives any terminal and is selected whole by a double click. The checksum
// tells a typo from an unknown key without a read, and a secret scanner a key
// from a text that looks like one; it is no secret and no protection.
const (
	keyPrefix    = "hf_"
	randomSize   = 8
	publicSize   = len(ledger.Scope{}) + randomSize
	secretSize   = 32
	checksumSize = 4
)

var base32Form = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// secretHash is what is stored of a secret. A plain hash is enough: the secret
// is random and as long as the hash, so there is nothing to guess.
type secretHash [sha256.Size]byte

// mint makes a key of a scope.
func mint(scope ledger.Scope) (text, publicID string, hash secretHash) {
	var random [randomSize + secretSize]byte
	_, _ = rand.Read(random[:]) // never fails: it ends the process instead
	secret := random[randomSize:]
	publicID = base32Form.EncodeToString(append(scope[:], random[:randomSize]...))
	text = keyPrefix + publicID + "_" + base32Form.EncodeToString(secret)
	return text + checksum(text), publicID, sha256.Sum256(secret)
}

// parseKey takes a key apart. It accepts one spelling only and asks nobody.
func parseKey(text string) (scope ledger.Scope, publicID string, hash secretHash, ok bool) {
	rest, hasPrefix := strings.CutPrefix(text, keyPrefix)
	publicID, rest, hasSecret := strings.Cut(rest, "_")
	split := len(rest) - base32Form.EncodedLen(checksumSize)
	if !hasPrefix || !hasSecret || split < 0 || checksum(text[:len(text)-len(rest)+split]) != rest[split:] {
		return ledger.Scope{}, "", secretHash{}, false
	}
	scope, ok = scopeOf(publicID)
	secret, secretOK := decode32(rest[:split], secretSize)
	if !ok || !secretOK {
		return ledger.Scope{}, "", secretHash{}, false
	}
	return scope, publicID, sha256.Sum256(secret), true
}

// scopeOf reads the scope out of a public id. The platform has no API keys.
func scopeOf(publicID string) (ledger.Scope, bool) {
	id, ok := decode32(publicID, publicSize)
	if !ok {
		return ledger.Scope{}, false
	}
	scope := ledger.Scope(id[:len(ledger.Scope{})])
	return scope, scope != ledger.Platform
}

// decode32 reads exactly size bytes and refuses a second spelling of them,
// which the unused bits of the last character would allow.
func decode32(text string, size int) ([]byte, bool) {
	data, err := base32Form.DecodeString(text)
	if err != nil || len(data) != size {
		return nil, false
	}
	var room [64]byte
	return data, string(base32Form.AppendEncode(room[:0], data)) == text
}

func checksum(text string) string {
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(text)))
	return base32Form.EncodeToString(sum)
}
