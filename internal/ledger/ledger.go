// Package ledger is the contract of the durable store beneath everything
// Holdfast remembers.
//
// A ledger is split into scopes, one per tenant and one for the platform. A
// scope holds small versioned values, sorted indexes over them and an
// append-only list of audit rows. All of it changes only through a [Step]: one
// atomic, durable, repeatable change that carries its own audit rows, so no
// state can change without its row and no row can appear without its change.
//
// The package owns the words and the promises; it knows nothing of writes,
// tenants or audits. Those rules live once, in the packages above (dedupe,
// tenants, connections, audit), and a driver below (pebblestore, redisstore)
// cannot disagree about them because it never sees them.
package ledger

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"time"
)

// Scope is one tenant's part of the ledger. It is a hash, so a tenant's id is
// never spelled in a key, and a call that was given one scope has no way to
// name a value of another.
type Scope [16]byte

// Platform is the host's own scope: the list of tenants, registered
// connectors, the store's epoch.
var Platform = Scope{}

// ScopeOf returns the scope of a tenant id.
func ScopeOf(tenantID string) Scope {
	sum := sha256.Sum256([]byte("holdfast/v1/scope\x00" + tenantID))
	return Scope(sum[:16])
}

// Kind says what a value is. The kinds are listed here, and only here, so that
// two packages cannot take the same one.
type Kind byte

const (
	Binding    Kind = 'b' // identity (32 bytes) -> action id (16 bytes)
	Action     Kind = 'a' // action id (16) -> record
	Answer     Kind = 'r' // action id (16) -> the stored answer
	Request    Kind = 'q' // action id (16) -> the sealed request, until settled
	Raw        Kind = 'w' // action id (16) -> a sealed vendor answer not judged yet, until settled
	Twins      Kind = 'f' // fingerprint (32) -> action ids (n x 16) in flight or held
	Replays    Kind = 'n' // action id (16) -> counter of replays
	Tenant     Kind = 't' // "" -> the tenant of this scope
	APIKey     Kind = 'k' // public id -> API key
	Connection Kind = 'c' // name -> connection
	Manifest   Kind = 'm' // connector version -> manifest (platform scope)
	Sealing    Kind = 's' // "head" -> how far the rows are sealed; 'n' + number (8) -> a sealed segment
	Meta       Kind = 'e' // name -> store bookkeeping (platform scope)
	Usage      Kind = 'u' // "" -> how far rows are counted; day -> what they come to
)

// Index names a sorted set of members inside a scope.
type Index byte

const (
	ByCreated Index = 'l' // every action by its time of claim
	ByLease   Index = 'i' // actions in flight by the end of their lease
	ByHold    Index = 'h' // held actions by their hold_until
	ByCheck   Index = 'x' // held actions by the time of their next automatic check
	ByArchive Index = 'o' // scopes whose rows were ever sealed, all at one score (platform scope)
	ByAlias   Index = 'j' // identities bound to an action of another one, by the end of that
	ByErasure Index = 'p' // deleted tenants whose writes are still to be removed, by deletion (platform scope)
	ByDue     Index = 'y' // scopes that may hold something the clock asks for, by when they were marked (platform scope)
	ByName    Index = 'd' // named things (tenants, keys, connections) by creation
)

// Key names one value inside a scope. ID is opaque bytes of at most 255.
type Key struct {
	Kind Kind
	ID   string
}

// Version identifies one put of one value. It is the head of the nonce of the
// step that wrote it, so it is unique without a counter. The zero Version
// means "no such value".
type Version [8]byte

// Nonce makes a step repeatable within its scope: a driver that sees a nonce again within
// [NonceLife] returns the first result and changes nothing, appends nothing.
type Nonce [16]byte

// NonceLife is how long, at least, a driver remembers a nonce it has applied.
const NonceLife = 10 * time.Second

// VoidLife is how long, at least, a driver refuses a nonce named in Step.Void.
// It is longer than NonceLife because a voided step may be sitting in the
// buffers of a stalled server.
const VoidLife = 60 * time.Second

// Drift is how far Step.At may be from the store's clock. It is generous
// against a slow network and small against any lease.
const Drift = time.Second

// NewNonce returns a random nonce. It never fails: crypto/rand ends the
// process rather than return a weak one.
func NewNonce() Nonce {
	var n Nonce
	_, _ = rand.Read(n[:])
	return n
}

// Version returns the version of the values a step with this nonce puts.
func (n Nonce) Version() Version { return Version(n[:8]) }

// Value is what is stored under a key.
type Value struct {
	Version Version
	Data    []byte
}

// Expect is a condition: Key holds exactly this version (zero: is absent).
type Expect struct {
	Key     Key
	Version Version
}

// Put stores Data under Key. From Expires on (store clock) the value no longer
// exists for anybody; the zero time means it stays until deleted.
type Put struct {
	Key     Key
	Data    []byte
	Expires time.Time
}

// Add adds Delta to the counter at Key, which starts at zero. A counter expires
// like a value, at the Expires of the last Add, but has no version, so two adds
// never conflict. A Read returns a counter as its value in decimal digits, with
// a zero Version.
type Add struct {
	Key     Key
	Delta   int64
	Expires time.Time
}

// Entry is one member of an index at one score. Members are opaque bytes of at
// most 255. Score has millisecond precision.
//
// A member is to stand once in an index, and who puts it there sees to that: to
// move one, a step unindexes it from where it stands, by that very score, and
// indexes it anew. To index an entry that stands, or to unindex one whose member
// stands nowhere, changes nothing.
//
// What becomes of a member that is indexed at a second score, or unindexed at one
// where it does not stand, is for a driver to choose: it takes the member from
// where it stood, or leaves it there too. Where either can happen both must be
// right.
type Entry struct {
	Index  Index
	Score  time.Time
	Member string
}

// Fetch names a value to read. With Follow, the value's data must be a
// sequence of 16-byte ids, and for each id and each kind in Follow the value
// Key{kind, id} is read too: a binding and the record it points to come out of
// one instant. Values that do not exist are left out of the snapshot. Data that
// cannot be split into ids is not followed.
type Fetch struct {
	Key    Key
	Follow []Kind
}

// Step is one atomic change of one scope.
//
// A driver must, in one atomic and isolated step:
//
//  1. if Nonce was applied within NonceLife: return that result again
//     (Applied true, same Now and Counters), change nothing; if it was voided
//     within VoidLife: return Voided, change nothing;
//  2. otherwise check that its clock is within Drift of At, that its clock is
//     before Before (when set), and that every Expect holds; if not, change
//     nothing and return Applied false with the values named by Fetch;
//  3. otherwise apply every part, and return Applied true once the change is
//     as durable as the store is configured to make it.
//
// Parts are applied in this order: Delete, Put, Add, Unindex, Index, Rows, Void.
type Step struct {
	Nonce Nonce     // must not be zero
	At    time.Time // the store time the caller believes it is; its records are built on it

	Before time.Time // refuse if the store's clock has reached this; zero: no bound
	Expect []Expect

	Delete  []Key
	Put     []Put
	Add     []Add
	Unindex []Entry // Score must be the one the entry was put with
	Index   []Entry
	Rows    [][]byte // appended in order
	Void    []Nonce  // steps with these nonces, not yet applied, never will be

	Fetch []Fetch // read only when the step was not applied
}

// Snapshot is a consistent read of a scope at one instant.
type Snapshot struct {
	Now    time.Time // the store's clock at that instant, millisecond precision
	Values map[Key]Value
}

// Get returns the value under a key, and whether it exists.
func (s Snapshot) Get(k Key) (Value, bool) {
	v, ok := s.Values[k]
	return v, ok
}

// Result says what became of a step.
type Result struct {
	Snapshot
	Applied  bool
	Voided   bool
	Counters []int64 // after each Add of an applied step, in order
}

// Row is one stored audit row. Cursor orders rows within a scope, byte-wise,
// and is opaque; it contains only printable ASCII. At is the store's clock when
// the row was appended.
//
// A row is never put in front of one that a reader has seen: a driver appends
// the rows of a scope one step after another, each behind the last, and shows
// none that a crash could still take back. So whoever has read up to a cursor
// has read every row there will ever be up to it.
type Row struct {
	Cursor string
	At     time.Time
	Data   []byte
}

// EntryRange selects index entries with From <= score < To (zero: unbounded),
// in order of (score, member), or the reverse. After, when set, continues
// behind that entry in the direction of reading. Limit must be positive.
type EntryRange struct {
	Index    Index
	From, To time.Time
	After    *Entry
	Newest   bool // newest (highest) first
	Limit    int
}

// RowRange selects rows behind After in the direction of reading, with
// From <= At < To (zero: unbounded). Limit must be positive.
type RowRange struct {
	From, To time.Time
	After    string
	Newest   bool
	Limit    int
}

// Errors a driver returns. They carry no keys and no data.
var (
	// ErrUnavailable means the store could not be asked or did not answer in
	// time. The step may or may not have been applied, now or later: repeat it
	// with the same nonce, or void it.
	ErrUnavailable = errors.New("store unavailable")
	// ErrCorrupt means stored bytes are not what the driver wrote.
	ErrCorrupt = errors.New("stored value is unreadable")
	// ErrNotReady means the store answers but must not be trusted with a claim;
	// the wrapping error says why in plain words.
	ErrNotReady = errors.New("store not ready")
)

// Store is a ledger's driver. Every method may be called from many goroutines.
//
// Apply and Read must never return a value whose Expires has passed on the
// store's clock. After an error from Apply the caller must assume that the step
// may be applied at any later moment, unless it is voided.
//
// What a step or a fetch points to must not be changed once it was given to a
// driver, not even after an error: the driver may still be reading it when the
// caller's context has ended. It reads nothing of it after an answer.
type Store interface {
	Apply(ctx context.Context, scope Scope, step Step) (Result, error)
	Read(ctx context.Context, scope Scope, fetch ...Fetch) (Snapshot, error)
	Entries(ctx context.Context, scope Scope, r EntryRange) ([]Entry, error)
	Rows(ctx context.Context, scope Scope, r RowRange) ([]Row, error)
	// Trim removes the entries of an index with a score before the given time.
	Trim(ctx context.Context, scope Scope, index Index, before time.Time) error
	// TrimRows removes the rows of a scope up to and including a cursor, for
	// good. A row appended later still gets a cursor behind every row there ever
	// was, though none of them is left. It may be repeated, and one that was cut
	// short has removed the oldest rows or none.
	TrimRows(ctx context.Context, scope Scope, upTo string) error
	// Now estimates the store's clock without asking it. It is good to a
	// fraction of Drift once the store has answered anything.
	Now() time.Time
	// Ready says whether a claim made now would be safe; the error wraps
	// ErrUnavailable or ErrNotReady and names the cause.
	Ready(ctx context.Context) error
	// Close waits for running calls to end. It may be called twice.
	Close() error
}
