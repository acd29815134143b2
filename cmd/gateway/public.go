package main

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"time"

	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/limits"
)

// defaultLimits stop what has run wild and nothing else: a tenant that needs
// less or more has its own limits (PATCH /v1/tenants/{tenant}).
func defaultLimits() limits.Policy {
	return limits.Policy{RequestsPerSecond: 2000, WritesPerSecond: 500, ConcurrentCalls: 256, NewWrites: 5_000_000}
}

// defaultRequestsAtOnce leaves every second processor to who else asks. A turn is
// held while the gateway and the store work, not while a vendor does.
func defaultRequestsAtOnce() int64 { return max(1, int64(runtime.GOMAXPROCS(0)/2)) }

// defaultAddressRequests is how many requests per second an address may make
// without a good key.
const defaultAddressRequests = 50

// mostPerSecond is far above what a gateway can do.
const mostPerSecond = 1_000_000

// publicSettings are those of a gateway that strangers can reach.
func publicSettings() []setting {
	return []setting{
		{"tenant-requests-per-second", "requests of a tenant, replays included, on each replica; 0: no limit", count(func(c *Config) *int64 { return &c.Limits.RequestsPerSecond }, mostPerSecond)},
		{"tenant-writes-per-second", "new writes of a tenant on each replica; 0: no limit", count(func(c *Config) *int64 { return &c.Limits.WritesPerSecond }, mostPerSecond)},
		{"tenant-requests-at-once", "requests of a tenant worked on at the same time on each replica where others ask too, its others wait; 0: no limit", count(func(c *Config) *int64 { return &c.RequestsAtOnce }, mostPerSecond)},
		{"tenant-concurrent-calls", "calls to vendors at once of a tenant on each replica; 0: no limit", count(func(c *Config) *int64 { return &c.Limits.ConcurrentCalls }, mostPerSecond)},
		{"tenant-new-identities", "new writes of a tenant in a day of UTC, all replicas together; 0: no limit", count(func(c *Config) *int64 { return &c.Limits.NewWrites }, 1<<40)},
		{"address-requests-per-second", "requests of an address without a good key on each replica; 0: no limit", count(func(c *Config) *int64 { return &c.AddressRequests }, mostPerSecond)},
		{"tls-cert", "file of the API's TLS certificate in PEM, read anew when it changes", file(func(c *Config) *string { return &c.TLSCert })},
		{"tls-key", "file of its key in PEM", file(func(c *Config) *string { return &c.TLSKey })},
		{"trusted-proxies", "networks (CIDR) whose X-Forwarded-For is believed, separated by commas", trustedProxies},
	}
}

func count(field func(*Config) *int64, most int64) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 || n > most {
			return errors.New("must be a whole number from 0 to " + strconv.FormatInt(most, 10))
		}
		*field(c) = n
		return nil
	}
}

func file(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		info, err := os.Stat(v)
		if err != nil || info.IsDir() {
			return errors.New("must be a file that exists")
		}
		*field(c) = v
		return nil
	}
}

func trustedProxies(c *Config, v string) error {
	list, err := parsePrefixes(v)
	c.TrustedProxies = list
	return err
}

// limitsOf makes what is counted in this process.
func limitsOf(cfg Config, storeNow func() time.Time) api.Limits {
	return api.Limits{
		Tenants:        limits.New(cfg.Limits, time.Now, storeNow),
		Addresses:      limits.NewAddresses(cfg.AddressRequests, time.Now),
		Turns:          limits.NewTurns(cfg.RequestsAtOnce),
		Pauses:         limits.NewPauses(),
		TrustedProxies: cfg.TrustedProxies,
	}
}
