// Package bucket keeps the audit's archive in a bucket that speaks S3.
//
// It owns how an object of the archive becomes one of a bucket, and which client
// does that. What objects mean is left to archive.
package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"holdfast.dev/gateway/internal/archive"
)

// Scheme begins the address of a bucket.
const Scheme = "s3://"

const (
	defaultEndpoint = "https://s3.amazonaws.com"
	// maxObject bounds what is read; objects of the archive are a few megabytes.
	maxObject = archive.MaxSegment
	// tries bounds the client's own repeats of a request; the sealer has its own.
	tries = 3
	// dialPatience and headPatience bound a request that gets no answer.
	dialPatience = 10 * time.Second
	headPatience = 30 * time.Second
)

// Options say which bucket is meant.
type Options struct {
	Endpoint string // https://host[:port], or http:// for one in one's own network
	Region   string // "": the client finds out
	Bucket   string
	Prefix   string // of the names of all objects; "" or ends in a slash
}

// Parse reads s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME].
func Parse(address string) (Options, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme+"://" != Scheme || u.Host == "" || u.User != nil || u.Fragment != "" {
		return Options{}, errors.New("must be s3://BUCKET/PREFIX?endpoint=URL; keys are never part of it")
	}
	query := u.Query()
	for name := range query {
		if !slices.Contains([]string{"endpoint", "region"}, name) {
			return Options{}, errors.New("takes the parameters endpoint and region only")
		}
	}
	o := Options{Endpoint: query.Get("endpoint"), Region: query.Get("region"), Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	if o.Prefix != "" {
		o.Prefix += "/"
	}
	if o.Endpoint == "" {
		o.Endpoint = defaultEndpoint
	}
	if _, err := o.endpoint(); err != nil {
		return Options{}, err
	}
	return o, nil
}

func (o *Options) endpoint() (*url.URL, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("endpoint must be an http or https address without a path")
	}
	return u, nil
}

// Storage is an archive.Storage in a bucket. It is safe for concurrent use.
type Storage struct {
	client    *minio.Client
	transport *http.Transport
	bucket    string
	prefix    string
}

// Open returns the storage of a bucket, which must exist. Keys come from the
// environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), the
// shared credentials file, or the machine's role. Nothing is asked of the bucket.
func Open(o Options) (*Storage, error) {
	endpoint, err := o.endpoint()
	if err != nil {
		return nil, err
	}
	transport, err := minio.DefaultTransport(endpoint.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	transport.ResponseHeaderTimeout = headPatience
	transport.TLSHandshakeTimeout = dialPatience
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Transport: transport}},
		}),
		Secure: endpoint.Scheme == "https", Region: o.Region, Transport: transport, MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	return &Storage{client: client, transport: transport, bucket: o.Bucket, prefix: o.Prefix}, nil
}

// CloseIdle closes the connections that are not in use.
func (s *Storage) CloseIdle() { s.transport.CloseIdleConnections() }

// Put stores an object in one request, so that it is there whole or not at all.
func (s *Storage) Put(ctx context.Context, name string, data []byte) error {
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableMultipart: true,
	})
	return meaning(err)
}

// Get returns a whole object.
func (s *Storage) Get(ctx context.Context, name string) (data []byte, err error) {
	object, err := s.client.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, meaning(err)
	}
	defer func() { _ = object.Close() }()
	data, err = io.ReadAll(io.LimitReader(object, maxObject))
	if err != nil {
		return nil, meaning(err)
	}
	return data, nil
}

// Delete removes an object; S3 says the same of one that is not there.
func (s *Storage) Delete(ctx context.Context, name string) error {
	err := meaning(s.client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}))
	if errors.Is(err, archive.ErrNoObject) {
		return nil
	}
	return err
}

// List lists names, which S3 returns in the order of their bytes.
func (s *Storage) List(ctx context.Context, prefix string, limit int) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	var names []string
	for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true, MaxKeys: limit}) {
		if o.Err != nil {
			return nil, meaning(o.Err)
		}
		names = append(names, strings.TrimPrefix(o.Key, s.prefix))
		if len(names) == limit {
			break
		}
	}
	return names, nil
}

// meaning says what an answer means, in few words: the server's own would name
// the bucket's owner and the request.
func meaning(err error) error {
	var answer minio.ErrorResponse
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return err
	case answer.Code == minio.NoSuchKey:
		return archive.ErrNoObject
	default:
		return fmt.Errorf("the bucket answered %d %s", answer.StatusCode, answer.Code)
	}
}
