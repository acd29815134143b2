package redisstore_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

func TestReadyOfADurableStore(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, opts redisstore.Options) {
		t.Parallel()
		server := redistest.Start(t, redistest.Durable()...)
		opts.URL, opts.Ack = server.URL(), "auto"
		s := open(t, opts)

		err := s.Ready(t.Context())
		require.ErrorIs(t, err, ledger.ErrNotReady)
		require.ErrorContains(t, err, "gateway store init")
		require.ErrorContains(t, err, "lost")

		require.NoError(t, redisstore.Init(t.Context(), opts))
		require.NoError(t, s.Ready(t.Context()))
		require.ErrorIs(t, redisstore.Init(t.Context(), opts), redisstore.ErrInitialised)

		require.NoError(t, server.Flush())
		require.ErrorIs(t, s.Ready(t.Context()), ledger.ErrNotReady, "the data is gone")
	})
}

func TestInitIsDoneOnce(t *testing.T) {
	t.Parallel()
	opts := redisstore.Options{URL: redistest.Start(t).URL()}
	const callers = 8
	errs := make(chan error, callers)
	for range callers {
		go func() { errs <- redisstore.Init(t.Context(), opts) }()
	}
	done := 0
	for range callers {
		if err := <-errs; err == nil {
			done++
		} else {
			require.ErrorIs(t, err, redisstore.ErrInitialised)
		}
	}
	require.Equal(t, 1, done)
	require.ErrorIs(t, redisstore.Init(t.Context(), opts), redisstore.ErrInitialised)
	opts.URL = "redis://127.0.0.1:1"
	require.ErrorIs(t, redisstore.Init(t.Context(), opts), ledger.ErrUnavailable)
}

func TestReadySettings(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Durable()...)
	ready := func(t *testing.T, ack string) error {
		return open(t, redisstore.Options{URL: server.URL(), Ack: ack}).Ready(t.Context())
	}
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: server.URL()}))
	for _, ack := range []string{"", "auto", "aof", "none"} {
		require.NoError(t, ready(t, ack))
	}

	config := func(t *testing.T, name, value, normal string) {
		t.Helper()
		_, err := server.Do(t.Context(), "CONFIG", "SET", name, value)
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := server.Do(context.WithoutCancel(t.Context()), "CONFIG", "SET", name, normal)
			require.NoError(t, err)
		})
	}
	for _, bad := range []struct{ name, value, normal string }{
		{"appendonly", "no", "yes"},
		{"appendfsync", "everysec", "always"},
		{"no-appendfsync-on-rewrite", "yes", "no"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			config(t, bad.name, bad.value, bad.normal)
			for _, ack := range []string{"", "auto", "aof"} {
				err := ready(t, ack)
				require.ErrorIs(t, err, ledger.ErrNotReady)
				require.ErrorContains(t, err, "GATEWAY_REDIS_ACK=none")
				require.ErrorContains(t, err, "made twice")
			}
			require.NoError(t, ready(t, "none"))
		})
	}
	t.Run("eviction", func(t *testing.T) {
		config(t, "maxmemory-policy", "allkeys-lru", "noeviction")
		for _, ack := range []string{"auto", "none"} {
			err := ready(t, ack)
			require.ErrorIs(t, err, ledger.ErrNotReady)
			require.ErrorContains(t, err, "noeviction")
		}
	})
}

func TestReadyRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Durable()...)
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: server.URL()}))
	user := func(t *testing.T, name string, rules ...string) error {
		t.Helper()
		_, err := server.Do(t.Context(), append([]string{"ACL", "SETUSER", name, "on", ">secret"}, rules...)...)
		require.NoError(t, err)
		u, err := url.Parse(server.URL())
		require.NoError(t, err)
		u.User = url.UserPassword(name, "secret")
		return open(t, redisstore.Options{URL: u.String(), Ack: "auto"}).Ready(t.Context())
	}
	t.Run("all it needs", func(t *testing.T) {
		require.NoError(t, user(t, "whole", "~hf:*", "+@all"))
	})
	t.Run("a command is missing", func(t *testing.T) {
		err := user(t, "partial", "~hf:*", "+@all", "-xadd")
		require.ErrorIs(t, err, ledger.ErrNotReady)
		require.ErrorContains(t, err, "XADD")
	})
	t.Run("replicas may not be waited for", func(t *testing.T) {
		err := user(t, "hasty", "~hf:*", "+@all", "-wait")
		require.ErrorIs(t, err, ledger.ErrNotReady)
		require.ErrorContains(t, err, "WAIT")
	})
	t.Run("the settings may not be read", func(t *testing.T) {
		err := user(t, "blind", "~hf:*", "+@all", "-config")
		require.ErrorIs(t, err, ledger.ErrNotReady)
		require.ErrorContains(t, err, "appendfsync")
	})
	t.Run("the server may not be asked about itself", func(t *testing.T) {
		require.ErrorIs(t, user(t, "deaf", "~hf:*", "+@all", "-info"), ledger.ErrUnavailable)
	})
	t.Run("the keys are not its own", func(t *testing.T) {
		require.ErrorIs(t, user(t, "stranger", "~other:*", "+@all"), ledger.ErrUnavailable)
	})
	t.Run("the password is wrong", func(t *testing.T) {
		u, err := url.Parse(server.URL())
		require.NoError(t, err)
		u.User = url.UserPassword("whole", "sentinel-password")
		err = open(t, redisstore.Options{URL: u.String()}).Ready(t.Context())
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		require.NotContains(t, err.Error(), "sentinel-password")
	})
}
