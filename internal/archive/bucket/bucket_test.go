package bucket_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/archive/archivetest"
	"holdfast.dev/gateway/internal/archive/bucket"
	"holdfast.dev/gateway/internal/archive/buckettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, address string) *bucket.Storage {
	t.Helper()
	o, err := bucket.Parse(address)
	require.NoError(t, err)
	s, err := bucket.Open(o)
	require.NoError(t, err)
	t.Cleanup(s.CloseIdle)
	return s
}

// TestStorage runs the rules of a storage against a real server.
func TestStorage(t *testing.T) {
	server := buckettest.Start(t)
	archivetest.Storage(t, open(t, server.Address("")))
	s := open(t, server.Address("some/prefix/"))
	archivetest.Storage(t, s)
	require.NoError(t, s.Put(t.Context(), "scope/1", []byte("x")))
	data, err := os.ReadFile(filepath.Join(server.Dir, "some/prefix/scope/1"))
	require.NoError(t, err)
	require.Equal(t, "x", string(data))
}

// TestFailuresAreNoAnswers: a bucket that is not there, keys that are not good
// and a server that is away are not taken for an object that is not there.
func TestFailuresAreNoAnswers(t *testing.T) {
	server := buckettest.Start(t)
	away, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, away.Close())
	for name, address := range map[string]string{
		"no bucket": "s3://none/?region=us-east-1&endpoint=http://" + server.Addr,
		"away":      "s3://audit/?region=us-east-1&endpoint=http://" + away.Addr().String(),
		"bad keys":  server.Address(""),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "bad keys" {
				t.Setenv("AWS_SECRET_ACCESS_KEY", "sentinel-of-a-secret")
			}
			s := open(t, address)
			_, err := s.Get(t.Context(), "scope/1")
			require.Error(t, err)
			require.NotErrorIs(t, err, archive.ErrNoObject)
			require.NotContains(t, err.Error(), "sentinel")
			require.Error(t, s.Put(t.Context(), "scope/1", []byte("x")))
			_, err = s.List(t.Context(), "scope/", 1)
			require.Error(t, err)
		})
	}
}

func TestAddresses(t *testing.T) {
	o, err := bucket.Parse("s3://logs/a/b/?endpoint=https://s3.example:9000&region=eu-1")
	require.NoError(t, err)
	require.Equal(t, bucket.Options{Endpoint: "https://s3.example:9000", Region: "eu-1", Bucket: "logs", Prefix: "a/b/"}, o)
	o, err = bucket.Parse("s3://logs")
	require.NoError(t, err)
	require.Equal(t, bucket.Options{Endpoint: "https://s3.amazonaws.com", Bucket: "logs"}, o)
	for _, bad := range []string{"", "s3://", "s3:logs", "http://logs", "s3://key:secret@logs", "s3://logs?endpoint=s3.example", "s3://logs?endpoint=https://a/b", "s3://logs?key=x", "s3://logs#x"} {
		_, err := bucket.Parse(bad)
		require.Error(t, err, bad)
	}
}
