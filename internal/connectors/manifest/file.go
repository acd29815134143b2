package manifest

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// file is a manifest as written. The schema has passed on it before it is
// decoded, so unknown members and wrong types cannot occur.
type file struct {
	Metadata struct {
		Name      string `yaml:"name"`
		Version   string `yaml:"version"`
		VendorAPI string `yaml:"vendor_api"`
		Docs      string `yaml:"docs"`
	} `yaml:"metadata"`
	BaseURL struct {
		Default string   `yaml:"default"`
		Allow   []string `yaml:"allow"`
	} `yaml:"base_url"`
	Auth      fileAuth              `yaml:"auth"`
	Config    yaml.Node             `yaml:"config"`
	Headers   map[string]string     `yaml:"headers"`
	RateLimit fileRateLimit         `yaml:"rate_limit"`
	Redact    fileRedact            `yaml:"redact"`
	Test      *fileTest             `yaml:"test"`
	Actions   map[string]fileAction `yaml:"actions"`
}

type fileTest struct {
	Request fileRequest `yaml:"request"`
	Reads   string      `yaml:"reads"`
	OK      string      `yaml:"ok"`
}

type fileAuth struct {
	Type         string   `yaml:"type"`
	Secret       string   `yaml:"secret"`
	Prefix       *string  `yaml:"prefix"`
	Username     string   `yaml:"username"`
	Password     string   `yaml:"password"`
	In           string   `yaml:"in"`
	Name         string   `yaml:"name"`
	TokenURL     string   `yaml:"token_url"`
	ClientID     string   `yaml:"client_id"`
	ClientSecret string   `yaml:"client_secret"`
	RefreshToken string   `yaml:"refresh_token"`
	Scopes       []string `yaml:"scopes"`
	ClientAuth   string   `yaml:"client_auth"`
	Rotates      bool     `yaml:"rotates"`
}

type fileRateLimit struct {
	Limit        string `yaml:"limit"`
	Remaining    string `yaml:"remaining"`
	ResetSeconds string `yaml:"reset_seconds"`
	ResetEpoch   string `yaml:"reset_epoch"`
	RetryAfter   string `yaml:"retry_after"`
	Scope        string `yaml:"scope"`
	Budget       struct {
		Requests int    `yaml:"requests"`
		Per      string `yaml:"per"`
	} `yaml:"budget"`
}

type fileRedact struct {
	Params   []string `yaml:"params"`
	Response []string `yaml:"response"`
}

type fileAction struct {
	Description string      `yaml:"description"`
	Effect      string      `yaml:"effect"`
	Input       yaml.Node   `yaml:"input"`
	Request     fileRequest `yaml:"request"`
	Timeout     string      `yaml:"timeout"`
	Window      string      `yaml:"window"`
	Identity    struct {
		Ignore []string `yaml:"ignore"`
	} `yaml:"identity"`
	ExposeHeaders []string         `yaml:"expose_headers"`
	Idempotency   *fileIdempotency `yaml:"idempotency"`
	Outcomes      []fileOutcome    `yaml:"outcomes"`
	Result        yaml.Node        `yaml:"result"`
	Check         []fileCheck      `yaml:"check"`
}

type fileRequest struct {
	Method   string    `yaml:"method"`
	Path     string    `yaml:"path"`
	Encoding string    `yaml:"encoding"`
	Query    yaml.Node `yaml:"query"`
	Headers  yaml.Node `yaml:"headers"`
	Body     yaml.Node `yaml:"body"`
}

type fileIdempotency struct {
	In        string `yaml:"in"`
	Name      string `yaml:"name"`
	Format    string `yaml:"format"`
	MaxLen    int    `yaml:"max_len"`
	Retention string `yaml:"retention"`
	Strength  string `yaml:"strength"`
}

type fileOutcome struct {
	When       string `yaml:"when"`
	Is         string `yaml:"is"`
	Code       string `yaml:"code"`
	Message    string `yaml:"message"`
	RetryAfter string `yaml:"retry_after"`
	Reason     string `yaml:"reason"`
	Doc        string `yaml:"doc"`
}

type fileCheck struct {
	Resend *struct {
		Within string `yaml:"within"`
	} `yaml:"resend"`
	Lookup *struct {
		Request fileRequest `yaml:"request"`
		Reads   string      `yaml:"reads"`
		Settle  string      `yaml:"settle"`
		Match   string      `yaml:"match"`
		Result  yaml.Node   `yaml:"result"`
		Absent  string      `yaml:"absent"`
	} `yaml:"lookup"`
}

// absent says whether an optional tree was left out.
func absent(n *yaml.Node) bool { return n.Kind == 0 }

// duration reads what the schema's patterns let through. Empty is zero.
func (p *problems) duration(pointer, s string) time.Duration {
	if s == "" {
		return 0
	}
	unit := time.Duration(0)
	digits := strings.TrimRight(s, "dhms")
	switch s[len(digits):] {
	case "ms":
		unit = time.Millisecond
	case "s":
		unit = time.Second
	case "m":
		unit = time.Minute
	case "h":
		unit = time.Hour
	case "d":
		unit = 24 * time.Hour
	}
	n, err := strconv.Atoi(digits)
	if err != nil || unit == 0 || time.Duration(n) > maxDuration/unit {
		p.add(pointer, "this duration is out of range")
		return 0
	}
	if n == 0 {
		p.add(pointer, "this duration must be longer than zero")
	}
	return time.Duration(n) * unit
}

// maxDuration is longer than any duration that means something here.
const maxDuration = 20 * 365 * 24 * time.Hour
