package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// defaultTimeout bounds a store call that has no tighter bound of its own.
const defaultTimeout = 2 * time.Second

// maxDial bounds one attempt to connect. After a long absence of the server the
// library probes for it once a second, so together they stay under 2 s.
const maxDial = 500 * time.Millisecond

// asides are connections for what does not take a lane, such as looks at the server.
const asides = 4

// Options say which Redis to use and how.
type Options struct {
	// URL is redis:// or, with TLS, rediss://[user:password@]host[:port][/db],
	// with these query parameters: addr=host:port (repeated) for further nodes
	// or sentinels, mode=cluster or mode=sentinel, and with the latter
	// master=NAME and, where sentinels ask for them, sentinel_user=NAME and
	// sentinel_password=WORD. With TLS, for all nodes and sentinels: cert=FILE
	// and key=FILE in PEM, shown to servers that ask for a certificate, and
	// server_name=NAME, what theirs must be made out to (else the name or address
	// each is dialled by).
	URL string

	// Timeout bounds each call of the store, whatever it does; zero means 2 s.
	Timeout time.Duration

	// Pipeline lets concurrent calls share round trips. Otherwise each call
	// takes a connection of a pool.
	Pipeline bool

	// Ack says how sure a step must be before it counts: "auto" (or empty),
	// "none", "aof" or "replicas:N"; see [Store.Ready].
	Ack string

	// Logger may be nil.
	Logger *slog.Logger

	// TestClockShift, for tests only, is added to the server's clock wherever
	// the store reads it. All clients of the same data must use the same.
	TestClockShift func() time.Duration
}

func (o Options) timeout() time.Duration {
	if o.Timeout <= 0 {
		return defaultTimeout
	}
	return o.Timeout
}

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}

func (o Options) shift() func() time.Duration {
	if o.TestClockShift == nil {
		return func() time.Duration { return 0 }
	}
	return o.TestClockShift
}

// target is what the client library is told.
func (o Options) target() (*redis.UniversalOptions, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		// The error would quote the URL, which may hold a password.
		return nil, errors.New("the URL cannot be parsed")
	}
	t := o.common()
	switch u.Scheme {
	case "redis":
	case "rediss":
		t.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return nil, errors.New("the URL must begin with redis:// or rediss://")
	}
	t.Username = u.User.Username()
	t.Password, _ = u.User.Password()
	t.Addrs = []string{withPort(u.Host, "localhost")}
	if db := strings.Trim(u.Path, "/"); db != "" {
		if t.DB, err = strconv.Atoi(db); err != nil || t.DB < 0 {
			return nil, errors.New("the path of the URL must be a database number")
		}
	}
	return t, topology(t, u.RawQuery)
}

// common holds what does not depend on the URL.
func (o Options) common() *redis.UniversalOptions {
	timeout := o.timeout()
	size := 0 // the library's default
	if o.Pipeline {
		size = lanes + asides
	}
	return &redis.UniversalOptions{
		PoolSize:              size,
		PipelinePoolSize:      -1, // one pool for all
		Protocol:              2,  // no push messages to take apart
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		ReadTimeout:           timeout,
		WriteTimeout:          timeout,
		PoolTimeout:           timeout,
		DialTimeout:           min(timeout/2, maxDial),
		DialerRetries:         1, // the caller repeats, and knows why
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			// They stretch time-outs, which are promises here.
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// topology reads the query parameters.
func topology(t *redis.UniversalOptions, query string) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the query of the URL cannot be parsed")
	}
	for name := range q {
		if !slices.Contains(parameters(), name) {
			return fmt.Errorf("the URL has an unknown parameter %q", name)
		}
	}
	if err := secure(t, q); err != nil {
		return err
	}
	t.SentinelUsername, t.SentinelPassword = q.Get("sentinel_user"), q.Get("sentinel_password")
	if t.SentinelUsername+t.SentinelPassword != "" && q.Get("mode") != "sentinel" {
		return errors.New("sentinel_user and sentinel_password need mode=sentinel")
	}
	for _, addr := range q["addr"] {
		t.Addrs = append(t.Addrs, withPort(addr, ""))
	}
	t.MasterName = q.Get("master")
	switch mode := q.Get("mode"); {
	case mode == "sentinel" && t.MasterName == "":
		return errors.New("mode=sentinel needs master=NAME")
	case mode != "sentinel" && t.MasterName != "":
		return errors.New("master= needs mode=sentinel")
	case mode == "cluster" && t.DB != 0:
		return errors.New("a cluster has database 0 only")
	case mode == "" && len(t.Addrs) > 1:
		return errors.New("several addresses need mode=cluster or mode=sentinel")
	case mode != "" && mode != "cluster" && mode != "sentinel":
		return errors.New("mode must be cluster or sentinel")
	default:
		t.IsClusterMode = mode == "cluster"
		return nil
	}
}

func parameters() []string {
	return []string{"addr", "mode", "master", "sentinel_user", "sentinel_password", "cert", "key", "server_name"}
}

// secure reads what the query says of TLS.
func secure(t *redis.UniversalOptions, q url.Values) error {
	cert, key, name := q.Get("cert"), q.Get("key"), q.Get("server_name")
	if cert+key+name == "" {
		return nil
	}
	if t.TLSConfig == nil {
		return errors.New("cert, key and server_name need rediss://")
	}
	t.TLSConfig.ServerName = name
	if (cert == "") != (key == "") {
		return errors.New("cert and key belong together")
	}
	if cert == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("read the client certificate: %w", err)
	}
	t.TLSConfig.Certificates = []tls.Certificate{pair}
	return nil
}

func withPort(host, byDefault string) string {
	if host == "" {
		host = byDefault
	}
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "6379")
}
