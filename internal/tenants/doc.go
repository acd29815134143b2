// Package tenants owns who there is: tenants, their API keys, and the principal
// that a key or the platform's admin key stands for.
//
// It leaves to its neighbours what a principal may reach over HTTP (api), a
// tenant's connections (connections) and the enforcement of limits (actions).
//
// # One name, many lives
//
// A tenant is known by an id that people choose and may choose again after a
// deletion. Everything it owns hangs on another one: the incarnation, 16 random
// bytes in hex made at creation and never used again. The ledger's scope comes
// from it, and so do identities and the sealing of credentials
// ([Principal.TenantID]). A tenant created under the id of a deleted one
// therefore cannot meet its predecessor's writes, answers, keys or rows: it
// cannot spell them.
//
// # Two scopes, no half tenants
//
// A tenant is in two places, and no step spans both: an entry in the platform's
// scope (id → incarnation), and a record in its own. The record decides; the
// entry only says where to look. The order of the steps makes a crash between
// any two harmless, and repeating the call finishes it:
//
//	create: (1) entry, (2) record                     exists from (2) on
//	delete: (1) record marked closing, then a look for unsettled writes
//	        (2) record removed, scope closed for good  gone from (2) on
//	        (3) keys and connections removed, (4) entry removed
//	erase:  (5) writes removed, step by step, in the background
//
// A crash after create (1) leaves an entry without a record: the tenant is not
// found, not listed, and creating it again goes on with the same entry. After
// delete (1) the tenant takes no new writes until deletion is repeated or it is
// un-suspended. After delete (2) or (3) it is gone for everybody; deleting or
// creating it again does the rest first, and so does the [Eraser] where nobody
// repeats the call. A closed scope takes no changes
// ([audit.ErrClosed]), so a call that was under way during the deletion cannot
// leave a key or a connection behind.
//
// # Keys
//
// An API key is hf_<public id>_<secret><checksum>. The public id holds the
// scope, so a key is found with one read in its tenant's own scope; the
// checksum is tried before any read. See key.go.
package tenants
