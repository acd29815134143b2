package redisstore

import (
	"crypto/sha1" // the name Redis gives a script is its SHA-1
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"

	"holdfast.dev/gateway/internal/ledger"
)

//go:embed scripts/lib.lua
var libText string

//go:embed scripts/apply.lua
var applyText string

//go:embed scripts/read.lua
var readText string

//go:embed scripts/entries.lua
var entriesText string

//go:embed scripts/rows.lua
var rowsText string

//go:embed scripts/ack.lua
var ackText string

//go:embed scripts/rights.lua
var rightsText string

// scripts are the scripts as Redis is sent them. Their flags need Redis 7
// (https://redis.io/docs/latest/develop/programmability/lua-api/#script_flags).
// A script with flags is refused as a whole, before it runs, when memory is
// full, a disk is failing or replicas are missing; it never stops half way.
// None but rights says that it writes nothing, although some do not: a replica,
// which may be a master deposed a moment ago, must refuse to be read.
type scripts struct {
	apply   script // refused when memory is full
	settle  script // the same, let through when memory is full
	read    script
	entries script
	rows    script
	ack     script
	rights  script
}

func newScripts() scripts {
	constants := fmt.Sprintf("local DRIFT, NONCELIFE, VOIDLIFE = %d, '%d', '%d'\n", ledger.Drift.Milliseconds(),
		(ledger.NonceLife + nonceMargin).Milliseconds(), (ledger.VoidLife + nonceMargin).Milliseconds())
	return scripts{
		apply:   newScript("#!lua", constants+applyText),
		settle:  newScript("#!lua flags=allow-oom", constants+applyText),
		read:    newScript("#!lua flags=allow-oom", readText),
		entries: newScript("#!lua flags=allow-oom", entriesText),
		rows:    newScript("#!lua flags=allow-oom", rowsText),
		ack:     newScript("#!lua flags=allow-oom", ackText),
		rights:  newScript("#!lua flags=no-writes", rightsText),
	}
}

type script struct{ text, sum any } // strings, in the box that a command wants

func newScript(shebang, text string) script {
	whole := shebang + "\n" + libText + text
	sum := sha1.Sum([]byte(whole))
	return script{text: whole, sum: hex.EncodeToString(sum[:])}
}

// bySum makes a call a command, and takes it over.
func (s script) bySum(c call) []any {
	c.words[0], c.words[1], c.words[2] = "evalsha", s.sum, c.keys
	return c.words
}

// byText makes a command of a call that was one by its sum.
func (s script) byText(c call) []any {
	words := slices.Clone(c.words)
	words[0], words[1], words[2] = "eval", s.text, c.keys
	return words
}
