package connections

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/strictjson"
)

// storedVersion is the first member of a stored connection. A release reads
// every version up to its own and refuses later ones.
const storedVersion = 1

// stored is a connection's value in the ledger. Times are milliseconds since
// 1970.
type stored struct {
	V           int             `json:"v"`
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Connector   string          `json:"connector"`
	Config      json.RawMessage `json:"config"`
	BaseURL     string          `json:"base_url"`
	Paused      bool            `json:"paused"`
	Closing     bool            `json:"closing"`
	AutoResend  bool            `json:"auto_resend"`
	Created     int64           `json:"created"`
	Updated     int64           `json:"updated"`
	Credentials []string        `json:"credentials"`
	Fingerprint string          `json:"fingerprint"`
	Sealed      []byte          `json:"sealed"`
	SecretNo    int64           `json:"credential_version"`
	SecretAt    int64           `json:"credentials_at"`
	Account     string          `json:"account"`
	// Left out when false: connections of before they were there have no other form.
	MCPTools  bool `json:"mcp_tools,omitempty"`
	SendTrace bool `json:"send_trace,omitempty"`

	Uncorrelated bool `json:"uncorrelated,omitempty"`
}

func encode(c *Connection) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // config keeps its bytes
	err := enc.Encode(stored{
		V: storedVersion, ID: c.ID, Name: c.Name, Connector: c.Connector, Config: c.Config, BaseURL: c.BaseURL,
		Paused: c.paused, Closing: c.Closing, AutoResend: c.AutoResend,
		Created: c.CreatedAt.UnixMilli(), Updated: c.UpdatedAt.UnixMilli(),
		Credentials: c.CredentialNames, Fingerprint: c.Fingerprint, Sealed: c.sealed,
		SecretNo: c.CredentialVersion, SecretAt: c.CredentialsAt.UnixMilli(), Account: c.Account,
		MCPTools: c.MCPTools, SendTrace: c.SendTrace, Uncorrelated: c.Uncorrelated,
	})
	if err != nil {
		return nil, fmt.Errorf("encode connection: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// decode reads the value stored under a name. Bytes that encode would not have
// written are ErrUnreadable, a member left out included: an absent "paused" must
// not read as false.
func decode(scope ledger.Scope, name string, v ledger.Value) (*Connection, error) {
	var s stored
	if err := strictjson.Unmarshal(v.Data, &s); err != nil {
		return nil, ErrUnreadable // the cause would quote member names
	}
	if s.V != storedVersion || s.Name != name || !strings.HasPrefix(s.ID, idPrefix) ||
		!connectorForm.MatchString(s.Connector) || !bytes.HasPrefix(s.Config, []byte("{")) || s.Credentials == nil || s.SecretNo < 1 {
		return nil, ErrUnreadable
	}
	c := &Connection{
		ID: s.ID, Name: s.Name, Connector: s.Connector, Config: s.Config, BaseURL: s.BaseURL,
		Paused: s.Paused || s.Closing, Closing: s.Closing, AutoResend: s.AutoResend,
		CreatedAt: time.UnixMilli(s.Created).UTC(), UpdatedAt: time.UnixMilli(s.Updated).UTC(),
		Version: v.Version,
		Account: s.Account, MCPTools: s.MCPTools, SendTrace: s.SendTrace, Uncorrelated: s.Uncorrelated,
		CredentialNames: s.Credentials, Fingerprint: s.Fingerprint,
		CredentialVersion: s.SecretNo, CredentialsAt: time.UnixMilli(s.SecretAt).UTC(),
		scope: scope, sealed: s.Sealed, paused: s.Paused,
	}
	again, err := encode(c)
	if err != nil || !bytes.Equal(again, v.Data) {
		return nil, ErrUnreadable
	}
	return c, nil
}

// find reads a connection out of a snapshot.
func find(snap ledger.Snapshot, scope ledger.Scope, name string) (*Connection, error) {
	v, ok := snap.Get(keyOf(name))
	if !ok {
		return nil, ErrNotFound
	}
	return decode(scope, name, v)
}
