package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.yaml.in/yaml/v3"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/wire"
)

// Config is the whole configuration (CONTRACT 7). Every field has a default or
// may be left out.
type Config struct {
	Listen      string // address of the API
	AdminListen string // address of metrics and health, not public

	Store        string        // embedded:FOLDER, redis://… or rediss://…
	StoreTimeout time.Duration // store calls fail closed after it
	RedisAck     string        // how sure a claim must be before sending

	AdminKeys []string // platform admin keys; none on the embedded store makes one
	SecretKey string   // seals credentials; "" on the embedded store makes one

	ConnectorsDir string
	EgressAllow   []netip.Prefix // private or loopback networks vendors may live in

	ReplayWindow time.Duration
	Lease        time.Duration
	MaxBody      int64 // bytes of a request
	MaxResult    int64 // bytes of a result that is kept
	DrainTimeout time.Duration

	UncheckedConnectors []string      // by name
	AuditArchive        string        // folder:PATH; "" on the embedded store: a folder in it
	AuditSealAfter      time.Duration // how long a row may wait to be sealed
	AuditMaxUnsealed    int64         // rows; new writes stop beyond them

	TLSCert, TLSKey string // files in PEM; none: the API is served in clear

	Limits          limits.Policy  // what a tenant may use, unless it has limits of its own
	RequestsAtOnce  int64          // of a tenant, worked on at the same time
	AddressRequests int64          // per second, of an address without a good key
	TrustedProxies  []netip.Prefix // whose X-Forwarded-For is believed

	// Only tests set these: how vendors are reached (their own authorities and
	// names), where traces go, and how long a breaker rests (0: its default).
	wire        wire.Config
	reconcile   actions.Reconcile // zero: the usual; tests have no hours
	tracer      trace.TracerProvider
	breakerRest time.Duration
	auditRows   int           // rows of a segment; 0: the usual
	auditHot    time.Duration // how long sealed rows stay in the store; 0: the usual
	// tokenNow is the clock that access tokens end by; nil: the store's.
	tokenNow func() time.Time
	progress time.Duration // between the signs of life of an MCP call; 0: mcp's own
	// lookAt wraps the store, so that what it is asked can be counted; nil: as it is.
	lookAt func(ledger.Store) ledger.Store
	// compile makes connectors from manifests; nil: a compiler of this program's own.
	compile connectors.CompileFunc
}

func defaultConfig() Config {
	return Config{
		Listen: "127.0.0.1:8080", AdminListen: "127.0.0.1:9090",
		Store: "embedded:./gateway-data", StoreTimeout: 2 * time.Second, RedisAck: "auto",
		ReplayWindow: 24 * time.Hour, Lease: 30 * time.Second,
		MaxBody: 1 << 20, MaxResult: 1 << 20, DrainTimeout: 30 * time.Second,
		AuditSealAfter: archive.DefaultCut().Age, AuditMaxUnsealed: defaultMaxUnsealed,
		Limits: defaultLimits(), RequestsAtOnce: defaultRequestsAtOnce(), AddressRequests: defaultAddressRequests,
	}
}

// setting is one line of the configuration: its name is the flag, with
// underscores the key in the file, and in upper case behind GATEWAY_ the
// environment variable.
type setting struct {
	name  string
	usage string
	set   func(c *Config, value string) error
}

func (s setting) env() string { return "GATEWAY_" + strings.ToUpper(s.key()) }
func (s setting) key() string { return strings.ReplaceAll(s.name, "-", "_") }

func settings() []setting {
	return slices.Concat([]setting{
		{"listen", "address of the API; port 0 picks one", address(func(c *Config) *string { return &c.Listen })},
		{"admin-listen", "address of metrics and health, not public", address(func(c *Config) *string { return &c.AdminListen })},
		{"store", "embedded:FOLDER, redis://… or rediss://…", storeURL},
		{"store-timeout", "store calls fail closed after it", duration(func(c *Config) *time.Duration { return &c.StoreTimeout }, 10*time.Millisecond, time.Minute)},
		{"redis-ack", "how sure a claim must be before sending: auto, none, aof or replicas:N", redisAck},
		{"admin-key", "platform admin key, at least 32 characters; several separated by commas while one is replaced", adminKeys},
		{"secret-key", "32 bytes in base64, several separated by commas: the first seals, all open", secretKey},
		{"connectors-dir", "folder of extra connectors", folder},
		{"egress-allow", "networks (CIDR) vendors may live in although private or loopback, separated by commas", prefixes},
		{"unchecked-connectors", "names of connectors whose held writes are not checked automatically, separated by commas", names(func(c *Config) *[]string { return &c.UncheckedConnectors })},
		{"replay-window", "how long answers are replayed, unless an action says otherwise", duration(func(c *Config) *time.Duration { return &c.ReplayWindow }, time.Minute, 720*time.Hour)},
		{"lease", "how long a claim stands without a renewal", duration(func(c *Config) *time.Duration { return &c.Lease }, time.Second, 10*time.Minute)},
		{"max-body", "largest request", size(func(c *Config) *int64 { return &c.MaxBody })},
		{"max-result", "largest result that is kept", size(func(c *Config) *int64 { return &c.MaxResult })},
		{"drain-timeout", "how long running calls may finish after SIGTERM", duration(func(c *Config) *time.Duration { return &c.DrainTimeout }, 0, time.Hour)},
	}, auditSettings(), publicSettings())
}

// loadConfig reads flags (by their full names, "--listen") over environment over file over defaults. The error
// lists every problem, and never a value.
func loadConfig(flags map[string]string, environ []string, file string) (Config, error) {
	var problems []error
	bad := func(source, name string, err error) {
		problems = append(problems, fmt.Errorf("%s %s: %w", source, name, err))
	}
	fromFile, err := readConfigFile(file)
	if err != nil {
		problems = append(problems, err)
	}
	fromEnv := map[string]string{}
	for _, pair := range environ {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "GATEWAY_") && !slices.Contains(clientSettings(), name) {
			fromEnv[name] = value
		}
	}
	c := defaultConfig()
	for _, s := range settings() {
		for _, from := range []struct {
			source, name string
			values       map[string]string
		}{{"file", s.key(), fromFile}, {"environment", s.env(), fromEnv}, {"flag", "--" + s.name, flags}} {
			value, ok := from.values[from.name]
			if !ok {
				continue
			}
			delete(from.values, from.name)
			if err := s.set(&c, value); err != nil {
				bad(from.source, from.name, err)
			}
		}
	}
	for source, rest := range map[string]map[string]string{"file": fromFile, "environment": fromEnv} {
		for _, name := range slices.Sorted(maps.Keys(rest)) {
			bad(source, name, errors.New("is no setting"))
		}
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		problems = append(problems, errors.New("GATEWAY_TLS_CERT and GATEWAY_TLS_KEY belong together: set both or none"))
	}
	if c.isRedis() && c.SecretKey == "" {
		problems = append(problems, errors.New("GATEWAY_SECRET_KEY is required with Redis: all replicas must seal with the same key"))
	}
	if c.isRedis() && len(c.AdminKeys) == 0 {
		problems = append(problems, errors.New("GATEWAY_ADMIN_KEY is required with Redis: all replicas must know the same key"))
	}
	return c, errors.Join(problems...)
}

func (c *Config) isRedis() bool { return !strings.HasPrefix(c.Store, embeddedPrefix) }

const embeddedPrefix = "embedded:"

func (c *Config) folder() string { return strings.TrimPrefix(c.Store, embeddedPrefix) }

func readConfigFile(path string) (map[string]string, error) {
	out := map[string]string{}
	if path == "" {
		return out, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return out, fmt.Errorf("read config file: %w", err)
	}
	var values map[string]yaml.Node
	if err := yaml.Unmarshal(data, &values); err != nil {
		return out, errors.New("config file is not a YAML mapping of settings")
	}
	for name, node := range values {
		if node.Kind != yaml.ScalarNode {
			return out, fmt.Errorf("config file, line %d: %s must be a single value", node.Line, name)
		}
		out[name] = node.Value
	}
	return out, nil
}

func address(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		_, port, err := net.SplitHostPort(v)
		if err != nil {
			return errors.New("must be HOST:PORT")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
			return errors.New("port must be 0 to 65535")
		}
		*field(c) = v
		return nil
	}
}

func storeURL(c *Config, v string) error {
	switch {
	case strings.HasPrefix(v, embeddedPrefix) && len(v) > len(embeddedPrefix):
	case strings.HasPrefix(v, "redis://"), strings.HasPrefix(v, "rediss://"):
	default:
		return errors.New("must be embedded:FOLDER, redis://… or rediss://…")
	}
	c.Store = v
	return nil
}

func duration(field func(*Config) *time.Duration, least, most time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least || d > most {
			return fmt.Errorf("must be a duration from %s to %s, such as 30s", least, most)
		}
		*field(c) = d
		return nil
	}
}

func redisAck(c *Config, v string) error {
	if v == "" {
		return errors.New("must be auto, none, aof or replicas:N")
	}
	c.RedisAck = v
	return redisstore.CheckAck(v)
}

func adminKeys(c *Config, v string) error {
	var keys []string
	for key := range strings.SplitSeq(v, ",") {
		key = strings.TrimSpace(key)
		if len(key) < tenants.MinAdminKey {
			return errors.New("must have at least 32 characters, each key of several")
		}
		if slices.Contains(keys, key) {
			return errors.New("lists a key twice")
		}
		keys = append(keys, key)
	}
	c.AdminKeys = keys
	return nil
}

func names(field func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, v string) error {
		var list []string
		for name := range strings.SplitSeq(v, ",") {
			name = strings.TrimSpace(name)
			if name == "" || strings.ContainsAny(name, "@ ") {
				return errors.New("must be names without versions, separated by commas")
			}
			list = append(list, name)
		}
		*field(c) = list
		return nil
	}
}

func secretKey(c *Config, v string) error {
	if _, err := seal.Parse(v); err != nil {
		return errors.New("must be one or several times 32 bytes in base64, separated by commas")
	}
	c.SecretKey = v
	return nil
}

func folder(c *Config, v string) error {
	info, err := os.Stat(v)
	if err != nil || !info.IsDir() {
		return errors.New("must be a folder that exists")
	}
	c.ConnectorsDir = v
	return nil
}

func prefixes(c *Config, v string) error {
	list, err := parsePrefixes(v)
	c.EgressAllow = list
	return err
}

func parsePrefixes(v string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for part := range strings.SplitSeq(v, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, errors.New("must be networks such as 10.0.0.0/8, separated by commas")
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// size reads a number of bytes, with KiB or MiB if wanted.
func size(field func(*Config) *int64) func(*Config, string) error {
	const least, most = 1 << 10, 64 << 20
	return func(c *Config, v string) error {
		unit := int64(1)
		digits := v
		for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20} {
			if d, ok := strings.CutSuffix(v, suffix); ok {
				digits, unit = d, u
			}
		}
		n, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || n*unit < least || n*unit > most {
			return errors.New("must be a size from 1KiB to 64MiB, such as 1MiB")
		}
		*field(c) = n * unit
		return nil
	}
}
