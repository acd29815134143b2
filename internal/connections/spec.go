package connections

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdfast.dev/gateway/internal/strictjson"
)

// Spec is what a caller says about a connection. When the connection exists, a
// member left out (nil, "") leaves what there is.
type Spec struct {
	Connector string // name@major; fixed at creation
	Config    []byte // JSON object, fixed at creation; nil at creation means {}
	BaseURL   string // fixed at creation; "" at creation means the connector's default

	// Credentials replace all there are. Nil keeps those; at creation it means none.
	Credentials Credentials
	// CredentialVersion goes back to credentials the connection had before; 0
	// does not. It excludes Credentials.
	CredentialVersion int64

	Account    *string // whose account it is, for people; nil at creation means ""
	Paused     *bool   // nil at creation means false
	AutoResend *bool   // nil at creation means false
	MCPTools   *bool   // nil at creation means false
	SendTrace  *bool   // nil at creation means false
	// Correlation false leaves nothing of the gateway's own in what is written; nil
	// at creation means true.
	Correlation *bool
}

// SpecError says what is wrong with a name or a Spec. It never repeats a value.
type SpecError struct {
	Pointer string // JSON Pointer to the member, "" for the name
	Reason  string // one plain sentence
}

func (e *SpecError) Error() string {
	if e.Pointer == "" {
		return "invalid connection name: " + e.Reason
	}
	// Below its first segment a pointer may hold names of the sender's.
	member := e.Pointer
	if i := strings.IndexByte(member[1:], '/'); i >= 0 {
		member = member[:i+1]
	}
	return "invalid connection: " + member + ": " + e.Reason
}

func bad(pointer, reason string) *SpecError { return &SpecError{Pointer: pointer, Reason: reason} }

// A connection is remembered for the path of a write, so it is kept small.
const (
	maxConfig      = 64 << 10 // bytes of config
	maxBaseURL     = 2048     // bytes
	maxCredentials = 32       // names
	maxCredential  = 16 << 10 // bytes of one value
	maxAccount     = 200      // bytes
)

var (
	nameForm       = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	connectorForm  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}@(0|[1-9][0-9]{0,8})$`)
	baseURLForm    = regexp.MustCompile(`^[!-~]+$`)
	credentialForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
)

// checked returns the spec with its config compacted, if what can be told
// without knowing the connector is right with it.
func (s Spec) checked() (Spec, error) {
	switch {
	case s.Connector != "" && !connectorForm.MatchString(s.Connector):
		return s, bad("/connector", "it must be a connector's name, @, and a major version, such as stripe@1")
	case len(s.BaseURL) > maxBaseURL || s.BaseURL != "" && !baseURLForm.MatchString(s.BaseURL):
		return s, bad("/base_url", "it must be a URL of at most 2048 printable ASCII characters")
	}
	if err := s.checkChanges(); err != nil {
		return s, err
	}
	if err := s.Credentials.check(); err != nil {
		return s, err
	}
	if s.Config == nil {
		return s, nil
	}
	config, err := compact(s.Config)
	s.Config = config
	return s, err
}

func (s Spec) checkChanges() error {
	switch {
	case s.CredentialVersion != 0 && s.Credentials != nil:
		return bad("/credential_version", "it goes back to earlier credentials and cannot come with new ones")
	case s.CredentialVersion < 0:
		return bad("/credential_version", "it must be the number of a version, from 1")
	case s.Account == nil:
		return nil
	case len(*s.Account) > maxAccount || !utf8.ValidString(*s.Account):
		return bad("/account", "it must be at most 200 bytes of UTF-8")
	case strings.ContainsFunc(*s.Account, func(r rune) bool { return !unicode.IsPrint(r) }):
		return bad("/account", "it must be printable")
	}
	return nil
}

// compact takes the white space out of a config and leaves every token as it is.
func compact(config []byte) ([]byte, error) {
	if len(config) > maxConfig {
		return nil, bad("/config", "it must have at most 64 KiB")
	}
	if err := strictjson.Check(config); err != nil {
		var e *strictjson.Error
		if errors.As(err, &e) {
			return nil, bad("/config"+e.Pointer, e.Reason)
		}
		return nil, bad("/config", "it is not acceptable JSON")
	}
	var out bytes.Buffer
	if err := json.Compact(&out, config); err != nil || out.Bytes()[0] != '{' {
		return nil, bad("/config", "it must be an object")
	}
	return out.Bytes(), nil
}

// check refuses what would not survive being stored as JSON, and names that
// could not be shown. Names that do not fit are not repeated: a caller who mixed
// up name and value has written a credential there.
func (c Credentials) check() error {
	if len(c) > maxCredentials {
		return bad("/credentials", "there are too many")
	}
	for name, value := range c {
		switch {
		case !credentialForm.MatchString(name):
			return bad("/credentials", "a name must be 1 to 64 letters, digits, dots, dashes or underscores and begin with a letter")
		case value == "" || len(value) > maxCredential || !utf8.ValidString(value):
			return bad("/credentials", "a value must be 1 to 16384 bytes of UTF-8")
		}
	}
	return nil
}

// complete is the spec of a connection to be, with everything left out filled in.
func (s Spec) complete() (Spec, error) {
	if s.Connector == "" {
		return s, bad("/connector", "a new connection must name its connector")
	}
	if s.CredentialVersion != 0 {
		return s, bad("/credential_version", "a new connection has no earlier credentials")
	}
	if s.Config == nil {
		s.Config = []byte("{}")
	}
	if s.Credentials == nil {
		s.Credentials = Credentials{}
	}
	return s, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
