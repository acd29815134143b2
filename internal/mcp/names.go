package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxName is how long the name of a tool may be: the specification allows 128
// characters, the models behind common clients 64, of letters, digits, dashes and
// underscores.
const maxName = 64

// Between the name of a connection and that of an action; what follows a name that
// had to be cut begins with one underscore more.
const (
	between = "__"
	cutMark = "___"
	sumHex  = 16
)

// toolName names the tool of an action of a connection: billing__create_invoice.
// It depends on nothing else, so that it never comes to mean another action when
// connections come and go, and no two pairs have the same one. Where the plain form
// would be too long or could be read as another pair, the end is a hash of the
// pair.
func toolName(connection, action string) string {
	plain := connection + between + action
	if len(plain) <= maxName && splits(connection) && startsWithLetter(action) {
		return plain
	}
	sum := sha256.Sum256([]byte(connection + "\x00" + action))
	prefix := connection + "_" + action
	for strings.Contains(prefix, between) {
		prefix = strings.ReplaceAll(prefix, between, "_")
	}
	prefix = strings.TrimRight(prefix[:min(len(prefix), maxName-len(cutMark)-sumHex)], "_")
	return prefix + cutMark + hex.EncodeToString(sum[:])[:sumHex]
}

// splits says whether the first two underscores behind a connection's name are
// those that toolName writes.
func splits(connection string) bool {
	return connection != "" && !strings.Contains(connection, between) && !strings.HasSuffix(connection, "_")
}

func startsWithLetter(action string) bool {
	return action != "" && action[0] >= 'a' && action[0] <= 'z'
}

// splitName reads the plain form of a tool's name.
func splitName(name string) (connection, action string, plain bool) {
	connection, action, found := strings.Cut(name, between)
	return connection, action, found && toolName(connection, action) == name
}

// isCut says whether the name is one that ends in a hash.
func isCut(name string) bool {
	_, rest, found := strings.Cut(name, between)
	return found && len(rest) == sumHex+1 && rest[0] == '_'
}
